//! The lists of steps between clone and exec for an external program that starts an instance.

use super::step::{Mount, Pointers, Step};
use libc::c_ulong;
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use rustix::io;
use std::ffi::{CString, NulError};

/// The lowest number of any node descriptor that the new processes use, so that the small ones are
/// free.
const LOWEST: RawFd = 32;

/// Where the program finds its listening socket and its configuration.
pub const LISTENER_FD: RawFd = 3;
pub const CONFIG_FD: RawFd = 4;
/// The program's own descriptor, the last other one that is open until exec.
pub(super) const PROGRAM: RawFd = 5;

/// Copies a descriptor to a number that does not collide with those that the new processes use.
pub(crate) fn copy(fd: impl AsFd) -> io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, LOWEST)
}

/// Like [`copy`], but returns the descriptor itself if its number is high enough, as in a server
/// most are.
pub(crate) fn keep(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() >= LOWEST { Ok(fd) } else { copy(fd) }
}

/// Makes the process's mounts private, and mounts the layers as an overlay at `place`. The layers
/// are named as the guest names them, for the same reasons.
pub(super) fn overlay(
    layers: &[OwnedFd],
    disk: &OwnedFd,
    place: &str,
) -> Result<Vec<Step>, NulError> {
    let mut steps = vec![mount("none", "/", libc::MS_REC | libc::MS_PRIVATE, "")?];
    for layer in layers.iter().chain([disk]) {
        steps.push(Step::Attach { mount: layer.as_raw_fd(), at: CString::new(place)? });
    }
    let lower: Vec<String> = layers.iter().map(|layer| layer.as_raw_fd().to_string()).collect();
    let (lower, disk) = (lower.join(":"), disk.as_raw_fd());
    let options = format!("lowerdir={lower},upperdir={disk}/upper,workdir={disk}/work,userxattr");
    steps.push(Step::Enter { folder: CString::new("/proc/self/fd")? });
    steps.push(mount("overlay", place, libc::MS_NODEV, &options)?);
    steps.push(Step::Enter { folder: CString::new("/")? });
    Ok(steps)
}

fn mount(kind: &str, at: &str, flags: c_ulong, options: &str) -> Result<Step, NulError> {
    let (kind, at) = (CString::new(kind)?, CString::new(at)?);
    Ok(Step::Mount(Mount { kind, at, flags, options: CString::new(options)? }))
}

pub(super) fn pointers(texts: &[String]) -> Result<Pointers, NulError> {
    Ok(Pointers::new(
        texts.iter().map(|text| CString::new(text.as_str())).collect::<Result<_, _>>()?,
    ))
}
