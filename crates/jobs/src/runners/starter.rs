//! What runners need from the queue.

use super::rules::Progress;
use store::Tx;
use types::ids::{ExecutionId, ResourceId};
use types::parts::Sensitive;

/// Starts the executions that runners run in, and tells how far they have got.
pub trait Starter: Send + Sync + 'static {
    /// Starts an execution of a job with one task and these secret variables. It is never retried
    /// once its program has run, because what the variables hold can be used only once.
    fn start(
        &self,
        tx: &mut Tx<'_>,
        job: &ResourceId,
        variables: &[(&str, Sensitive<String>)],
    ) -> Result<ExecutionId, StartError>;

    /// Ends an execution whose runner is gone. It may already have ended.
    fn cancel(&self, tx: &mut Tx<'_>, execution: &ExecutionId) -> Result<(), store::Error>;

    /// Returns how far an execution has got. An unknown one counts as ended.
    fn progress(&self, tx: &mut Tx<'_>, execution: &ExecutionId) -> Result<Progress, store::Error>;
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The job cannot be run as it is. The text says why.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] store::Error),
}
