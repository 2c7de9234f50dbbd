//! Descriptors that the program which replaces this one inherits.

use rustix::io::FdFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// If the handover fails, dropping this closes the descriptors, so that children do not inherit
/// them.
#[derive(Default)]
pub(crate) struct Carried(Vec<OwnedFd>);

impl Carried {
    /// Makes an inheritable copy of a descriptor, and returns its number.
    pub(crate) fn carry(&mut self, fd: impl AsFd) -> io::Result<RawFd> {
        let copy = fd.as_fd().try_clone_to_owned()?;
        rustix::io::fcntl_setfd(&copy, FdFlags::empty())?;
        let number = copy.as_raw_fd();
        self.0.push(copy);
        Ok(number)
    }
}
