//! Blobs that are uploaded in pieces. Each has a folder of its own until it is complete, so that
//! the upload can be resumed after a restart.
//!
//! ```text
//! uploads/<id>/about   its owner, as described by the code that began it
//! uploads/<id>/data    the bytes that have arrived so far
//! ```

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::digest::{Digest, Hasher};
use crate::disk;
use crate::error::Error;
use crate::leases::{Held, Lease};
use crate::store::Store;

const ID_BYTES_MAX: usize = 64;

/// An upload in progress. Dropping it keeps what has arrived.
pub struct Upload {
    folder: PathBuf,
    file: File,
    hasher: Hasher,
    size: u64,
}

/// An upload that an earlier run of the program has left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftUpload {
    pub id: String,
    pub about: Vec<u8>,
    pub size: u64,
}

impl Store {
    /// Begins an upload under a new, unique id.
    pub fn begin_upload(&self, id: &str, about: &[u8]) -> Result<Upload, Error> {
        let folder = self.upload_folder(id)?;
        disk::make_folder(&folder)?;
        let written = disk::write(&folder.join("about"), &self.0.scratch(), about);
        let begun = written.and_then(|()| self.open_upload(folder.clone()));
        if begun.is_err() {
            // Nobody learns its id. What cannot be removed now is removed at the next start.
            let _ = disk::remove_tree(&folder);
        }
        begun
    }

    /// Resumes an upload of an earlier run; reads what has arrived, to compute its digest.
    pub fn resume_upload(&self, id: &str) -> Result<Upload, Error> {
        let folder = self.upload_folder(id)?;
        self.open_upload(folder)
    }

    /// Lists the uploads that earlier runs have left behind, and removes those that have no
    /// description. Fails if a description cannot be read now.
    pub fn left_uploads(&self) -> Result<Vec<LeftUpload>, Error> {
        let all = self.0.folder.join("uploads");
        disk::make_folder(&all)?;
        let entries = fs::read_dir(&all).map_err(Error::io("list", &all))?;
        let mut found = Vec::new();
        for entry in entries {
            let folder = entry.map_err(Error::io("list", &all))?.path();
            let name = folder.file_name().and_then(|name| name.to_str());
            let path = folder.join("about");
            let about = match fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                about => Some(about.map_err(Error::io("read", &path))?),
            };
            match name.filter(|name| is_id(name)).zip(about) {
                Some((id, about)) => {
                    let size = fs::metadata(folder.join("data")).map_or(0, |data| data.len());
                    found.push(LeftUpload { id: id.to_owned(), about, size });
                }
                None => disk::remove_tree(&folder)?,
            }
        }
        Ok(found)
    }

    /// Abandons an upload.
    pub fn forget_upload(&self, id: &str) -> Result<(), Error> {
        disk::remove_tree(&self.upload_folder(id)?)
    }

    /// Turns an upload into a blob if it has the digest that is wanted. Otherwise it is removed.
    pub fn finish_upload(
        &self,
        upload: Upload,
        wanted: &Digest,
        lease: &Lease,
    ) -> Result<u64, Error> {
        let Upload { folder, file, hasher, size } = upload;
        let found = hasher.finish();
        if found != *wanted {
            disk::remove_tree(&folder)?;
            return Err(Error::Digest { what: "blob", wanted: *wanted, found });
        }
        lease.hold(Held::Blob(found));
        let data = folder.join("data");
        file.sync_all().map_err(Error::io("flush", &data))?;
        disk::rename(&data, &self.0.blobs.path(&found))?;
        disk::remove_tree(&folder)?;
        Ok(size)
    }

    /// Returns a lease that keeps content from being collected until it has been recorded.
    pub fn begin_work(&self) -> Lease {
        self.0.leases.take()
    }

    fn upload_folder(&self, id: &str) -> Result<PathBuf, Error> {
        if is_id(id) {
            Ok(self.0.folder.join("uploads").join(id))
        } else {
            Err(Error::malformed("upload", "its id is not one of ours"))
        }
    }

    fn open_upload(&self, folder: PathBuf) -> Result<Upload, Error> {
        let path = folder.join("data");
        let open = |path: &Path| -> io::Result<(File, Hasher, u64)> {
            let mut file = File::options().read(true).append(true).create(true).open(path)?;
            let mut hashing = crate::blobs::Hashing::default();
            let size = io::copy(&mut file, &mut hashing)?;
            Ok((file, hashing.into_hasher(), size))
        };
        let (file, hasher, size) = open(&path).map_err(Error::io("open", &path))?;
        Ok(Upload { folder, file, hasher, size })
    }
}

/// Returns whether an id is safe as the name of a folder.
fn is_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl Upload {
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends bytes. Only those that were written count.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let written = match self.file.write(bytes) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                written => written,
            };
            let written = written.map_err(Error::io("write", &self.folder))?;
            self.hasher.update(&bytes[..written]);
            self.size += written as u64;
            bytes = &bytes[written..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn an_upload_stays_when_its_description_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), Settings::default()).unwrap();
        let uploads = folder.path().join("uploads");
        fs::create_dir_all(uploads.join("nothing")).unwrap();
        // Reading a folder fails like reading a damaged disk.
        fs::create_dir_all(uploads.join("one/about")).unwrap();
        fs::write(uploads.join("one/data"), "arrived").unwrap();
        assert!(store.left_uploads().is_err());
        assert_eq!(fs::read(uploads.join("one/data")).unwrap(), b"arrived");
        fs::remove_dir(uploads.join("one/about")).unwrap();
        assert_eq!(store.left_uploads().unwrap(), []);
        assert_eq!(fs::read_dir(&uploads).unwrap().count(), 0);
    }
}
