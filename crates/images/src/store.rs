//! The store itself: where things are kept, and which images there are.

use std::collections::{BTreeMap, HashSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blobs::Blobs;
use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::layers::Layers;
use crate::leases::{Held, Lease, Leases};
use crate::manifest::{self, Config, Manifest, Platform, Setup};
use crate::names::{Audience, Named, Names, is_key};
use crate::pull::Downloads;
use crate::reference::Reference;
use crate::repositories::RepositoryLocks;
use crate::reuse::Reuse;
use crate::scratch::ScratchFolder;
use crate::settings::Settings;

/// All images of this machine. Clones share one store, and other processes may have it open too.
/// All methods block: call them only from threads that may block.
#[derive(Clone)]
pub struct Store(pub(crate) Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) settings: Settings,
    pub(crate) blobs: Blobs,
    pub(crate) layers: Layers,
    pub(crate) names: Names,
    pub(crate) leases: Leases,
    pub(crate) downloads: Downloads,
    pub(crate) repository_locks: RepositoryLocks,
    pub(crate) work: ScratchFolder,
    pub(crate) folder: PathBuf,
}

/// An image that is ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Digest of the manifest.
    pub digest: Digest,
    pub config: Config,
    /// Folders of the unpacked layers, the lowest first.
    pub layers: Vec<PathBuf>,
    /// Size of the files in all layers; a repeated layer counts once.
    pub size_bytes: u64,
}

/// An image and all its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub digest: Digest,
    pub names: Vec<Reference>,
    pub size_bytes: u64,
}

impl Store {
    /// Opens the store in `folder`, which is created if it is missing, and clears away what a crash
    /// has left.
    pub fn open(folder: &Path, settings: Settings) -> Result<Self, Error> {
        disk::make_folder(folder)?;
        // Programs that work on the store run in other directories, so its path has to be absolute.
        let folder = &folder.canonicalize().map_err(Error::io("find", folder))?;
        // Files in layers keep owners and modes from the image, which have no meaning for the users
        // of this machine.
        std::fs::set_permissions(folder, Permissions::from_mode(0o700))
            .map_err(Error::io("close off", folder))?;
        Ok(Self(Arc::new(Parts {
            blobs: Blobs::open(folder)?,
            layers: Layers::open(folder, &settings)?,
            names: Names::open(folder)?,
            leases: Leases::default(),
            downloads: Downloads::default(),
            repository_locks: RepositoryLocks::default(),
            work: ScratchFolder::open(folder)?,
            folder: folder.to_owned(),
            settings,
        })))
    }

    /// Finds an image by its name, or by its digest together with the name of a repository.
    pub fn resolve(&self, name: &Reference) -> Result<Option<Image>, Error> {
        self.find(name)?.map(|digest| self.image(digest)).transpose()
    }

    /// Returns the image that a name means now. Cheaper than [`Store::resolve`] for callers who
    /// already know the image itself.
    pub fn find(&self, name: &Reference) -> Result<Option<Digest>, Error> {
        self.find_among(name, |_| true)
    }

    /// Like [`Store::find`], but only among public images.
    pub fn find_public(&self, name: &Reference) -> Result<Option<Digest>, Error> {
        self.find_among(name, Named::is_public)
    }

    fn find_among(
        &self,
        name: &Reference,
        counts: impl Fn(&Named) -> bool,
    ) -> Result<Option<Digest>, Error> {
        if let Some(named) = self.0.names.find(name)?.filter(&counts) {
            return Ok(Some(named.image));
        }
        let Some(wanted) = name.digest() else { return Ok(None) };
        let mut names = self.0.names.list()?.into_iter();
        let same =
            |named: &Named| named.image == *wanted && named.name.repository() == name.repository();
        Ok(names.find(|named| same(named) && counts(named)).map(|named| named.image))
    }

    /// Returns the names of all public images, sorted.
    pub fn public_names(&self) -> Result<Vec<Reference>, Error> {
        let names = self.0.names.list()?.into_iter().filter(Named::is_public);
        Ok(names.map(|named| named.name).filter(|name| !is_key(name)).collect())
    }

    /// Checks whether an image is here, for callers that were granted it by its digest.
    pub fn has(&self, image: &Digest) -> bool {
        self.0.blobs.size(image).is_some()
    }

