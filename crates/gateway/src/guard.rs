//! Who may come in. Implemented by the part of the server that knows the credentials.

use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::watch;
use types::KindName;
use types::models::ModelRight;

/// Checks credentials. Must answer from memory: it is asked on every request that shows
/// credentials.
pub trait Guard: Send + Sync + 'static {
    /// Checks whether the caller may use workloads of a kind in a workspace. A workspace that does
    /// not exist is refused like one that the caller has no right to.
    fn admit<'a>(
        &'a self,
        token: &'a str,
        workspace: &'a str,
        kind: KindName,
    ) -> BoxFuture<'a, Result<Caller, Refused>>;
    /// Notified of each change after which a caller who was admitted before may be refused.
    fn changes(&self) -> watch::Receiver<()>;
}

/// What is known about a caller. The workload is told everything but the holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The key, or the person behind a token. Connections of one holder are counted together.
    pub holder: String,
    pub subject_id: String,
    pub subject_type: &'static str,
    pub auth_method: &'static str,
    /// Set for keys that may only use models.
    pub models: Option<Arc<ModelRight>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("these credentials are not known")]
    Unknown,
    #[error("these credentials have expired")]
    Expired,
    /// The credentials are known but lack the right. `why` is a sentence for the caller.
    #[error("{why}")]
    Forbidden { why: String },
    #[error("too many requests")]
    TooMany { retry_after_s: u64 },
    /// The credentials cannot be looked up now: what knows them is away or has too much to do.
    #[error("the credentials cannot be checked at the moment")]
    Away,
    /// The credentials could not be looked up.
    #[error("the credentials could not be checked")]
    Broken,
}

impl Refused {
    /// Returns whether the same credentials may be good although they were refused.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::Broken | Self::Away | Self::TooMany { .. } => true,
            Self::Unknown | Self::Expired | Self::Forbidden { .. } => false,
        }
    }
}
