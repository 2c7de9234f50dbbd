//! The first process of an instance, and what is reached through it.

use crate::console;
use crate::error::{Attempt, Doing};
use crate::net::Home;
use crate::process::{self, Identity};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use std::fs::File;
use std::io;
use types::instance::Exit;

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(super) network: OwnedFd,
    pub(super) console: Option<OwnedFd>,
}

impl Process {
    /// Finds the process that an earlier node started, if it is alive.
    pub(crate) fn find(identity: &Identity) -> Option<Self> {
        let pidfd = identity.open()?;
        let network = File::open(format!("/proc/{}/ns/net", identity.pid)).ok()?.into();
        let console = console::reopen(identity.pid).ok();
        // The descriptors above belong to the right process only if it is still there now. A pid is
        // used again only after its process has ended.
        if process::has_ended(pidfd.as_fd()).unwrap_or(true) {
            identity.open()?;
        }
        Some(Self { pid: identity.pid, pidfd, network, console })
    }

    /// Returns what the next node needs to find the process again.
    pub(crate) fn identity(&self) -> io::Result<Identity> {
        Identity::of(Pid::from_raw(self.pid).ok_or(io::ErrorKind::InvalidData)?)
    }

    pub(crate) fn has_ended(&self) -> io::Result<bool> {
        process::has_ended(self.pidfd.as_fd())
    }

    /// Returns the network namespace of the instance.
    pub(crate) fn network(&self) -> BorrowedFd<'_> {
        self.network.as_fd()
    }

    /// Opens a TCP socket in the network of the instance.
    pub(crate) fn socket(&self, home: &Home) -> Result<OwnedFd, Attempt> {
        home.socket(&self.network).doing("enter the network of")
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Attempt> {
        match pidfd_send_signal(&self.pidfd, signal) {
            // It has just ended by itself.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            failed => failed.doing("signal"),
        }
    }

    /// Returns how the process ended. Call it only once it has.
    pub(crate) fn exit(&self) -> Exit {
        process::exit_of(self.pidfd.as_fd(), self.pid)
    }
}
