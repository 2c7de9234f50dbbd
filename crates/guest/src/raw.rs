//! The only unsafe code of this program: descriptors that are known by number, descriptors that the
//! runtime watches, and what happens between fork and exec.
#![expect(unsafe_code, reason = "none of the three has a safe form")]

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use tokio::io::unix::AsyncFd;

const STANDARD_ERROR: RawFd = 2;

/// Has the runtime tell when a descriptor can be read or written.
pub(crate) fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: what is asked for is a descriptor that stays open and the same as long as it is
    // registered. An `OwnedFd` is both until it is dropped, and the answer owns it.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Makes the child lead its own session, with its standard input as the terminal of that session.
pub(crate) fn own_terminal(command: &mut Command) -> &mut Command {
    let take = || {
        rustix::process::setsid()?;
        // SAFETY: in the child descriptor 0 is the standard input that the command was given, and
        // stays open.
        rustix::process::ioctl_tiocsctty(unsafe { BorrowedFd::borrow_raw(0) })?;
        Ok(())
    };
    // SAFETY: between fork and exec only two raw system calls are made; nothing is allocated and no
    // lock is taken.
    unsafe { command.pre_exec(take) }
}

/// Descriptors that whoever starts this program may hand over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HandedOver {
    Listener,
    Settings,
    /// From the program that this one takes the place of.
    State,
}

impl HandedOver {
    pub(crate) const ALL: [Self; 3] = [Self::Listener, Self::Settings, Self::State];

    /// The variable that tells that the descriptor is there.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Listener => "HOLM_GUEST_FD",
            Self::Settings => "HOLM_GUEST_CONFIG_FD",
            Self::State => "HOLM_GUEST_STATE_FD",
        }
    }

    /// Takes the descriptor if the environment says that it was handed over, and keeps it from the
    /// children. To be called once for each, before anything else opens files.
    pub(crate) fn take(self) -> Option<OwnedFd> {
        let number = std::env::var(self.variable())
            .ok()?
            .parse()
            .ok()
            .filter(|number| *number > STANDARD_ERROR)?;
        // The variable is a promise of the starter that this number is open and meant for us, and
        // nothing of ours has opened a file yet.
        adopt(number).ok()
    }
}

/// Takes over a descriptor that came through the start of this program, and keeps it from the
/// children. The number must be one that was handed over for this, and is to be taken once.
pub(crate) fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the callers are the start of this program and nothing else: each number is named once
    // by whoever started it, before anything here could have opened a file under it. A number that
    // is not open gives an error of the kernel, and is let go of without being closed.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    match rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC) {
        Ok(()) => Ok(fd),
        Err(error) => {
            let _ = fd.into_raw_fd();
            Err(error.into())
        }
    }
}
