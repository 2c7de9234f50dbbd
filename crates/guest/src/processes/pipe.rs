//! Reads the output of a process from a pipe.

use std::io;
use tokio::net::unix::pipe::Receiver;

const READ_BYTES: usize = 32 << 10;

/// Passes on the result of one read, which is empty at the end. The buffer exists only during the
/// call, because a process may be silent for days.
pub(crate) fn read_once(pipe: &Receiver, take: impl FnOnce(&[u8])) -> io::Result<usize> {
    let mut buffer = [0; READ_BYTES];
    let length = pipe.try_read(&mut buffer)?;
    take(&buffer[..length]);
    Ok(length)
}

/// Passes on what is in the pipe now. It does not read until the pipe is empty, because a child
/// that was left behind may keep filling it.
pub(crate) fn drain(pipe: &Receiver, mut take: impl FnMut(&[u8])) {
    // A pipe that cannot report how much it holds has nothing to read either.
    let Ok(waiting) = rustix::io::ioctl_fionread(pipe) else { return };
    let mut left = waiting;
    let mut buffer = [0; READ_BYTES];
    while left > 0 {
        let wanted = usize::try_from(left).map_or(READ_BYTES, |left| left.min(READ_BYTES));
        // Bypasses the runtime, whose knowledge of what can be read may lag behind the pipe.
        let Ok(length @ 1..) = rustix::io::read(pipe, &mut buffer[..wanted]) else { return };
        take(&buffer[..length]);
        left -= length as u64;
    }
}
