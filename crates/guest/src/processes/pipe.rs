//! Reading what a process has written into a pipe.

use std::io;
use tokio::net::unix::pipe::Receiver;

const READ_BYTES: usize = 32 << 10;

/// Passes on what one read gives, which is nothing at the end. The buffer is held only meanwhile,
/// since a process may say nothing for days.
pub(crate) fn read_once(pipe: &Receiver, take: impl FnOnce(&[u8])) -> io::Result<usize> {
    let mut buffer = [0; READ_BYTES];
    let length = pipe.try_read(&mut buffer)?;
    take(&buffer[..length]);
    Ok(length)
}

/// Passes on what is in the pipe now. Not until it is empty: a child that was left behind may be
/// filling it for ever.
pub(crate) fn drain(pipe: &Receiver, mut take: impl FnMut(&[u8])) {
    // A pipe that does not tell how much it holds has nothing that could be read either.
    let Ok(waiting) = rustix::io::ioctl_fionread(pipe) else { return };
    let mut left = waiting;
    let mut buffer = [0; READ_BYTES];
    while left > 0 {
        let wanted = usize::try_from(left).map_or(READ_BYTES, |left| left.min(READ_BYTES));
        // Read past the runtime, whose idea of what can be read may lag behind the pipe.
        let Ok(length @ 1..) = rustix::io::read(pipe, &mut buffer[..wanted]) else { return };
        take(&buffer[..length]);
        left -= length as u64;
    }
}
