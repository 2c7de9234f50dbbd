//! Files named by the sha256 of their bytes. A file under its final name is complete and verified.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::digest::{Digest, Hasher};
use crate::disk;
use crate::error::{Error, Exceeded};
use crate::leases::{Held, Lease};

pub(crate) struct Blobs {
    folder: PathBuf,
    /// Downloads that can be resumed, even after a restart.
    partial: PathBuf,
}

impl Blobs {
    pub(crate) fn open(store: &Path) -> Result<Self, Error> {
        let blobs = Self { folder: store.join("blobs/sha256"), partial: store.join("partial") };
        disk::make_folder(&blobs.folder)?;
        disk::make_folder(&blobs.partial)?;
        Ok(blobs)
    }

    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(digest.hex())
    }

    pub(crate) fn size(&self, digest: &Digest) -> Option<u64> {
        fs::metadata(self.path(digest)).ok().map(|data| data.len())
    }

    /// Returns the size of an interrupted download.
    pub(crate) fn partial_size(&self, digest: &Digest) -> Option<u64> {
        fs::metadata(self.partial.join(digest.hex())).ok().map(|data| data.len())
    }

    pub(crate) fn open_blob(&self, digest: &Digest) -> Result<File, Error> {
        let path = self.path(digest);
        File::open(&path).map_err(Error::io("open", &path))
    }

    /// Reads a document and verifies it, because it may have been damaged on disk.
    pub(crate) fn document(
        &self,
        what: &'static str,
        digest: &Digest,
        bytes_max: u64,
    ) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.open_blob(digest)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(Error::Limit { what: "bytes in one document", max: bytes_max });
        }
        let found = Digest::of(&bytes);
        if found == *digest {
            Ok(bytes)
        } else {
            Err(Error::Digest { what, wanted: *digest, found })
        }
    }

    pub(crate) fn write(&self, scratch: PathBuf, bytes_max: u64) -> Result<Writer, Error> {
        let file = File::create(&scratch).map_err(Error::io("write", &scratch))?;
        Ok(Writer {
            file,
            path: scratch,
            hasher: Hasher::default(),
            size: 0,
            bytes_max,
            keep: false,
        })
    }

    /// Resumes an interrupted download, or starts one. A writer that is dropped before it is
    /// finished leaves its file for the next attempt. If another process has the same download in
    /// progress, this one goes into a separate file.
    pub(crate) fn resume(
        &self,
        digest: &Digest,
        bytes_max: u64,
        scratch: PathBuf,
    ) -> Result<Writer, Error> {
        let path = self.partial.join(digest.hex());
        let failed = Error::io("write", &path);
        let file = File::options().read(true).append(true).create(true).open(&path);
        let mut file = match file {
            Ok(file) if is_ours(&file, &path) => file,
            Ok(_) => return self.write(scratch, bytes_max),
            Err(error) => return Err(failed(error)),
        };
        let mut open = || {
            let mut hashing = Hashing::default();
            io::copy(&mut file, &mut hashing)?;
            Ok(hashing)
        };
        let Hashing { hasher, size } = open().map_err(failed)?;
        Ok(Writer { file, path, hasher, size, bytes_max, keep: true })
    }

    /// Moves a blob to its final name if it has the digest that is wanted.
    pub(crate) fn finish(
        &self,
        mut writer: Writer,
        wanted: Option<&Digest>,
        lease: &Lease,
    ) -> Result<(Digest, u64), Error> {
        let found = std::mem::take(&mut writer.hasher).finish();
        if let Some(wanted) = wanted.filter(|wanted| **wanted != found) {
            writer.keep = false;
            return Err(Error::Digest { what: "blob", wanted: *wanted, found });
        }
        lease.hold(Held::Blob(found));
        writer.file.sync_all().map_err(Error::io("flush", &writer.path))?;
        disk::rename(&writer.path, &self.path(&found))?;
        writer.keep = true;
        Ok((found, writer.size))
    }

    pub(crate) fn list(&self) -> Result<Vec<Digest>, Error> {
        disk::digests_in(&self.folder)
    }

    pub(crate) fn remove(&self, digest: &Digest) -> Result<u64, Error> {
        let size = self.size(digest).unwrap_or(0);
        disk::remove_file(&self.path(digest))?;
        Ok(size)
    }

    pub(crate) fn partials(&self) -> Result<Vec<Digest>, Error> {
        disk::digests_in(&self.partial)
    }

    pub(crate) fn remove_partial(&self, digest: &Digest) -> Result<(), Error> {
        disk::remove_file(&self.partial.join(digest.hex()))
    }
}

/// Checks whether this process alone may write the file: nobody else holds its lock, and it has not
/// been moved to its final name meanwhile.
fn is_ours(file: &File, path: &Path) -> bool {
    let locked = flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
    let inode = |data: fs::Metadata| (data.dev(), data.ino());
    locked && file.metadata().ok().map(inode) == fs::metadata(path).ok().map(inode)
}

#[derive(Default)]
pub(crate) struct Hashing {
    hasher: Hasher,
    size: u64,
}

impl Hashing {
    pub(crate) fn into_hasher(self) -> Hasher {
        self.hasher
    }
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A blob that is being written. If it is dropped without [`Blobs::finish`], its file is removed,
/// unless it is a download that can be resumed.
pub(crate) struct Writer {
    file: File,
    path: PathBuf,
    hasher: Hasher,
    size: u64,
    bytes_max: u64,
    keep: bool,
}

impl Writer {
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Starts over, for a server that cannot resume a download.
    pub(crate) fn restart(&mut self) -> Result<(), Error> {
        self.file.set_len(0).map_err(Error::io("write", &self.path))?;
        self.hasher = Hasher::default();
        self.size = 0;
        Ok(())
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.size + bytes.len() as u64 > self.bytes_max {
            return Err(io::Error::other(Exceeded {
                what: "bytes in one blob",
                max: self.bytes_max,
            }));
        }
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.keep {
            // If this fails, the next start removes the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}
