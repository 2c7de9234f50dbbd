//! The end: all that runs is asked to end, and killed if it does not within a grace.
//!
//! The first process of a machine ignores every signal that it does not listen for, so this one
//! listens.

use crate::guest::Guest;
use crate::processes::Asked as ToProcess;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// Less than what container engines usually give.
const GRACE: Duration = Duration::from_secs(5);
/// For the ends of what was killed to be seen.
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

pub(crate) async fn run(guest: &Guest) {
    for (asked, wait) in [(ToProcess::Stop, GRACE), (ToProcess::Kill, KILL_WAIT)] {
        guest.processes.ask_all(asked);
        if timeout(wait, guest.processes.all_ended()).await.is_ok() {
            return;
        }
    }
}
