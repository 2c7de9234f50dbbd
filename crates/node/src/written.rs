//! What an instance wrote, for builds and snapshots to read.

use rustix::fd::{AsRawFd, OwnedFd};
use std::io;
use std::path::PathBuf;

/// What an instance wrote over its layers. It is freed once both this value and the instance are
/// gone.
#[derive(Debug)]
pub struct Written {
    pub(crate) mount: OwnedFd,
    /// The user id that the instance's root has outside.
    pub root: u32,
}

impl Written {
    /// Returns the upper folder of the instance's overlay. Valid as long as this value lives.
    pub fn upper(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/upper", self.mount.as_raw_fd()))
    }

    pub(crate) fn copy(&self) -> io::Result<Self> {
        Ok(Self { mount: rustix::io::fcntl_dupfd_cloexec(&self.mount, 0)?, root: self.root })
    }
}
