//! What this crate asks of whoever knows keys and buckets.

use rustix::fd::OwnedFd;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use types::Timestamp;
use zeroize::Zeroizing;

pub type Wait<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers who a key is and what it may open. Nobody is asked for a bucket before the signature of
/// the request was found to be right.
pub trait Access: Send + Sync + 'static {
    /// The secret beside an access key id.
    fn find_key<'a>(&'a self, key_id: &'a str) -> Wait<'a, Result<Secret, Refused>>;

    /// Ends when a key that is good now is no longer: what it has begun ends with it.
    fn outlived(&self, key_id: &str, secret: &Secret) -> Wait<'static, ()>;

    fn open<'a>(&'a self, key_id: &'a str, bucket: &'a str) -> Wait<'a, Result<Bucket, Refused>>;

    /// The buckets that a key may open.
    fn list<'a>(&'a self, key_id: &'a str) -> Wait<'a, Result<Vec<BucketEntry>, Refused>>;
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
    /// A folder of the same mount for what is not whole yet. Where no such folder lies outside of
    /// what sandboxes see, [`crate::hidden_folder`] makes one inside.
    pub hidden: Arc<OwnedFd>,
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
