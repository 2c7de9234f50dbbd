//! Why an image could not be pulled.

use crate::error::Error;

#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error("the registry does not let us have the image")]
    Unauthorized,
    #[error("the registry does not have the image")]
    NotFound,
    #[error("the registry has too many requests")]
    Busy,
    #[error("the registry answers with status {0}")]
    Registry(u16),
    #[error("the registry names an address that we do not go to")]
    Address,
    #[error("the registry was silent for too long")]
    Stalled,
    #[error("the registry did not send the whole image in time")]
    Slow,
    #[error("the download ended before its end")]
    Cut,
    #[error("the registry cannot be reached")]
    Network(#[source] reqwest::Error),
    #[error(transparent)]
    Store(#[from] Error),
}

impl PullError {
    /// Drops the URL, because URLs of downloads can contain signatures that nobody else should
    /// read.
    pub(super) fn network(error: reqwest::Error) -> Self {
        Self::Network(error.without_url())
    }

    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Stalled | Self::Cut | Self::Network(_))
    }
}
