//! Signals that ask this program to stop.

use crate::error::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives Ctrl-C, and the signals sent at shutdown or when a terminal is closed.
pub(crate) struct Ends {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Ends {
    pub(crate) fn new() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(Error::io("listen for signals"));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
