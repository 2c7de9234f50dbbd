//! Writes an image as an OCI layout, for other programs.

use std::fs;
use std::path::Path;

use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::manifest::{
    self, Descriptor, FULL_NAME_ANNOTATION, Index, NAME_ANNOTATION, OCI_MANIFEST,
};
use crate::reference::Reference;
use crate::store::Store;

const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

impl Store {
    /// Exports the image with this name into `folder`, with an index of this one image. Returns
    /// `None` if there is no such image.
    pub fn export(&self, name: &Reference, folder: &Path) -> Result<Option<Digest>, Error> {
        let Some(image) = self.resolve(name)? else { return Ok(None) };
        let Some((image, _lease)) = self.pin(&image.digest)? else { return Ok(None) };
        let (manifest, _) = self.0.documents(&image.digest)?;
        let blobs = folder.join("blobs/sha256");
        disk::make_folder(&blobs)?;
        let layers = manifest.layers.iter().map(|layer| layer.digest);
        for blob in layers.chain([manifest.config.digest, image.digest]) {
            let to = blobs.join(blob.hex());
            fs::copy(self.0.blobs.path(&blob), &to).map_err(Error::io("write", &to))?;
        }
        let stored = self.0.blobs.path(&image.digest);
        let size = fs::metadata(&stored).map_err(Error::io("read", &stored))?.len();
        let mut entry = Descriptor::new(OCI_MANIFEST, image.digest, size);
        entry.annotations.insert(FULL_NAME_ANNOTATION.into(), name.to_string());
        entry.annotations.extend(name.tag().map(|tag| (NAME_ANNOTATION.into(), tag.into())));
        write(&folder.join("oci-layout"), LAYOUT)?;
        write(&folder.join("index.json"), &manifest::write("index", &Index::new(vec![entry]))?)?;
        Ok(Some(image.digest))
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    fs::write(path, bytes).map_err(Error::io("write", path))
}
