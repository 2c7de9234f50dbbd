//! The only unsafe code of this program: descriptors that were handed over by number.
#![expect(unsafe_code, reason = "a descriptor that is known by its number alone has no safe constructor")]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

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