    /// Keeps an image until the lease is dropped, even when its names are removed. Returns `None`
    /// if it is gone already.
    pub fn pin(&self, digest: &Digest) -> Result<Option<(Image, Lease)>, Error> {
        let Some(lease) = self.lease(digest) else { return Ok(None) };
        Ok(Some((self.image(*digest)?, lease)))
    }

    /// Like [`Store::pin`], for callers who already know the image itself: its digest fixes its
    /// content, so only its presence has to be checked.
    pub fn lease(&self, digest: &Digest) -> Option<Lease> {
        let lease = self.0.leases.take();
        lease.hold(Held::Image(*digest));
        self.0.blobs.size(digest).map(|_| lease)
    }

    /// Lists all images, each with its names but without the keys of recipes.
    pub fn list(&self) -> Result<Vec<Listed>, Error> {
        let mut names: BTreeMap<Digest, Vec<Reference>> = BTreeMap::new();
        for named in self.0.names.list()? {
            let names = names.entry(named.image).or_default();
            names.extend(Some(named.name).filter(|name| !is_key(name)));
        }
        names
            .into_iter()
            .map(|(digest, names)| {
                Ok(Listed { digest, names, size_bytes: self.image(digest)?.size_bytes })
            })
            .collect()
    }

    /// Gives an image one more name.
    pub fn tag(&self, name: &Reference, more: &Reference) -> Result<Option<Digest>, Error> {
        let Some(image) = self.resolve(name)? else { return Ok(None) };
        let Some((image, _lease)) = self.pin(&image.digest)? else { return Ok(None) };
        self.0.name(more, image.digest)?;
        Ok(Some(image.digest))
    }

    /// Removes an image by removing all its names, and returns them; the list is empty if the image
    /// is not here.
    pub fn remove_image(&self, digest: &Digest) -> Result<Vec<Reference>, Error> {
        let mut removed = Vec::new();
        for named in self.0.names.list()?.into_iter().filter(|named| named.image == *digest) {
            self.0.names.remove(&named.name)?;
            removed.extend(Some(named.name).filter(|name| !is_key(name)));
        }
        Ok(removed)
    }

    /// Removes a name. The next [`Store::collect`] removes what no name and no lease needs any
    /// more.
    pub fn remove(&self, name: &Reference) -> Result<bool, Error> {
        let existed = self.0.names.find(name)?.is_some();
        self.0.names.remove(name)?;
        Ok(existed)
    }

    /// Removes all names of a repository and returns how many there were.
    pub fn remove_all_of(&self, repository: &str) -> Result<usize, Error> {
        let mut names = self.0.names.list()?;
        names.retain(|named| named.name.repository() == repository);
        names.iter().try_for_each(|named| self.0.names.remove(&named.name))?;
        Ok(names.len())
    }

    pub(crate) fn image(&self, digest: Digest) -> Result<Image, Error> {
        let (_, setup) = self.0.documents(&digest)?;
        if !setup
            .rootfs
            .diff_ids
            .iter()
            .map(|layer| self.0.layers.bytes(layer))
            .all(|bytes| matches!(bytes, Ok(Some(_))))
        {
            // It was stored by a process that uses another form of overlays.
            let lease = self.0.leases.take();
            lease.hold(Held::Image(digest));
            self.0.unpack(&digest, &lease)?;
        }
        let mut layers = Vec::with_capacity(setup.rootfs.diff_ids.len());
        let mut sizes = BTreeMap::new();
        for layer in &setup.rootfs.diff_ids {
            let bytes = self.0.layers.bytes(layer)?;
            sizes.insert(
                *layer,
                bytes.ok_or_else(|| {
                    Error::malformed("image", format!("layer {layer} is missing"))
                })?,
            );
            let root = self.0.layers.root(layer);
            // Overlayfs refuses the same layer twice. The higher one hides everything of the lower
            // one, whatever is between them.
            layers.retain(|lower| *lower != root);
            layers.push(root);
        }
        Ok(Image { digest, config: setup.config.into(), layers, size_bytes: sizes.values().sum() })
    }
}

