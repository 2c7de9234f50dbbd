//! What the control plane asks of the store behind the workspaces' own registry, which keeps blobs,
//! and manifests as they were pushed. Tags are rows ([`crate::kinds::image`]).

use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::time::Duration;
use std::{fmt, fs, io};
use tokio::sync::mpsc;
use types::ids::WorkspaceId;
use types::own_image::OwnRepository;

/// A repository of a workspace. Content is read and written only through the repository that has
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    pub workspace: WorkspaceId,
    pub repository: OwnRepository,
}

/// Written the way the content is stored under it.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.workspace, self.repository)
    }
}

impl Place {
    /// Parses what [`fmt::Display`] wrote. `None` for text that no release has written.
    pub fn known(text: &str) -> Option<Self> {
        let (workspace, repository) = text.split_once('/')?;
        Some(Self {
            workspace: WorkspaceId::known(workspace),
            repository: repository.parse().ok()?,
        })
    }
}

/// The content of repositories. Digests are plain text here; the implementation checks them.
/// Content that is not in the given repository does not exist for the caller, even if another one
/// has it.
pub trait Registry: Send + Sync + 'static {
    fn limits(&self) -> RegistryLimits;

    /// Takes a turn at a repository: writing what it must keep, and removing content from it,
    /// exclude each other until the returned value is dropped.
    fn turn<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Box<dyn Send + Sync>>;

    /// Begins an upload in pieces, and returns its name.
    fn begin_upload(&self, place: Place) -> BoxFuture<'_, Result<String, RegistryFault>>;

    /// Returns how many bytes of an upload have arrived.
    fn uploaded(&self, place: Place, upload: String) -> BoxFuture<'_, Result<u64, RegistryFault>>;

    /// Appends bytes to an upload, which must have `from` bytes by now if that is given. Returns
    /// how many bytes it has. If the stream breaks off, what has arrived is kept.
    fn append(
        &self,
        place: Place,
        upload: String,
        from: Option<u64>,
        bytes: mpsc::Receiver<io::Result<Bytes>>,
    ) -> BoxFuture<'_, Result<u64, RegistryFault>>;

    /// Turns an upload into a blob if it has this digest; otherwise the upload is removed.
    fn finish_upload(
        &self,
        place: Place,
        upload: String,
        digest: String,
    ) -> BoxFuture<'_, Result<u64, RegistryFault>>;

    fn cancel_upload(
        &self,
        place: Place,
        upload: String,
    ) -> BoxFuture<'_, Result<(), RegistryFault>>;

    /// Takes over a blob from another repository that the caller may read. Returns `false` if it is
    /// not there.
    fn mount(
        &self,
        place: Place,
        from: Place,
        digest: String,
    ) -> BoxFuture<'_, Result<bool, RegistryFault>>;

    fn blob(
        &self,
        place: Place,
        digest: String,
    ) -> BoxFuture<'_, Result<BlobContent, RegistryFault>>;

    fn remove_blob(&self, place: Place, digest: String)
    -> BoxFuture<'_, Result<(), RegistryFault>>;

    /// Stores a manifest whose parts are all there. `media_type` is the type it was sent with,
    /// `digest` the one it must have.
    fn put_manifest(
        &self,
        place: Place,
        media_type: Option<String>,
        digest: Option<String>,
        bytes: Bytes,
    ) -> BoxFuture<'_, Result<TakenManifest, RegistryFault>>;

    fn manifest(
        &self,
        place: Place,
        digest: String,
    ) -> BoxFuture<'_, Result<ManifestContent, RegistryFault>>;

    /// Lists the manifests that refer to `subject`, ordered by digest, beginning after `after`.
    /// Also returns whether there are more.
    fn referrers(
        &self,
        place: Place,
        subject: String,
        after: Option<String>,
    ) -> BoxFuture<'_, Result<(Vec<Referrer>, bool), RegistryFault>>;

    /// Makes an image part of a repository although it came to the machine in another way: by a
    /// build, or from another registry. The caller has made sure that the workspace may have the
    /// image. Returns its size in bytes as stored.
    fn adopt(&self, place: Place, digest: String) -> BoxFuture<'_, Result<u64, RegistryFault>>;

    /// Removes from a repository what is not to be kept. The workspace's share is free again once
    /// the disk is. Returns the manifests that are still there.
    fn prune(&self, place: Place, keep: Keep) -> BoxFuture<'_, Result<Vec<String>, RegistryFault>>;

    /// Lists all repositories that have content or uploads.
    fn places(&self) -> BoxFuture<'_, Result<Vec<Place>, RegistryFault>>;

    /// Frees the disk space of what was removed, soon: many calls at once cause a single pass.
    fn free_soon(&self) -> BoxFuture<'_, Result<(), RegistryFault>>;

    /// Removes abandoned uploads, and frees the disk space of what was removed.
    fn tidy(&self) -> BoxFuture<'_, Result<(), RegistryFault>>;
}

#[derive(Debug, Clone, Copy)]
pub struct RegistryLimits {
    pub blob_bytes_max: u64,
    pub manifest_bytes_max: usize,
    /// How long a request body may pause.
    pub stall: Duration,
}

/// A blob, open for reading.
#[derive(Debug)]
pub struct BlobContent {
    pub file: fs::File,
    pub size: u64,
}

#[derive(Debug, Clone)]
pub struct ManifestContent {
    pub media_type: String,
    pub bytes: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenManifest {
    pub digest: String,
    /// Size of everything that it needs as stored, counting each part once.
    pub size_bytes: u64,
    pub subject: Option<String>,
}

/// A manifest that refers to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referrer {
    pub digest: String,
    pub media_type: String,
    pub size: u64,
    pub artifact_type: Option<String>,
    pub annotations: BTreeMap<String, String>,
}

/// What stays in a repository when it is pruned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keep {
    /// Manifests to keep, with what they need and what refers to them.
    pub manifests: Vec<String>,
    /// Manifests to remove now if nothing that stays needs them. Anything else that is not kept is
    /// removed once it is old.
    pub except: Vec<String>,
    /// Whether the workspace was deleted: then nothing else stays, however new it is, and no upload.
    pub is_over: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RegistryFault {
    #[error("this is no digest that is understood: `sha256:` and 64 lower-case digits are")]
    BadDigest,
    #[error("the digest is not that of the content")]
    WrongDigest,
    #[error("the repository has no such blob")]
    NoBlob,
    #[error("the repository has no such manifest")]
    NoManifest,
    /// A tag of the repository names it, but another machine has its content.
    #[error("its content is on another machine of this installation; ask the server that took it")]
    Elsewhere,
    #[error("there is no such upload, or it was given up")]
    NoUpload,
    #[error("the upload has {0} bytes; the next one has to follow")]
    OutOfOrder(u64),
    #[error("another request writes to this upload")]
    Busy,
    #[error("the body ended before its end")]
    Cut,
    #[error("at most {0} bytes are taken")]
    TooLarge(u64),
    /// A part of a manifest is not in the repository.
    #[error("the repository does not have {0}; push it first")]
    NoPart(String),
    #[error("{0} has another size than the manifest says")]
    WrongSize(String),
    #[error("{0}")]
    Malformed(String),
    #[error("a manifest of the repository needs it; delete that first")]
    Needed,
    #[error("{0}; finish or cancel some first, or try again later")]
    Crowded(admission::Refused),
    #[error("{0}; delete some images first")]
    Full(admission::Refused),
    /// The disk itself, whatever the shares of it.
    #[error("the disk of this machine is full")]
    DiskFull,
    #[error("the registry failed: {0}")]
    Broken(String),
}
