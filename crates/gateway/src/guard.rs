//! Who may come in. The one who knows the credentials implements this.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;
use types::KindName;
use types::models::ModelRight;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers from memory: it is asked on every request that shows credentials.
pub trait Guard: Send + Sync + 'static {
    /// Whether the caller may use workloads of a kind in a workspace. One that does not exist is
    /// refused like one that the caller has no right to.
    fn admit<'a>(
        &'a self,
        token: &'a str,
        workspace: &'a str,
        kind: KindName,
    ) -> BoxFuture<'a, Result<Caller, Refused>>;
    /// Notified of each change after which a caller may be refused who was admitted before.
    fn changes(&self) -> watch::Receiver<()>;
}

/// What is known of a caller. The workload is told everything but the holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Whose connections are counted together: the key, or the person behind a token.
    pub holder: String,
    pub subject_id: String,
    pub subject_type: &'static str,
    pub auth_method: &'static str,
    /// Set by keys that are for models alone.
    pub models: Option<Arc<ModelRight>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("these credentials are not known")]
    Unknown,
    #[error("these credentials have expired")]
    Expired,
    /// Known credentials without the right. The text is a sentence for the caller.
    #[error("{why}")]
    Forbidden { why: String },
    #[error("too many requests")]
    TooMany { retry_after_s: u64 },
    /// The credentials could not be looked up.
    #[error("the credentials could not be checked")]
    Broken,
}
