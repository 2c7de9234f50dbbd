//! What an import reads, and what it finds there.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::digest::Digest;
use crate::error::Error;
use crate::reference::Reference;
use crate::settings::Settings;
use crate::unpack::{Tree, plain_path};

/// A folder with the files of an archive. Links in it cannot lead out of it.
pub(super) struct Source<'a> {
    pub(super) tree: Tree,
    pub(super) settings: &'a Settings,
}

impl Source<'_> {
    pub(super) fn has(&self, path: &str) -> bool {
        self.tree.read(Path::new(path)).is_ok()
    }

    pub(super) fn open(&self, path: &str) -> Result<File, Error> {
        let plain = plain_path(path.as_bytes(), &self.settings.limits)?;
        let file =
            self.tree.read(&plain).map_err(|error| Error::io("open", &plain)(error.into()))?;
        let is_file = file.metadata().is_ok_and(|data| data.is_file());
        if is_file { Ok(file) } else { Err(Error::hostile(path.as_bytes(), "not a file")) }
    }

    pub(super) fn document(&self, path: &str) -> Result<Vec<u8>, Error> {
        let max = self.settings.limits.document_bytes_max;
        let mut bytes = Vec::new();
        self.open(path)?.take(max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > max {
            Err(Error::Limit { what: "bytes in one document", max })
        } else {
            Ok(bytes)
        }
    }
}

/// An image whose blobs and layers are stored, with its names from the archive.
pub(super) struct Found {
    pub(super) digest: Digest,
    pub(super) names: Vec<Reference>,
}
