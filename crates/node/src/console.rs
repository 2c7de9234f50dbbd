//! The output of the first process of an instance. It is kept in memory, within a limit of its own.

use crate::disk::CONSOLE_BYTES;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use std::io;
use std::os::unix::fs::FileExt;

/// Reopens the console of a process that an earlier node started, which is still that process's
/// output.
pub(crate) fn reopen(pid: i32) -> io::Result<OwnedFd> {
    // The instance may have replaced it with anything since, such as a pipe without a writer, so
    // this must not block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(open(format!("/proc/{pid}/fd/1"), flags, Mode::empty())?)
}

pub(crate) fn tail(console: &OwnedFd) -> io::Result<Vec<u8>> {
    let status = fstat(console)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Ok(Vec::new());
    }
    let size = u64::try_from(status.st_size).map_err(io::Error::other)?;
    let start = size.saturating_sub(CONSOLE_BYTES);
    let mut bytes = vec![0; usize::try_from(size - start).map_err(io::Error::other)?];
    let file = std::fs::File::from(rustix::io::fcntl_dupfd_cloexec(console.as_fd(), 0)?);
    let length = file.read_at(&mut bytes, start)?;
    bytes.truncate(length);
    Ok(bytes)
}
