//! The lists of steps between clone and exec for an external program that starts an instance.

use super::step::{Mapping, MountOption, Pointers, Step};
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use rustix::io;
use std::ffi::{CString, NulError};
use types::overlay::lower_options;

/// The lowest number of any node descriptor that the new processes use, so that the small ones are
/// free.
const LOWEST: RawFd = 32;
pub(super) const ROOT: RawFd = 5;

/// Where the program finds its listening socket and its configuration.
pub const LISTENER_FD: RawFd = 3;
pub const CONFIG_FD: RawFd = 4;
/// The program's own descriptor, the last other one that is open until exec. The number is the
/// root's at first, which does not need it any more once it is mounted.
pub(super) const PROGRAM: RawFd = 5;

const NODEV: i64 = 0x4;

/// Copies a descriptor to a number that does not collide with those that the new processes use.
pub(crate) fn copy(fd: impl AsFd) -> io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, LOWEST)
}

/// Like [`copy`], but returns the descriptor itself if its number is high enough, as in a server
/// most are.
pub(crate) fn keep(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() >= LOWEST { Ok(fd) } else { copy(fd) }
}

/// Makes the process's mounts private, and mounts the layers as an overlay, whose descriptor gets
/// the number [`ROOT`].
pub(super) fn overlay(
    layers: &[OwnedFd],
    disk: &OwnedFd,
    workbench: &str,
) -> Result<Vec<Step>, NulError> {
    let private = Mapping {
        from: CString::new("none")?,
        at: CString::new("/")?,
        flags: libc::MS_REC | libc::MS_PRIVATE,
    };
    let mut steps = vec![Step::Mount(private)];
    for mount in layers.iter().chain([disk]) {
        steps.push(Step::Attach { mount: mount.as_raw_fd(), at: CString::new(workbench)? });
    }
    // Everything is named relative to the folder of descriptors, which keeps the names short.
    let lower: Vec<String> = layers.iter().map(|layer| layer.as_raw_fd().to_string()).collect();
    let disk = disk.as_raw_fd();
    let mut options = vec![option("source", "holm")?];
    for (key, value) in lower_options(&lower) {
        options.push(option(key, &value)?);
    }
    options.push(option("upperdir", &format!("{disk}/upper"))?);
    options.push(option("workdir", &format!("{disk}/work"))?);
    options.push(MountOption { key: CString::new("userxattr")?, value: None });
    steps.push(Step::Enter { folder: CString::new("/proc/self/fd")? });
    steps.push(new_mount("overlay", options, NODEV, ROOT)?);
    steps.push(Step::Enter { folder: CString::new("/")? });
    Ok(steps)
}

fn option(key: &str, value: &str) -> Result<MountOption, NulError> {
    Ok(MountOption { key: CString::new(key)?, value: Some(CString::new(value)?) })
}

fn new_mount(
    kind: &str,
    options: Vec<MountOption>,
    flags: i64,
    into: RawFd,
) -> Result<Step, NulError> {
    Ok(Step::NewMount { kind: CString::new(kind)?, options, flags, into })
}

pub(super) fn pointers(texts: &[String]) -> Result<Pointers, NulError> {
    Ok(Pointers::new(
        texts.iter().map(|text| CString::new(text.as_str())).collect::<Result<_, _>>()?,
    ))
}
