//! Imports images from files: OCI layouts, archives of `docker save`, and plain root filesystems.

mod docker;
mod layout;
mod rootfs;
mod source;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::blobs::Writer;
use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::leases::{Held, Lease};
use crate::manifest::{Config, Descriptor};
use crate::packing;
use crate::reference::Reference;
use crate::settings::{Overlay, Settings};
use crate::store::{Parts, Store};
use crate::tar::Reader;
use crate::unpack::{Tree, plain_path, unpack};
use source::{Found, Source};

/// An imported image, and the name that it got here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    pub name: Reference,
    pub digest: Digest,
}

/// Which names imported images get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Naming {
    /// The names in the archive. One that begins with a part in `reserved` is refused.
    Own { reserved: &'static [&'static str] },
    /// This name; the archive must then hold exactly one image.
    As(Reference),
}

impl Naming {
    fn reserves(&self, name: &Reference) -> bool {
        let first = name.path().split_once('/').map(|(first, _)| first);
        match self {
            Self::Own { reserved } if name.host().is_none() => {
                first.is_some_and(|first| reserved.contains(&first))
            }
            Self::Own { .. } | Self::As(_) => false,
        }
    }
}

impl Store {
    /// Imports a file or folder: an OCI layout, the output of `docker save`, or the archive of a
    /// root filesystem, which needs a name and is run with `config`.
    pub fn import(
        &self,
        path: &Path,
        naming: &Naming,
        config: &Config,
    ) -> Result<Vec<Imported>, Error> {
        if path.is_dir() {
            return self.import_folder(path, naming);
        }
        let open = || File::open(path).map_err(Error::io("open", path));
        if self.holds_images(open()?)? {
            return self.import_archive(open()?, naming);
        }
        let Naming::As(name) = naming else {
            return Err(Error::malformed(
                "image archive",
                "a root filesystem says no name; give it one",
            ));
        };
        let digest = self.import_rootfs(open()?, config, name)?;
        Ok(vec![Imported { name: name.clone(), digest }])
    }

    /// Returns whether an archive has a list of images at its top.
    fn holds_images(&self, archive: impl Read) -> Result<bool, Error> {
        let limits = &self.0.settings.limits;
        let mut reader =
            Reader::new(packing::unpacked(archive, limits)?, limits.extension_bytes_max);
        while let Some(entry) = reader.next()? {
            let path = plain_path(&entry.path, limits)?;
            if matches!(path.to_str(), Some("index.json" | "manifest.json")) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Imports all images of an OCI layout or of an unpacked `docker save` archive.
    pub fn import_folder(&self, folder: &Path, naming: &Naming) -> Result<Vec<Imported>, Error> {
        let lease = self.0.leases.take();
        let source = Source { tree: Tree::open(folder)?, settings: &self.0.settings };
        let found = if source.has("index.json") {
            layout::import(&self.0, &source, &lease)?
        } else if source.has("manifest.json") {
            docker::import(&self.0, &source, &lease)?
        } else {
            return Err(Error::malformed(
                "image archive",
                "it has neither `index.json` nor `manifest.json`",
            ));
        };
        self.0.name_all(found, naming)
    }

    /// Imports the same from a tar archive, compressed or not.
    pub fn import_archive(
        &self,
        archive: impl Read,
        naming: &Naming,
    ) -> Result<Vec<Imported>, Error> {
        let folder = self.0.scratch();
        disk::make_folder(&folder)?;
        // The archive of an image is read like a layer, but may be as large as all layers together.
        let mut settings = Settings { overlay: Overlay::User, ..self.0.settings.clone() };
        settings.limits.layer_bytes_max = settings.limits.image_bytes_max;
        let unpacked = packing::unpacked(archive, &settings.limits).map_err(Error::from);
        let imported = unpacked
            .and_then(|archive| unpack(archive, &folder, &settings))
            .and_then(|_| self.import_folder(&folder, naming));
        disk::remove_tree(&folder)?;
        imported
    }
}

impl Parts {
    fn name_all(&self, found: Vec<Found>, naming: &Naming) -> Result<Vec<Imported>, Error> {
        let named: Vec<Imported> = match (naming, found.as_slice()) {
            (Naming::As(name), [one]) => vec![Imported { name: name.clone(), digest: one.digest }],
            (Naming::As(_), several) => {
                let why =
                    format!("it has {} images, which cannot all have one name", several.len());
                return Err(Error::malformed("image archive", why));
            }
            (Naming::Own { .. }, several) => several
                .iter()
                .flat_map(|found| {
                    found
                        .names
                        .iter()
                        .map(|name| Imported { name: name.clone(), digest: found.digest })
                })
                .collect(),
        };
        if named.is_empty() {
            return Err(Error::malformed("image archive", "it names no image; give it a name"));
        }
        if let Some(image) = named.iter().find(|image| naming.reserves(&image.name)) {
            return Err(Error::Reserved(image.name.clone()));
        }
        named.iter().try_for_each(|image| self.name(&image.name, image.digest))?;
        Ok(named)
    }

    /// Stores a small document that an import has generated.
    pub(crate) fn store_document(
        &self,
        media_type: &str,
        bytes: &[u8],
        lease: &Lease,
    ) -> Result<Descriptor, Error> {
        let (digest, size) =
            self.store_blob(bytes, None, self.settings.limits.document_bytes_max, lease)?;
        Ok(Descriptor::new(media_type, digest, size))
    }

    /// Stores a blob unless it is there already.
    pub(crate) fn store_blob(
        &self,
        mut bytes: impl Read,
        wanted: Option<&Digest>,
        bytes_max: u64,
        lease: &Lease,
    ) -> Result<(Digest, u64), Error> {
        if let Some(wanted) = wanted {
            lease.hold(Held::Blob(*wanted));
            if let Some(size) = self.blobs.size(wanted) {
                return Ok((*wanted, size));
            }
        }
        let mut writer = self.blob_writer(bytes_max)?;
        io::copy(&mut bytes, &mut writer)?;
        self.blobs.finish(writer, wanted, lease)
    }

    fn blob_writer(&self, bytes_max: u64) -> Result<Writer, Error> {
        self.blobs.write(self.scratch(), bytes_max)
    }
}
