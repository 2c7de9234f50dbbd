//! Shutdown: all processes are asked to end, and killed if they do not end within a grace period.
//!
//! The first process of a machine ignores every signal that it does not listen for, so this program
//! listens.

use crate::processes::{Asked as ToProcess, Processes};
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// Less than container engines usually allow.
const GRACE: Duration = Duration::from_secs(5);
/// Time to see the ends of killed processes.
const KILL_WAIT: Duration = Duration::from_secs(1);

pub(crate) struct Asked {
    terminate: Signal,
    interrupt: Signal,
}

impl Asked {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn wait(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

pub(crate) async fn run(processes: &Processes) {
    for (asked, wait) in [(ToProcess::Stop, GRACE), (ToProcess::Kill, KILL_WAIT)] {
        processes.ask_all(asked);
        if timeout(wait, processes.all_ended()).await.is_ok() {
            return;
        }
    }
}
