//! Files with holes, and how what is in between is written into a stream:
//!
//! ```text
//! offset, length, content   for each piece of data
//! size, 0                   at the end
//! ```

use rustix::fd::OwnedFd;
use rustix::fs::{SeekFrom, seek};
use rustix::io::{Errno, pread, pwrite};
use std::io::{self, Read, Write};
use std::ops::Range;

/// The unit in which the kernel counts a file's blocks on disk.
pub(crate) const BLOCK_BYTES: u64 = 512;
/// How much is read and written at once.
const PIECE_BYTES: usize = 256 << 10;

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

/// Moves the data of files to and from streams, through one buffer.
pub(crate) struct Carrier(Vec<u8>);

impl Carrier {
    pub(crate) fn new() -> Self {
        Self(vec![0; PIECE_BYTES])
    }

    /// Writes the data of a file of this size.
    pub(crate) fn write(
        &mut self,
        file: &OwnedFd,
        size: u64,
        into: &mut dyn Write,
    ) -> io::Result<()> {
        let mut at = 0;
        while let Some(data) = next_data(file, at, size)? {
            write_number(into, data.start)?;
            write_number(into, data.end - data.start)?;
            at = data.start;
            while at < data.end {
                let wanted = self.piece(data.end - at);
                let read = pread(file, &mut self.0[..wanted], at)?;
                if read == 0 {
                    return Err(broken("a file was cut while it was read"));
                }
                into.write_all(&self.0[..read])?;
                at += read as u64;
            }
        }
        write_number(into, size)?;
        write_number(into, 0)
    }

    /// Reads what [`Self::write`] wrote into a file that has this size, and no data yet.
    pub(crate) fn read(
        &mut self,
        from: &mut dyn Read,
        file: &OwnedFd,
        size: u64,
    ) -> io::Result<()> {
        let mut after = 0;
        loop {
            let (begin, length) = (read_number(from)?, read_number(from)?);
            let end = begin.checked_add(length).filter(|end| *end <= size && begin >= after);
            after = end.ok_or_else(|| broken("a file with content beyond its end"))?;
            if length == 0 {
                return Ok(());
            }
            self.read_piece(from, file, begin..after)?;
        }
    }

    fn read_piece(
        &mut self,
        from: &mut dyn Read,
        file: &OwnedFd,
        data: Range<u64>,
    ) -> io::Result<()> {
        let mut at = data.start;
        while at < data.end {
            let wanted = self.piece(data.end - at);
            from.read_exact(&mut self.0[..wanted])?;
            let mut rest = &self.0[..wanted];
            while !rest.is_empty() {
                let written = pwrite(file, rest, at)?;
                rest = &rest[written..];
                at += written as u64;
            }
        }
        Ok(())
    }

    fn piece(&self, left: u64) -> usize {
        usize::try_from(left).map_or(self.0.len(), |left| left.min(self.0.len()))
    }
}

pub(crate) fn write_number(into: &mut dyn Write, number: u64) -> io::Result<()> {
    into.write_all(&number.to_le_bytes())
}

pub(crate) fn read_number(from: &mut dyn Read) -> io::Result<u64> {
    let mut number = [0; 8];
    from.read_exact(&mut number)?;
    Ok(u64::from_le_bytes(number))
}

/// The error for a stream that is not what was written.
pub(crate) fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
