//! Images of workspaces that may be started: unpacked, verified, and counted for a workspace.
//!
//! A pushed image itself states what its layers unpack to. That is believed only after all of it
//! has been unpacked or read again. The result is recorded once for all repositories that have the
//! image.
//!
//! ```text
//! ready/<digest>   one empty file for each image, named by the digest of its manifest
//! ```

use std::collections::HashSet;

use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::leases::{Held, Lease};
use crate::manifest::{self, INDEX_DEPTH_MAX, Index, Platform};
use crate::pull::is_index;
use crate::reuse::Reuse;
use crate::store::{Parts, Store, check};

impl Store {
    /// Returns the image that is run for a pushed one: for an index, its image for this machine.
    /// Fails with the reason if nothing in it could run here.
    pub fn runnable(&self, pushed: &Digest) -> Result<Digest, Error> {
        let parts = &self.0;
        let mut at = *pushed;
        for _ in 0..INDEX_DEPTH_MAX {
            let bytes_max = parts.settings.limits.document_bytes_max;
            let bytes = parts.blobs.document("manifest", &at, bytes_max)?;
            if is_index(&bytes)? {
                at = manifest::read::<Index>("index", &bytes)?.choose(&Platform::here())?.digest;
                continue;
            }
            let (manifest, setup) = parts.documents(&at)?;
            check(&manifest, &setup, parts.settings.limits.layers_max)?;
            return Ok(at);
        }
        Err(manifest::too_deep())
    }

    /// Returns whether an image was prepared and all of it is still there.
    pub fn is_ready(&self, image: &Digest) -> bool {
        let unpacked = |layer: &Digest| matches!(self.0.layers.bytes(layer), Ok(Some(_)));
        self.0.ready_path(image).exists()
            && self
                .0
                .documents(image)
                .is_ok_and(|(_, setup)| setup.rootfs.diff_ids.iter().all(unpacked))
    }

    /// Unpacks an image of at most `bytes_max` bytes, and verifies again what is unpacked already.
    /// Returns its size and a lease that keeps it. Layers of public images count for nothing.
    pub fn prepare(&self, image: &Digest, bytes_max: u64) -> Result<(u64, Lease), Error> {
        let lease = self.0.leases.take();
        lease.hold(Held::Image(*image));
        let public = self.public_layers()?;
        let mut shared = 0u64;
        for layer in self.0.documents(image)?.1.rootfs.diff_ids {
            let bytes = if public.contains(&layer) { self.0.layers.bytes(&layer)? } else { None };
            shared = shared.saturating_add(bytes.unwrap_or(0));
        }
        let nothing = Reuse::Known { blobs: HashSet::new(), layers: HashSet::new() };
        let most = bytes_max.saturating_add(shared);
        let bytes = self.0.unpack_within(image, &lease, &nothing, most)?;
        Ok((bytes.saturating_sub(shared), lease))
    }

    /// Returns the layers of all public images. They are there anyway, whoever uses them. An image
    /// that is damaged has none, so that it does not keep others from running.
    pub fn public_layers(&self) -> Result<HashSet<Digest>, Error> {
        let mut layers = HashSet::new();
        for named in self.0.names.list()?.iter().filter(|named| named.is_public()) {
            match self.0.documents(&named.image) {
                Ok((_, setup)) => layers.extend(setup.rootfs.diff_ids),
                Err(error) if error.is_lasting() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(layers)
    }

    /// Records that an image was prepared and counted.
    pub fn set_ready(&self, image: &Digest, _lease: &Lease) -> Result<(), Error> {
        disk::make_folder(&self.0.folder.join("ready"))?;
        disk::write(&self.0.ready_path(image), &self.0.scratch(), b"")
    }
}

impl Parts {
    fn ready_path(&self, image: &Digest) -> std::path::PathBuf {
        self.folder.join("ready").join(image.hex())
    }

    /// Adds the layers of those prepared images whose manifests are needed, and forgets the others.
    /// Fails if one cannot be read now, because its layers are needed as well.
    pub(crate) fn add_ready(
        &self,
        blobs: &HashSet<Digest>,
        layers: &mut HashSet<Digest>,
    ) -> Result<(), Error> {
        let folder = self.folder.join("ready");
        disk::make_folder(&folder)?;
        for image in disk::digests_in(&folder)? {
            // A manifest that is needed only as a blob is no longer an image.
            let found = match blobs.contains(&image) {
                true => self.documents(&image),
                false => Err(Error::malformed("image", "nothing needs it")),
            };
            match found {
                Ok((_, setup)) => layers.extend(setup.rootfs.diff_ids),
                Err(error) if error.is_lasting() => disk::remove_file(&self.ready_path(&image))?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn only_what_is_known_to_be_broken_is_no_longer_ready() {
        let folder = tempfile::tempdir().unwrap();
        let parts = Store::open(folder.path(), Settings::default()).unwrap().0;
        let [unreadable, broken, gone, unneeded] =
            ["a manifest", "{}", "gone", "unneeded"].map(|text| Digest::of(text.as_bytes()));
        disk::make_folder(&parts.folder.join("ready")).unwrap();
        for image in [unreadable, broken, gone, unneeded] {
            std::fs::write(parts.ready_path(&image), "").unwrap();
        }
        // Reading a folder fails like reading a damaged disk.
        std::fs::create_dir(parts.blobs.path(&unreadable)).unwrap();
        std::fs::write(parts.blobs.path(&broken), "{}").unwrap();
        let mut layers = HashSet::new();
        parts.add_ready(&HashSet::from([broken, gone]), &mut layers).unwrap();
        std::fs::write(parts.ready_path(&unreadable), "").unwrap();
        let needed = HashSet::from([unreadable]);
        assert!(parts.add_ready(&needed, &mut layers).is_err());
        assert_eq!(disk::digests_in(&parts.folder.join("ready")).unwrap(), [unreadable]);
    }
}
