//! Contents of repositories: the blobs that may be read through each one, and the manifests that
//! were pushed to it. Content is shared between repositories, but the right to read it belongs to
//! each repository, so knowing a digest alone gives no access.
//!
//! ```text
//! repositories/<digest of the name>/name            the name
//! repositories/…/blobs/<digest>                     size and time of arrival of a blob
//! repositories/…/manifests/<digest>                 type and needs of a manifest
//! repositories/…/subjects/<digest>/<digest>         manifests that refer to another one
//! ```
//!
//! Code that adds content first leases it, then records it, so that no collection can come between.

mod locks;
mod manifests;
mod prune;

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::PathBuf;

use parking_lot::MutexGuard;
use serde::{Deserialize, Serialize};

pub(crate) use locks::RepositoryLocks;
pub use manifests::{Filed, PushFault, Pushed};
pub use prune::Keep;

use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::leases::{Held, Lease};
use crate::manifest;
use crate::store::{Parts, Store};

/// One repository, which may still be empty.
#[derive(Clone)]
pub struct Repository {
    store: Store,
    name: String,
    /// Digest of the name.
    key: Digest,
    folder: PathBuf,
}

/// A blob that is open for reading. It can be read to its end even if it is removed meanwhile.
#[derive(Debug)]
pub struct Blob {
    pub file: File,
    pub size: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct BlobNote {
    size: u64,
    /// Time of arrival in milliseconds.
    at: i64,
}

impl Store {
    /// Returns the repository with this name, which can be any text.
    pub fn repository(&self, name: &str) -> Repository {
        let key = Digest::of(name.as_bytes());
        let folder = self.0.folder.join("repositories").join(key.hex());
        Repository { store: self.clone(), name: name.to_owned(), key, folder }
    }

    /// Lists all repositories that have contents.
    pub fn repositories(&self) -> Result<Vec<Repository>, Error> {
        let all = self.0.folder.join("repositories");
        disk::make_folder(&all)?;
        let mut found = Vec::new();
        for key in disk::digests_in(&all)? {
            let path = all.join(key.hex()).join("name");
            match fs::read_to_string(&path) {
                Ok(name) => found.push(self.repository(&name)),
                // A power cut interrupted its creation, or it is being removed.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("read", &path)(error)),
            }
        }
        Ok(found)
    }
}

impl Repository {
    pub fn name(&self) -> &str {
        &self.name
    }

    fn parts(&self) -> &Parts {
        &self.store.0
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.parts().repository_locks.lock(&self.key)
    }

    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.folder.join("blobs").join(digest.hex())
    }

    /// Opens a blob that may be read through this repository.
    pub fn blob(&self, digest: &Digest) -> Result<Option<Blob>, Error> {
        if !self.has_blob(digest) {
            return Ok(None);
        }
        let path = self.parts().blobs.path(digest);
        match File::open(&path) {
            Ok(file) => {
                let size = file.metadata().map_err(Error::io("look at", &path))?.len();
                Ok(Some(Blob { file, size }))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("open", &path)(error)),
        }
    }

    /// Returns the size of a blob that may be read through this repository.
    pub fn blob_size(&self, digest: &Digest) -> Option<u64> {
        if self.has_blob(digest) { self.parts().blobs.size(digest) } else { None }
    }

    fn has_blob(&self, digest: &Digest) -> bool {
        self.blob_path(digest).exists()
    }

    /// Records a blob that `lease` holds.
    pub fn add_blob(
        &self,
        digest: &Digest,
        size: u64,
        at: i64,
        _lease: &Lease,
    ) -> Result<(), Error> {
        // Without the lock, the empty folder could be removed before the blob is in it.
        let _turn = self.lock();
        self.make()?;
        let note = manifest::write("note", &BlobNote { size, at })?;
        disk::write(&self.blob_path(digest), &self.parts().scratch(), &note)
    }

    /// Adds a blob that may be read in another repository. Returns `None` if it may not be.
    pub fn mount(&self, from: &Self, digest: &Digest, at: i64) -> Result<Option<u64>, Error> {
        let lease = self.parts().leases.take();
        lease.hold(Held::Blob(*digest));
        let Some(size) = from.blob_size(digest) else { return Ok(None) };
        self.add_blob(digest, size, at, &lease)?;
        Ok(Some(size))
    }

    /// Returns every blob and manifest with its size, to count what a workspace stores.
    pub fn contents(&self) -> Result<Vec<(Digest, u64)>, Error> {
        let parts = self.parts();
        let found: HashSet<Digest> = self.blobs()?.into_iter().chain(self.digests()?).collect();
        let sized = |digest: Digest| parts.blobs.size(&digest).map(|size| (digest, size));
        Ok(found.into_iter().filter_map(sized).collect())
    }

    fn blobs(&self) -> Result<Vec<Digest>, Error> {
        self.listed("blobs")
    }

    /// Returns the digests of all manifests.
    pub fn digests(&self) -> Result<Vec<Digest>, Error> {
        self.listed("manifests")
    }

    fn listed(&self, what: &str) -> Result<Vec<Digest>, Error> {
        let folder = self.folder.join(what);
        if folder.exists() { disk::digests_in(&folder) } else { Ok(Vec::new()) }
    }

    fn make(&self) -> Result<(), Error> {
        let name = self.folder.join("name");
        if name.exists() {
            return Ok(());
        }
        for part in ["blobs", "manifests", "subjects"] {
            disk::make_folder(&self.folder.join(part))?;
        }
        disk::write(&name, &self.parts().scratch(), self.name.as_bytes())
    }
}

impl Parts {
    /// Adds the blobs that all repositories need.
    pub(crate) fn add_repositories(
        store: &Store,
        blobs: &mut HashSet<Digest>,
    ) -> Result<(), Error> {
        for repository in store.repositories()? {
            blobs.extend(repository.blobs()?);
            blobs.extend(repository.digests()?);
        }
        Ok(())
    }
}
