//! Copies files that are mostly holes.

use crate::sparse::next_data;
use rustix::fd::OwnedFd;
use rustix::fs::{copy_file_range, fstat, ftruncate, ioctl_ficlone};
use rustix::io::Errno;
use std::io;

/// How much one call copies at most, so that copying can be interrupted.
const PIECE_BYTES: u64 = 64 << 20;

/// Copies a file into an empty one. Shares its blocks if the file system can do that, and copies
/// everything but the holes otherwise.
pub(super) fn copy_blocks(source: &OwnedFd, into: &OwnedFd) -> io::Result<()> {
    match ioctl_ficlone(into, source) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY) => {
            copy_data(source, into)
        }
        Err(error) => Err(error.into()),
    }
}

fn copy_data(source: &OwnedFd, into: &OwnedFd) -> io::Result<()> {
    let size = fstat(source)?.st_size.unsigned_abs();
    ftruncate(into, size)?;
    let mut at = 0;
    while let Some(data) = next_data(source, at, size)? {
        copy_piecewise(source, into, data.start, data.end)?;
        at = data.end;
    }
    Ok(())
}

fn copy_piecewise(source: &OwnedFd, into: &OwnedFd, begin: u64, end: u64) -> io::Result<()> {
    let (mut from, mut to) = (begin, begin);
    while from < end {
        let piece = usize::try_from((end - from).min(PIECE_BYTES)).map_err(io::Error::other)?;
        // This moves both positions.
        if copy_file_range(source, Some(&mut from), into, Some(&mut to), piece)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn holes_stay_holes() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let file = |path: &std::path::Path| {
            open(path, OFlags::RDWR | OFlags::CREATE, Mode::from_raw_mode(0o600)).unwrap()
        };
        let source = file(&one);
        ftruncate(&source, 64 << 20).unwrap();
        rustix::io::pwrite(&source, b"begin", 0).unwrap();
        rustix::io::pwrite(&source, b"middle", 40 << 20).unwrap();
        let into = file(&other);
        copy_data(&source, &into).unwrap();
        assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&other).unwrap());
        assert!(std::fs::metadata(&other).unwrap().blocks() < 1_000);
    }
}
