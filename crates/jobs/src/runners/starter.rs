//! What runners need of the queue.

use super::rules::Progress;
use store::Tx;
use types::ids::{ExecutionId, ResourceId};
use types::parts::Sensitive;

/// Starts the executions that runners are, and says how far they are.
pub trait Starter: Send + Sync + 'static {
    /// Begins an execution of a job with one task and these variables, which are secret. It is
    /// never retried after its program has run: what the variables hold serves once.
    fn start(
        &self,
        tx: &mut Tx<'_>,
        job: &ResourceId,
        variables: &[(&str, Sensitive<String>)],
    ) -> Result<ExecutionId, StartError>;

    /// Ends an execution whose runner is gone. It may have ended.
    fn cancel(&self, tx: &mut Tx<'_>, execution: &ExecutionId) -> Result<(), store::Error>;

    /// How far an execution is. One that is not known has ended.
    fn progress(&self, tx: &mut Tx<'_>, execution: &ExecutionId) -> Result<Progress, store::Error>;
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The job cannot be run as it is; the text says why.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] store::Error),
}
