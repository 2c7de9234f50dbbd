//! The only unsafe code of this program: descriptors that are known by number, descriptors that the runtime watches, and
//! what happens between fork and exec.
#![expect(unsafe_code, reason = "none of the three has a safe form")]

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use tokio::io::unix::AsyncFd;

/// Has the runtime tell when a descriptor can be read or written.
pub(crate) fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: what is asked for is a descriptor that stays open and the same as long as it is registered. An `OwnedFd`
    // is both until it is dropped, and the answer owns it.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Makes the child lead its own session, with its standard input as the terminal of that session.
pub(crate) fn own_terminal(command: &mut Command) -> &mut Command {
    let take = || {
        rustix::process::setsid()?;
        // SAFETY: in the child descriptor 0 is the standard input that the command was given, and stays open.
        rustix::process::ioctl_tiocsctty(unsafe { BorrowedFd::borrow_raw(0) })?;
        Ok(())
    };
    // SAFETY: between fork and exec only two raw system calls are made; nothing is allocated and no lock is taken.
    unsafe { command.pre_exec(take) }
}

/// Descriptors that whoever starts this program may hand over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HandedOver {
    Listener,
    Settings,
}

impl HandedOver {
    /// The variable that tells that the descriptor is there.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Listener => "HOLM_GUEST_FD",
            Self::Settings => "HOLM_GUEST_CONFIG_FD",
        }
    }

    fn number(self) -> RawFd {
        match self {
            Self::Listener => 3,
            Self::Settings => 4,
        }
    }

    /// Takes the descriptor if the environment says that it was handed over, and keeps it from the children.
    /// To be called once for each, before anything else opens files.
    pub(crate) fn take(self) -> Option<OwnedFd> {
        std::env::var_os(self.variable()).filter(|number| *number == *self.number().to_string())?;
        // SAFETY: the variable is a promise of the starter that this number is open and meant for us; nothing of
        // ours has opened a file yet, so nothing else owns it. A false promise gives errors of the kernel, no more.
        let fd = unsafe { OwnedFd::from_raw_fd(self.number()) };
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok()?;
        Some(fd)
    }
}
