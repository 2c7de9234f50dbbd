//! Errors, one for each decision that a caller can take.

use std::fmt;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the settings of the object service cannot be used")]
    Settings(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It was changed, or never stored completely. None of its bytes were passed on.
    #[error("the object `{0}` is not what was stored under this name")]
    Corrupt(String),
    #[error("the object `{0}` is gone")]
    Gone(String),
    /// Trying again later may help. The details are kept out of the message, since they name the
    /// service's address and account, and tenants are told why their work failed.
    #[error("the object service failed")]
    Service(Details),
    #[error("the program ends")]
    Interrupted,
}

/// What the service or its client said, for whoever runs the server.
#[derive(Debug)]
pub struct Details(String);

impl fmt::Display for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error {
    /// Wraps a failure of the service, and logs what the message leaves out.
    pub(crate) fn service(error: &dyn std::error::Error) -> Self {
        let details = Details(error.to_string());
        tracing::warn!(%details, "a request to the object service failed");
        Self::Service(details)
    }
}

impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { path, .. } => Self::Gone(path),
            other => Self::service(&other),
        }
    }
}
