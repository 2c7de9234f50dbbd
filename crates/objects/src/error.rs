//! What a caller can decide by.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the settings of the object service cannot be used")]
    Settings(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It was changed, or never stored whole. No byte of it was handed on.
    #[error("the object `{0}` is not what was stored under this name")]
    Corrupt(String),
    #[error("the object `{0}` is gone")]
    Gone(String),
    /// It may be tried again later.
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
