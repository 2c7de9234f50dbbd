//! Why a provider cannot be reached, or its answer does not arrive.

use http::Uri;
use std::io;
use std::time::Duration;

/// Why there is no connection. The texts are for the user who gave the address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreachable {
    #[error("{0} is no address of http or https")]
    BadAddress(Uri),
    #[error("{0} is not on the internet, and `models.inside` does not list it")]
    Inside(String),
    #[error("{0} did not answer in time")]
    TooSlow(String),
    #[error("{host} cannot be reached: {error}")]
    Failed { host: String, error: io::Error },
}

/// Why a provider gave no answer, or not all of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("the provider ended the connection: {}", types::chain(.0))]
    Cut(#[source] hyper::Error),
    #[error("the provider was silent for {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("the provider took longer than the {} seconds that an answer may", .0.as_secs())]
    OutOfTime(Duration),
}

impl Broken {
    pub(crate) const fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::Silent(_) | Self::OutOfTime(_) | Self::Unreachable(Unreachable::TooSlow(_))
        )
    }
}

/// Why an answer was not collected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Uncollected {
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error(transparent)]
    NoRoom(#[from] admission::Refused),
}
