//! Files with holes.

use rustix::fd::OwnedFd;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::io;
use std::ops::Range;

/// The unit in which the kernel counts a file's blocks on disk.
pub(crate) const BLOCK_BYTES: u64 = 512;

/// Returns the next piece of a file that is no hole, from `at` on and before `size`. `None` if only
/// a hole is left.
pub(crate) fn next_data(file: &OwnedFd, at: u64, size: u64) -> io::Result<Option<Range<u64>>> {
    if at >= size {
        return Ok(None);
    }
    let begin = match seek(file, SeekFrom::Data(at)) {
        Ok(begin) if begin < size => begin,
        Ok(_) | Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(begin..seek(file, SeekFrom::Hole(begin))?.min(size)))
}
