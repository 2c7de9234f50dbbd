//! Errors, one for each decision that a caller can take.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the settings of the object service cannot be used")]
    Settings(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It was changed, or never stored completely. None of its bytes were passed on.
    #[error("the object `{0}` is not what was stored under this name")]
    Corrupt(String),
    #[error("the object `{0}` is gone")]
    Gone(String),
    /// Trying again later may help.
    #[error("the object service failed")]
    Service(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the program ends")]
    Interrupted,
}

impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { path, .. } => Self::Gone(path),
            other => Self::Service(Box::new(other)),
        }
    }
}
