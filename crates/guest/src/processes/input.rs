//! The standard input of a process, where its caller asked to write to it.

use crate::http::Error;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe::Sender;
use tokio::time::timeout;

/// How long a process may leave its input unread while somebody writes, and how long a request
/// waits for those that write before it.
const UNREAD_MAX: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Input {
    /// `None` if the process has none, or if it is closed.
    pipe: Mutex<Option<Arc<Sender>>>,
    /// Held while one request writes, so that the bytes of others do not come between.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum NotWritten {
    #[error("the stdin of the process is closed")]
    Closed,
    #[error("the process has not read its stdin for {} s; {written} bytes were written", UNREAD_MAX.as_secs())]
    Unread { written: usize },
    #[error("failed to write to the process: {0}")]
    Failed(#[source] io::Error),
}

impl From<NotWritten> for Error {
    fn from(error: NotWritten) -> Self {
        match error {
            NotWritten::Closed => Self::Conflict(error.to_string()),
            NotWritten::Unread { .. } => Self::Unavailable(error.to_string()),
            NotWritten::Failed(_) => Self::Internal(error.to_string()),
        }
    }
}

impl Input {
    /// Takes the pipe of a run that begins.
    pub(super) fn open(&self, pipe: Option<Sender>) {
        *self.pipe.lock() = pipe.map(Arc::new);
    }

    pub(super) fn pipe(&self) -> Option<Arc<Sender>> {
        self.pipe.lock().clone()
    }

    /// Closes it without waiting: nobody is left to read.
    pub(super) fn end(&self) {
        self.open(None);
    }

    /// Closes it after what is being written. The process then reads the end.
    pub(super) async fn close(&self) {
        // If the process does not read, the end is all that can still be told.
        let _turn = timeout(UNREAD_MAX, self.turn.lock()).await;
        self.end();
    }

    /// Writes all of the bytes, however little of them the pipe takes at once.
    pub(super) async fn write(&self, bytes: &[u8]) -> Result<(), NotWritten> {
        let turn = timeout(UNREAD_MAX, self.turn.lock()).await;
        let _turn = turn.map_err(|_| NotWritten::Unread { written: 0 })?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let pipe = self.pipe().ok_or(NotWritten::Closed)?;
            let written = bytes.len() - rest.len();
            let writable = timeout(UNREAD_MAX, pipe.writable()).await;
            writable.map_err(|_| NotWritten::Unread { written })?.map_err(NotWritten::Failed)?;
            match pipe.try_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {
                    self.end();
                    return Err(NotWritten::Closed);
                }
                Err(error) => return Err(NotWritten::Failed(error)),
            }
        }
        Ok(())
    }
}
