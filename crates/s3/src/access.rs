//! The traits through which this crate asks for keys and buckets.

use futures_util::future::BoxFuture;
use rustix::fd::OwnedFd;
use std::fmt;
use std::sync::Arc;
use types::Timestamp;
use zeroize::Zeroizing;

/// Looks up keys.
pub trait Access: Send + Sync + 'static {
    fn find_key<'a>(&'a self, key_id: &'a str) -> BoxFuture<'a, Result<Arc<dyn Caller>, Refused>>;
}

/// The owner of a key, for one request. Only the secret is asked for before the signature is
/// verified, because many people know the ids of keys.
pub trait Caller: Send + Sync + 'static {
    fn secret(&self) -> &Secret;

    /// Admits the request. Returns the owner whose share of all requests it counts against; all
    /// keys of an owner share it.
    fn enter(&self) -> Result<String, Refused>;

    /// Completes when a key that is valid now becomes invalid. Whatever was begun with the key is
    /// then ended.
    fn outlived(&self) -> BoxFuture<'static, ()>;

    fn open<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Bucket, Refused>>;

    /// Lists the buckets that the key may open.
    fn list(&self) -> BoxFuture<'_, Result<Vec<BucketEntry>, Refused>>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketEntry {
    pub name: String,
    pub created_at: Timestamp,
}

/// The secret of a key. It is never printed, and wiped on drop.
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

/// A bucket and the files behind it.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Identifies the files: the same for all requests to them, and different for all others.
    pub id: String,
    /// The folder, which is also mounted in sandboxes.
    pub files: Arc<OwnedFd>,
    /// The owner of new files: the user that is root within sandboxes.
    pub owner: Owner,
    pub may_write: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
}

/// Why a key or a bucket is not available.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("there is no such key")]
    UnknownKey,
    /// The key exists but cannot be used for this. Callers see the reason.
    #[error("{0}")]
    UnusableKey(String),
    #[error("there is no such bucket")]
    NoBucket,
    #[error("{0}")]
    Denied(String),
    /// Another server has the bucket; callers are told which.
    #[error("{0}")]
    Elsewhere(String),
    /// Trying again may help.
    #[error("{0}")]
    Unavailable(String),
    /// Callers are told only if the kind of the error is that there is no space left.
    #[error("failed to look up a key or a bucket")]
    Broken(#[source] std::io::Error),
}
