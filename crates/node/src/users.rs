//! The user ids of an instance: it has its own range of them outside, beginning with its root.

use crate::sys::Sleeper;
use rustix::fd::OwnedFd;
use std::fs::{File, write};
use std::io;

/// How many user ids one instance has, from the id that its root has outside.
pub const IDS_PER_INSTANCE: u32 = 65_536;

/// Makes a user namespace whose ids start at `root` outside.
pub(crate) fn make_users(root: u32) -> io::Result<OwnedFd> {
    let sleeper = Sleeper::start(root)?;
    let process = format!("/proc/{}", sleeper.pid.as_raw_nonzero());
    let map = format!("0 {root} {IDS_PER_INSTANCE}");
    write(format!("{process}/uid_map"), &map)?;
    write(format!("{process}/gid_map"), &map)?;
    Ok(File::open(format!("{process}/ns/user"))?.into())
}
