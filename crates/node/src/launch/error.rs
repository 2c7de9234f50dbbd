//! Why the first process of an instance could not be started.

use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("the new process failed to {what}")]
    Step { what: String, source: Errno },
    #[error("failed to start a process")]
    Clone(#[source] Errno),
    #[error("a text for the new process contains a zero byte")]
    ZeroByte(#[from] std::ffi::NulError),
    /// The external program that starts instances failed.
    #[error("it failed to {what} the instance, and said: {said}")]
    Tool { what: &'static str, said: String },
    #[error("failed to prepare the new process")]
    Prepare(#[from] Errno),
}
