//! Streams of bytes in an S3 service, addressed by their content.
//!
//! ```text
//! PREFIX/FOLDER/DIGEST   a part of a stream, or the list of its parts
//! ```
//!
//! A stream is cut into parts of [`PART_BYTES`]. Each part is an object that is named after the
//! SHA-256 of its content and written by a conditional put, so an existing object is not written
//! again and nothing is ever overwritten. The list of the parts is such an object too, and its
//! digest is the address of the stream. So memory is bounded however long a stream is, and a part
//! is checked against its digest before any of its bytes are passed on.
//!
//! Folders share nothing, even if they hold the same content, so that a put does not reveal what
//! someone else has stored.

mod digest;
mod download;
mod error;
mod settings;
mod upload;

pub use digest::Digest;
pub use download::Download;
pub use error::{Details, Error};
pub use settings::{Secret, Settings};
pub use upload::Upload;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::{Path, PathPart};
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutResult};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Size of a part, and so of most requests. Small enough that several fit into memory for each
/// stream, large enough that few requests are needed.
pub const PART_BYTES: usize = 8 << 20;
/// Largest list of parts, more than [`Upload`] makes for a stream of many terabytes.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// Pause before a put is repeated; it doubles with each attempt, this often at most.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_DOUBLED_MAX: u32 = 7;

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Limits the requests that carry parts, for all streams together.
    slots: Arc<Semaphore>,
    /// How often a put whose connection broke is repeated.
    retries: u32,
}

/// The place of a stream: one or more names, each made of letters, digits, hyphens and underscores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Folder(Vec<String>);

/// A stream that was stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The digest of the list of its parts.
    pub digest: Digest,
    pub size_bytes: u64,
}

/// The list of a stream's parts, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    digest: Digest,
    size_bytes: u64,
}

/// Leaves out the store, which would show its credentials.
impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Folder {
    /// Creates a folder. Returns `None` if there is no name, or one has other characters or is
    /// empty.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let good = |name: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            !name.is_empty() && name.bytes().all(fits)
        };
        let names: Vec<_> = names.into_iter().map(str::to_owned).collect();
        (!names.is_empty() && names.iter().all(|name| good(name))).then_some(Self(names))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl Objects {
    /// Opens the service. No request is made yet, so a service that is down does not prevent a
    /// start.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let store = settings.connect().map_err(|error| Error::Settings(Box::new(error)))?;
        let retries = u32::try_from(settings.retries).unwrap_or(u32::MAX);
        let objects = Self::new(Arc::new(store), &settings.prefix, settings.parallel);
        Ok(Self { retries, ..objects })
    }

    /// Uses any store.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str, parallel: usize) -> Self {
        let slots = Arc::new(Semaphore::new(parallel.max(1)));
        Self { store, prefix: Path::from(prefix), slots, retries: 0 }
    }

    /// Returns the same service with another name added to the prefix.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        Self { prefix: self.prefix.clone().join(PathPart::from(name)), ..self.clone() }
    }

    /// Begins to store a stream. Must not be written to from a thread of the runtime.
    pub fn put(&self, folder: Folder, runtime: Handle) -> Upload {
        Upload::new(self.clone(), folder, runtime)
    }

    /// Begins to read the stream whose list of parts has this digest. Must not be read from on a thread of the runtime.
    pub async fn get(
        &self,
        folder: Folder,
        digest: &Digest,
        runtime: Handle,
    ) -> Result<Download, Error> {
        let list = self.read(&folder, digest, LIST_BYTES_MAX).await?;
        let Parts { parts } = serde_json::from_slice(&list)
            .map_err(|_| Error::Corrupt(self.path(&folder, digest).to_string()))?;
        Ok(Download::new(self.clone(), folder, parts, runtime))
    }

    /// Removes everything in a folder. Succeeds if there is no such folder.
    pub async fn remove(&self, folder: &Folder) -> Result<(), Error> {
        let found = self.store.list(Some(&self.folder(folder)));
        let paths = found.map_ok(|object| object.location).boxed();
        let removed = self.store.delete_stream(paths);
        let gone = |error: object_store::Error| match error {
            object_store::Error::NotFound { .. } => Ok(()),
            other => Err(Error::from(other)),
        };
        removed.map(|done| done.map(drop).or_else(gone)).try_collect::<()>().await
    }

    /// Lists all folders that have two names.
    pub async fn folders(&self) -> Result<Vec<Folder>, Error> {
        let mut found = Vec::new();
        let above = self.store.list_with_delimiter(Some(&self.prefix)).await?;
        for one in above.common_prefixes {
            for path in self.store.list_with_delimiter(Some(&one)).await?.common_prefixes {
                let names: Vec<_> = path.parts().map(|part| part.as_ref().to_owned()).collect();
                // Anything else under the prefix is not ours.
                if let [.., above, name] = names.as_slice() {
                    found.extend(Folder::new([above.as_str(), name.as_str()]));
                }
            }
        }
        Ok(found)
    }

    /// Stores a part, unless it is already there.
    async fn write(&self, folder: &Folder, content: Bytes) -> Result<Part, Error> {
        let part = Part { digest: Digest::of(&content), size_bytes: content.len() as u64 };
        let path = self.path(folder, &part.digest);
        match self.put_new(&path, content).await {
            Ok(_) => Ok(part),
            // An earlier attempt stored it, and its name says what it should hold. If its content
            // were damaged, that would only be noticed when it is read.
            Err(object_store::Error::AlreadyExists { .. }) => {
                let there = self.store.head(&path).await?;
                match there.size == part.size_bytes {
                    true => Ok(part),
                    false => Err(Error::Corrupt(path.to_string())),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Puts an object that must not exist. The client below repeats no such put whose connection
    /// broke, because it may have been carried out. Here that does no harm: the name says what the
    /// object holds.
    async fn put_new(&self, path: &Path, content: Bytes) -> object_store::Result<PutResult> {
        let once = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let mut tries = 0;
        loop {
            match self.store.put_opts(path, content.clone().into(), once.clone()).await {
                Err(error) if tries < self.retries && is_cut_off(&error) => {
                    tracing::info!(%error, tries, "a put to the object service is repeated");
                    tokio::time::sleep(PAUSE_FIRST * (1 << tries.min(PAUSE_DOUBLED_MAX))).await;
                    tries += 1;
                }
                put => return put,
            }
        }
    }

    /// Reads a part and checks it against its digest.
    async fn read(&self, folder: &Folder, digest: &Digest, bytes_max: u64) -> Result<Bytes, Error> {
        let path = self.path(folder, digest);
        let found = self.store.get(&path).await?;
        if found.meta.size > bytes_max {
            return Err(Error::Corrupt(path.to_string()));
        }
        let content = found.bytes().await?;
        match Digest::of(&content) == *digest {
            true => Ok(content),
            false => Err(Error::Corrupt(path.to_string())),
        }
    }

    fn folder(&self, folder: &Folder) -> Path {
        folder.names().fold(self.prefix.clone(), |path, name| path.join(PathPart::from(name)))
    }

    fn path(&self, folder: &Folder, digest: &Digest) -> Path {
        self.folder(folder).join(PathPart::from(digest.as_str()))
    }
}

/// Returns whether a request may have reached the service, and no answer came.
fn is_cut_off(error: &object_store::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return matches!(error.kind(), HttpErrorKind::Timeout | HttpErrorKind::Interrupted);
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests;
