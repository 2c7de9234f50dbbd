//! Why the body of an answer ends early.

use crate::hold::End;
use crate::wire::ReadError;

/// Why an answer ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the workload closed the connection before the end of its answer")]
    Broken(#[source] hyper::Error),
    #[error("the workload sent nothing for too long")]
    Silent,
    #[error("the provider's answer ended before its end")]
    Cut,
    #[error("the right to the answer ended before it did")]
    Revoked,
    #[error("the exchange took longer than one may")]
    OutOfTime,
}

impl From<ReadError> for BodyError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Broken(source) => Self::Broken(source),
            ReadError::Silent => Self::Silent,
        }
    }
}

impl From<End> for BodyError {
    fn from(end: End) -> Self {
        match end {
            End::Revoked(_) => Self::Revoked,
            End::OutOfTime(_) => Self::OutOfTime,
        }
    }
}