impl Parts {
    /// Reads the manifest and the configuration of a stored image.
    pub(crate) fn documents(&self, image: &Digest) -> Result<(Manifest, Setup), Error> {
        let bytes_max = self.settings.limits.document_bytes_max;
        let found: Manifest =
            manifest::read("manifest", &self.blobs.document("manifest", image, bytes_max)?)?;
        let setup = manifest::read(
            "configuration",
            &self.blobs.document("configuration", &found.config.digest, bytes_max)?,
        )?;
        Ok((found, setup))
    }

    /// Returns a path for work in progress that nobody else uses.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.work.next_path()
    }

    /// Gives an image a public name.
    pub(crate) fn name(&self, name: &Reference, image: Digest) -> Result<(), Error> {
        self.names.set(name, image, Audience::Everyone, &self.scratch())
    }

    /// Keeps an image that a tenant has pulled, for workspaces that are granted it. The name
    /// contains the digest: tags move, and what one tenant pulled must not change what another
    /// runs.
    pub(crate) fn keep_granted(&self, name: &Reference, image: Digest) -> Result<(), Error> {
        let name = name.at(image);
        match self.names.find(&name)? {
            Some(_) => Ok(()),
            None => self.names.set(&name, image, Audience::Granted, &self.scratch()),
        }
    }

    /// Collects what a tenant's pull of `image` may reuse.
    pub(crate) fn reuse_for(&self, image: &Reference) -> Result<Reuse, Error> {
        let (mut blobs, mut layers) = (HashSet::new(), HashSet::new());
        for named in self.names.list()? {
            if !named.is_public() && named.name.repository() != image.repository() {
                continue;
            }
            // If the image is being removed at this moment, there is nothing to share.
            let Ok((manifest, setup)) = self.documents(&named.image) else { continue };
            blobs.insert(manifest.config.digest);
            blobs.extend(manifest.layers.iter().map(|layer| layer.digest));
            layers.extend(
                manifest.layers.iter().map(|layer| layer.digest).zip(setup.rootfs.diff_ids),
            );
        }
        Ok(Reuse::Known { blobs, layers })
    }

    /// Unpacks the layers of an image whose blobs are all there.
    pub(crate) fn unpack(&self, image: &Digest, lease: &Lease) -> Result<(), Error> {
        self.unpack_within(image, lease, &Reuse::All, u64::MAX).map(drop)
    }

    /// Like [`Parts::unpack`], but fails when the layers have more than `bytes_max` bytes in all.
    /// Returns their size. A layer that is already unpacked is verified again unless `reuse`
    /// vouches for it.
    pub(crate) fn unpack_within(
        &self,
        image: &Digest,
        lease: &Lease,
        reuse: &Reuse,
        bytes_max: u64,
    ) -> Result<u64, Error> {
        let (manifest, setup) = self.documents(image)?;
        check(&manifest, &setup, self.settings.limits.layers_max)?;
        let max = self.settings.limits.image_bytes_max.min(bytes_max);
        let mut bytes = 0u64;
        for (packed, layer) in manifest.layers.iter().zip(&setup.rootfs.diff_ids) {
            lease.hold(Held::Layer(*layer));
            let open = || self.blobs.open_blob(&packed.digest);
            let known = reuse.layer(&packed.digest, layer);
            bytes = bytes.saturating_add(self.layers.ensure(
                layer,
                open,
                known,
                &self.scratch(),
                &self.settings,
            )?);
            if bytes > max {
                return Err(Error::Limit { what: "bytes in all layers", max });
            }
        }
        Ok(bytes)
    }
}

/// Rejects an image that could not run here.
pub(crate) fn check(manifest: &Manifest, setup: &Setup, layers_max: usize) -> Result<(), Error> {
    if manifest.layers.len() != setup.rootfs.diff_ids.len() {
        return Err(Error::malformed(
            "image",
            "manifest and configuration name different numbers of layers",
        ));
    }
    if manifest.layers.len() > layers_max {
        return Err(Error::Limit { what: "layers", max: layers_max as u64 });
    }
    if manifest.layers.is_empty() {
        return Err(Error::malformed("image", "it has no layers"));
    }
    let here = Platform::here();
    let other = |found: &str, wanted: &str| !found.is_empty() && found != wanted;
    if other(&setup.os, &here.os) || other(&setup.architecture, &here.architecture) {
        return Err(Error::NoPlatform(here.to_string()));
    }
    Ok(())
}
