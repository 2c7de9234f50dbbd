//! Why the first process of an instance could not be started.

use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("the new process failed to {what}")]
    Step { what: String, source: Errno },
    #[error("failed to start a process")]
    Clone(#[source] Errno),
    #[error("the new process has ended without saying why")]
    Ended,
    #[error("a text for the new process contains a zero byte")]
    ZeroByte(#[from] std::ffi::NulError),
    /// The external program that starts instances failed.
    #[error("it failed to {what} the instance, and said: {said}")]
    Tool { what: &'static str, said: String },
    #[error("failed to prepare the new process")]
    Prepare(#[from] Errno),
}

impl LaunchError {
    /// Returns true if another try may well work: the new process was killed, or the external
    /// program lost the process that it had just started, before that one could say why. This
    /// happens to `runc` once in a thousand starts, with nothing wrong.
    pub(crate) fn is_by_chance(&self) -> bool {
        match self {
            Self::Ended => true,
            Self::Tool { what: "create", said } => {
                said.contains("read init-p: connection reset by peer")
            }
            _ => false,
        }
    }
}
