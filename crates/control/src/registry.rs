//! What the management side asks of whoever keeps the content of the workspaces' own registry: blobs,
//! and manifests as they were pushed. Tags are rows ([`crate::kinds::image`]).

use crate::machine::Wait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use std::{fmt, fs, io};
use tokio::sync::mpsc;
use types::ids::WorkspaceId;
use types::own_image::OwnRepository;

/// A repository of a workspace: content is read and written through one, and through no other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    pub workspace: WorkspaceId,
    pub repository: OwnRepository,
}

/// As the content is kept under it.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.workspace, self.repository)
    }
}

impl Place {
    /// Reads back what is displayed. `None` for what no release has written.
    pub fn known(text: &str) -> Option<Self> {
        let (workspace, repository) = text.split_once('/')?;
        Some(Self {
            workspace: WorkspaceId::known(workspace),
            repository: repository.parse().ok()?,
        })
    }
}

/// Digests are texts here, and checked by whoever has the content. What is not in the repository
/// does not exist, whoever else has it.
pub trait Registry: Send + Sync + 'static {
    fn limits(&self) -> RegistryLimits;

    /// Whoever writes which content a repository must keep and whoever takes content out of it wait
    /// for each other, until the answer is dropped.
    fn turn<'a>(&'a self, place: &'a Place) -> Wait<'a, Box<dyn Send + Sync>>;

    /// Begins an upload in pieces; answers its name.
    fn begin_upload(&self, place: Place) -> Wait<'_, Result<String, RegistryFault>>;

    /// How many bytes of an upload are there.
    fn uploaded(&self, place: Place, upload: String) -> Wait<'_, Result<u64, RegistryFault>>;

    /// Appends what comes to an upload, which must have `from` bytes by now if that is said. Answers
    /// how many bytes are there. What has come stays when the rest does not.
    fn append(
        &self,
        place: Place,
        upload: String,
        from: Option<u64>,
        bytes: mpsc::Receiver<io::Result<Bytes>>,
    ) -> Wait<'_, Result<u64, RegistryFault>>;

    /// Makes a blob of what was uploaded, if it has this digest; else the upload is gone.
    fn finish_upload(
        &self,
        place: Place,
        upload: String,
        digest: String,
    ) -> Wait<'_, Result<u64, RegistryFault>>;

    fn cancel_upload(&self, place: Place, upload: String) -> Wait<'_, Result<(), RegistryFault>>;

    /// Takes a blob over from another repository of those that the caller may read. `false`: it is
    /// not there.
    fn mount(
        &self,
        place: Place,
        from: Place,
        digest: String,
    ) -> Wait<'_, Result<bool, RegistryFault>>;

    fn blob(&self, place: Place, digest: String) -> Wait<'_, Result<BlobContent, RegistryFault>>;

    fn remove_blob(&self, place: Place, digest: String) -> Wait<'_, Result<(), RegistryFault>>;

    /// Takes a manifest whose parts are all there. `media_type` is what came along with it, `digest`
    /// what it must have.
    fn put_manifest(
        &self,
        place: Place,
        media_type: Option<String>,
        digest: Option<String>,
        bytes: Bytes,
    ) -> Wait<'_, Result<TakenManifest, RegistryFault>>;

    fn manifest(
        &self,
        place: Place,
        digest: String,
    ) -> Wait<'_, Result<ManifestContent, RegistryFault>>;

    /// Manifests that speak of another one, in the order of their digests, after one of them. Says
    /// whether there are more.
    fn referrers(
        &self,
        place: Place,
        subject: String,
        after: Option<String>,
    ) -> Wait<'_, Result<(Vec<Referrer>, bool), RegistryFault>>;

    /// Makes an image part of a repository that came to the machine in another way: by a build, or
    /// from another registry. Whoever asks has been given the image. Answers its bytes as they are
    /// stored.
    fn adopt(&self, place: Place, digest: String) -> Wait<'_, Result<u64, RegistryFault>>;

    /// Takes out of a repository what is not kept. The room is free when it is free on disk. Answers
    /// the manifests that are still there.
    fn prune(&self, place: Place, keep: Keep) -> Wait<'_, Result<Vec<String>, RegistryFault>>;

    /// All repositories that have content.
    fn places(&self) -> Wait<'_, Result<Vec<Place>, RegistryFault>>;

    /// Frees the disk of what was taken out, soon: many who ask at once cause one look.
    fn free_soon(&self) -> Wait<'_, Result<(), RegistryFault>>;

    /// Forgets uploads that nobody goes on with, and frees the disk of what was taken out.
    fn tidy(&self) -> Wait<'_, Result<(), RegistryFault>>;
}

#[derive(Debug, Clone, Copy)]
pub struct RegistryLimits {
    pub blob_bytes_max: u64,
    pub manifest_bytes_max: usize,
    /// How long a body may be silent.
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
    /// All that it needs as it is stored, each part once.
    pub size_bytes: u64,
    pub subject: Option<String>,
}

/// A manifest that speaks of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referrer {
    pub digest: String,
    pub media_type: String,
    pub size: u64,
    pub artifact_type: Option<String>,
    pub annotations: BTreeMap<String, String>,
}

/// What stays in a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keep {
    /// Manifests, with what they need and what speaks of them.
    pub manifests: Vec<String>,
    /// Manifests that go now if nothing that stays needs them. What else is not kept goes when it
    /// is old.
    pub except: Vec<String>,
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
    /// A tag of the repository means it, and another machine took its content.
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
    #[error("the registry failed: {0}")]
    Broken(String),
}
