//! What this crate asks of whoever knows keys and buckets.

use rustix::fd::OwnedFd;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use types::Timestamp;
use zeroize::Zeroizing;

pub type Wait<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers whose a key is.
pub trait Access: Send + Sync + 'static {
    fn find_key<'a>(&'a self, key_id: &'a str) -> Wait<'a, Result<Arc<dyn Caller>, Refused>>;
}

/// Whoever has a key, for one request. Only the secret is asked for before the signature was found to
/// be right: ids of keys are known to many.
pub trait Caller: Send + Sync + 'static {
    fn secret(&self) -> &Secret;

    /// Lets the request in. Answers whose share of all requests it is one of: all keys of an owner
    /// have one share together.
    fn enter(&self) -> Result<String, Refused>;

    /// Ends when a key that is good now is no longer: what it has begun ends with it.
    fn outlived(&self) -> Wait<'static, ()>;

    fn open<'a>(&'a self, bucket: &'a str) -> Wait<'a, Result<Bucket, Refused>>;

    /// The buckets that the key may open.
    fn list(&self) -> Wait<'_, Result<Vec<BucketEntry>, Refused>>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketEntry {
    pub name: String,
    pub created_at: Timestamp,
}

/// Not shown, and wiped when it is dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The files behind a bucket.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// The same for each request to the same files, and for no others.
    pub id: String,
    /// The folder that is mounted in sandboxes.
    pub files: Arc<OwnedFd>,
    /// Whose new files are: the root user that sandboxes see.
    pub owner: Owner,
    pub may_write: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
}

/// Why a key or a bucket is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("there is no such key")]
    UnknownKey,
    /// There is one, and it cannot be used for this; callers read why.
    #[error("{0}")]
    UnusableKey(String),
    #[error("there is no such bucket")]
    NoBucket,
    #[error("{0}")]
    Denied(String),
    /// May be asked for again.
    #[error("{0}")]
    Unavailable(String),
    #[error("failed to look up a key or a bucket")]
    Broken(#[source] std::io::Error),
}
