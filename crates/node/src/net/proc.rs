//! `/proc`, as far as new networks need it.
//!
//! The kernel keeps the entries below `/proc/sys/net` of all networks that were ever looked up in
//! one row, and goes through it at each lookup. Beside thousands of networks that takes longer than
//! to make one. Each mount of `/proc` has rows of its own, so a mount serves some networks only.

use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

/// How many networks one mount serves: few enough for a lookup to stay short.
const NETWORKS: u32 = 64;

/// The current mount, and how many more networks it serves.
#[derive(Debug, Default)]
pub(super) struct Proc(Mutex<Option<(Arc<OwnedFd>, u32)>>);

/// A mount of `/proc` that is attached nowhere. It shows the network of the thread that looks.
#[derive(Debug)]
pub(super) struct Mounted(Arc<OwnedFd>);

impl Proc {
    pub(super) fn for_a_network(&self) -> io::Result<Mounted> {
        let mut current = self.0.lock();
        let (mount, left) = match current.take() {
            Some(current) => current,
            None => (Arc::new(make()?), NETWORKS),
        };
        *current = Some((Arc::clone(&mount), left - 1)).filter(|_| left > 1);
        Ok(Mounted(mount))
    }
}

impl Mounted {
    /// Writes a setting of the calling thread's network.
    pub(super) fn set(&self, name: &str, value: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(self.0.as_fd(), format!("sys/net/{name}"), flags, Mode::empty())?;
        File::from(file).write_all(value.as_bytes())
    }
}

fn make() -> io::Result<OwnedFd> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let sealed = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, sealed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_serves_some_networks_only() {
        assert!(rustix::process::geteuid().is_root(), "mounting takes root");
        let proc = Proc::default();
        let used: Vec<_> = (0..=NETWORKS).map(|_| proc.for_a_network().unwrap().0).collect();
        let same = |at: u32| Arc::ptr_eq(&used[0], &used[at as usize]);
        assert!(same(NETWORKS - 1) && !same(NETWORKS));
        assert!(proc.for_a_network().unwrap().set("ipv4/no_such_setting", "1").is_err());
    }
}
