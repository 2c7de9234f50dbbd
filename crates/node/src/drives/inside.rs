//! Mounts and unmounts in the namespace of an instance that runs or sleeps.

use super::walk::walk;
use crate::error::DriveError;
use crate::process::{has_ended, root_of};
use crate::sys;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags, makedev, open, statx};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount, unmount};
use rustix::process::fchdir;
use std::fs::{File, read_to_string};
use std::io;

/// The first process of an instance.
pub(crate) struct Mounting<'a> {
    pub(crate) pid: i32,
    pub(crate) process: BorrowedFd<'a>,
}

impl Mounting<'_> {
    /// Returns the instance's user namespace, and the outside id of its root.
    pub(super) fn users(&self) -> Result<(OwnedFd, u32), DriveError> {
        let users = File::open(format!("/proc/{}/ns/user", self.pid));
        let users = users.map_err(|error| self.gone(error))?;
        let root = self.read(root_of)?;
        Ok((users.into(), root))
    }

    /// Reads something of the process in `/proc`.
    fn read<T>(&self, read: impl FnOnce(i32) -> io::Result<T>) -> Result<T, DriveError> {
        let read = read(self.pid).map_err(|error| self.gone(error))?;
        // The check comes after the read: as long as the process has not ended, its pid belongs to
        // nobody else.
        if has_ended(self.process)? { Err(DriveError::Gone) } else { Ok(read) }
    }

    fn gone(&self, error: io::Error) -> DriveError {
        match has_ended(self.process) {
            Ok(false) => error.into(),
            Ok(true) | Err(_) => DriveError::Gone,
        }
    }

    /// Attaches a mount of the file system with this device number, unless it is mounted there
    /// already.
    pub(super) fn attach(
        &self,
        mount: BorrowedFd<'_>,
        number: u64,
        root: u32,
        place: &str,
    ) -> Result<(), DriveError> {
        let attached = on_own_thread(|| {
            sys::enter_mounts(self.process)?;
            sys::act_as(root)?;
            let at = walk(top()?.as_fd(), place, true)?;
            match mounted(at.as_fd(), "")? {
                Some(there) if there == number => Ok(()),
                Some(_) => Err(Errno::EXIST),
                None => {
                    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH
                        | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
                    move_mount(mount, "", &at, "", flags)
                }
            }
        });
        attached.map_err(|error| DriveError::at("the mount path", place, error))
    }

    /// Unmounts this file system from a place. Returns whether it was mounted there.
    pub(super) fn detach(&self, number: u64, place: &str) -> Result<bool, DriveError> {
        let Some((above, name)) = place.rsplit_once('/') else { return Ok(false) };
        let detached = on_own_thread(|| {
            sys::enter_mounts(self.process)?;
            let above = match walk(top()?.as_fd(), above, false) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
                above => above?,
            };
            match mounted(above.as_fd(), name) {
                Ok(Some(there)) if there == number => {}
                Ok(_) | Err(Errno::NOENT) => return Ok(false),
                Err(error) => return Err(error),
            }
            // Unmounted by name: a descriptor of the mount would keep it busy. The name is safe,
            // because processes inside can neither mount nor unmount.
            fchdir(&above)?;
            unmount(name, UnmountFlags::NOFOLLOW).map(|()| true)
        });
        match detached {
            Err(Errno::BUSY) => Err(DriveError::InUse),
            other => other.map_err(|error| DriveError::at("the mount path", place, error)),
        }
    }

    /// Returns where the instance has this file system mounted, in its own paths.
    pub(super) fn places_of(&self, number: u64) -> Result<Vec<String>, DriveError> {
        let read = |pid| read_to_string(format!("/proc/{pid}/mountinfo"));
        Ok(places(&self.read(read)?, number))
    }
}

/// Runs `work` on a thread that ends afterwards, because it changes the thread's namespaces.
pub(crate) fn on_own_thread<T: Send>(
    work: impl FnOnce() -> Result<T, Errno> + Send,
) -> Result<T, Errno> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("mounts".to_owned());
        let thread = thread.spawn_scoped(scope, work).map_err(|_| Errno::AGAIN)?;
        thread.join().unwrap_or(Err(Errno::CANCELED))
    })
}

fn top() -> Result<OwnedFd, Errno> {
    open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Returns the device number of the file system mounted exactly at this place, if any.
fn mounted(at: BorrowedFd<'_>, name: &str) -> Result<Option<u64>, Errno> {
    let empty = if name.is_empty() { AtFlags::EMPTY_PATH } else { AtFlags::empty() };
    let seen = statx(at, name, AtFlags::SYMLINK_NOFOLLOW | empty, StatxFlags::TYPE)?;
    let is_top = seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok(is_top.then(|| makedev(seen.stx_dev_major, seen.stx_dev_minor)))
}

/// Finds the mount points of a file system in the kernel's list of mounts.
fn places(list: &str, number: u64) -> Vec<String> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let device = format!("{major}:{minor}");
    let place = |line: &str| {
        let mut fields = line.split(' ').skip(2);
        let is_of = fields.next()? == device;
        fields.nth(1).filter(|_| is_of).map(plain)
    };
    list.lines().filter_map(place).collect()
}

/// Decodes a field of that list, in which the kernel writes a space as `\040`, for example.
fn plain(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..3).filter(|_| *first == b'\\');
        let code = escaped.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mount_points_are_read_from_the_list_of_the_kernel() {
        let list = "22 1 0:20 / / rw - overlay holm rw\n\
                    30 22 7:3 /a /mnt/my\\040drive rw,nosuid - xfs /dev/loop3 rw\n\
                    31 22 7:30 / /other rw - xfs /dev/loop30 rw\n";
        assert_eq!(places(list, makedev(7, 3)), ["/mnt/my drive"]);
        assert!(places(list, makedev(7, 4)).is_empty());
    }

    proptest! {
        #[test]
        fn no_list_is_trouble(list in "[0-9a-z:/\\\\ \n]{0,80}") {
            let _ = places(&list, makedev(7, 3));
        }
    }
}
