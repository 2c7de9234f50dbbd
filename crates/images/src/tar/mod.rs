//! Reads tar archives (ustar, GNU and PAX) from a stream, with a limit on everything that must be
//! held in memory.
//!
//! Nothing is unpacked here: [`Reader::next`] returns one entry after the other, and the data of
//! the current entry is read from the reader itself.

mod extensions;
mod header;
mod malformed;
mod write;

use std::io::{self, Read};

use extensions::{Extensions, decimal};
use header::{BLOCK, Block, Header, SparseHeader};
use malformed::Malformed;

pub(crate) use write::{Difference, write_difference};

use crate::error::{Error, Exceeded};

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) modified: i64,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    File(Content),
    Folder,
    Symlink { target: Vec<u8> },
    HardLink { target: Vec<u8> },
    Fifo,
    Device,
}

/// Where the bytes of an entry belong in its file.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) size: u64,
    /// Offset and length of each part, in order and without overlap.
    pub(crate) extents: Vec<(u64, u64)>,
}

impl Content {
    fn whole(size: u64) -> Self {
        Self { size, extents: vec![(0, size)] }
    }

    /// Checks the map, so that code that writes the file need not.
    fn with_holes(size: u64, extents: Vec<(u64, u64)>, stored: u64) -> Result<Self, Malformed> {
        let (mut end, mut sum) = (0u64, 0u64);
        for (offset, length) in &extents {
            if *offset < end {
                return Err(Malformed("map of holes"));
            }
            end = offset.checked_add(*length).ok_or(Malformed("map of holes"))?;
            sum += length;
        }
        if end > size || sum != stored {
            return Err(Malformed("map of holes"));
        }
        Ok(Self { size, extents })
    }
}

pub(crate) struct Reader<R> {
    inner: R,
    /// Unread bytes of the current entry's data.
    left: u64,
    padding: u64,
    extension_bytes_max: u64,
    extension_bytes: u64,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(inner: R, extension_bytes_max: u64) -> Self {
        Self { inner, left: 0, padding: 0, extension_bytes_max, extension_bytes: 0 }
    }

    /// Returns the next entry, or `None` at the end. Unread data of the previous one is skipped.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, Error> {
        let mut extensions = Extensions::default();
        self.extension_bytes = 0;
        loop {
            self.pass_over()?;
            let Some(block) = self.block()? else { return Ok(None) };
            let header = Header(&block);
            header.check()?;
            match header.kind() {
                b'L' => extensions.path = Some(self.long_name(&header)?),
                b'K' => extensions.link = Some(self.long_name(&header)?),
                b'x' => {
                    let records = self.extension(header.size()?)?;
                    extensions.read(&records)?;
                }
                // Defaults for all entries: what they could provide (owner, comment) is not worth
                // the ambiguity.
                b'g' => self.expect(header.size()?),
                _ => return self.entry(&header, extensions).map(Some),
            }
        }
    }

    /// Reads the stream to its end, so that a reader below that hashes it sees all of it.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        io::copy(&mut self.inner, &mut io::sink())?;
        Ok(())
    }

    fn entry(&mut self, header: &Header<'_>, extensions: Extensions) -> Result<Entry, Error> {
        let path = extensions.path.clone().unwrap_or_else(|| header.path());
        let link = || extensions.link.clone().unwrap_or_else(|| header.link());
        let size = extensions.size.map_or_else(|| header.size(), Ok)?;
        let (mut path, kind) = match header.kind() {
            b'0' | 0 | b'7' if path.ends_with(b"/") => (path, Kind::Folder),
            b'0' | 0 | b'7' => self.file(path, size, &extensions)?,
            b'S' => (path, Kind::File(self.gnu_sparse(header, size)?)),
            b'1' => (path, Kind::HardLink { target: link() }),
            b'2' => (path, Kind::Symlink { target: link() }),
            b'3' | b'4' => (path, Kind::Device),
            b'5' => (path, Kind::Folder),
            b'6' => (path, Kind::Fifo),
            _ => return Err(Malformed("kind of entry").into()),
        };
        if path.contains(&0) {
            return Err(Malformed("path").into());
        }
        path.shrink_to_fit();
        Ok(Entry {
            path,
            kind,
            mode: header.mode()?,
            uid: extensions.uid.map_or_else(|| header.uid(), Ok)?,
            gid: extensions.gid.map_or_else(|| header.gid(), Ok)?,
            modified: extensions.modified.map_or_else(|| header.modified(), Ok)?,
            xattrs: extensions.xattrs,
        })
    }

    fn file(
        &mut self,
        path: Vec<u8>,
        size: u64,
        extensions: &Extensions,
    ) -> Result<(Vec<u8>, Kind), Error> {
        self.expect(size);
        let sparse = &extensions.sparse;
        match (sparse.major, sparse.minor) {
            (None, None) if !sparse.old_form => Ok((path, Kind::File(Content::whole(size)))),
            (Some(1), Some(0)) => {
                let real_size = sparse.real_size.ok_or(Malformed("map of holes"))?;
                let extents = self.pax_sparse_map()?;
                let content = Content::with_holes(real_size, extents, self.left)?;
                Ok((sparse.name.clone().unwrap_or(path), Kind::File(content)))
            }
            _ => Err(Malformed("this form of files with holes is not read").into()),
        }
    }

    /// Reads the map that precedes the data: decimal lines, the count first, padded to a block.
    fn pax_sparse_map(&mut self) -> Result<Vec<(u64, u64)>, Error> {
        let mut text = Vec::new();
        let mut numbers = Vec::new();
        let mut wanted = 1;
        while numbers.len() < wanted {
            let mut block = [0; BLOCK];
            self.count_extension(BLOCK as u64)?;
            self.read_exact(&mut block).map_err(|_| Malformed("map of holes"))?;
            text.extend_from_slice(&block);
            while numbers.len() < wanted {
                let Some(end) = text.iter().position(|byte| *byte == b'\n') else { break };
                numbers.push(decimal(&text[..end])?);
                text.drain(..=end);
                wanted = 1 + 2 * usize::try_from(numbers[0])
                    .ok()
                    .filter(|count| *count < 1 << 24)
                    .ok_or(Malformed("map of holes"))?;
            }
        }
        Ok(numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }

    fn gnu_sparse(&mut self, header: &Header<'_>, stored: u64) -> Result<Content, Error> {
        let SparseHeader { mut extents, mut more, size } = header.sparse()?;
        while more {
            self.count_extension(BLOCK as u64)?;
            let block = self.block()?.ok_or(Malformed("map of holes"))?;
            extents.extend(header::extents(&block[..504])?);
            more = block[504] != 0;
        }
        self.expect(stored);
        Ok(Content::with_holes(size, extents, stored)?)
    }

    fn long_name(&mut self, header: &Header<'_>) -> Result<Vec<u8>, Error> {
        let mut name = self.extension(header.size()?)?;
        if let Some(end) = name.iter().position(|byte| *byte == 0) {
            name.truncate(end);
        }
        Ok(name)
    }

    fn extension(&mut self, size: u64) -> Result<Vec<u8>, Error> {
        self.count_extension(size)?;
        self.expect(size);
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn count_extension(&mut self, size: u64) -> Result<(), Error> {
        self.extension_bytes = self.extension_bytes.saturating_add(size);
        let max = self.extension_bytes_max;
        if self.extension_bytes > max {
            Err(Exceeded { what: "bytes of names in one entry", max }.into())
        } else {
            Ok(())
        }
    }

    fn expect(&mut self, size: u64) {
        self.left = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    fn pass_over(&mut self) -> Result<(), Error> {
        io::copy(self, &mut io::sink())?;
        let padding = std::mem::take(&mut self.padding);
        let passed = io::copy(&mut (&mut self.inner).take(padding), &mut io::sink())?;
        if passed < padding { Err(Malformed("it ends in the middle").into()) } else { Ok(()) }
    }

    /// Reads a block. The archive ends with a block of zeros, or when the stream ends between
    /// entries.
    fn block(&mut self) -> Result<Option<Block>, Error> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.inner.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(Malformed("it ends in the middle").into()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(block.iter().any(|byte| *byte != 0).then_some(block))
    }
}

/// Reads the data of the current entry.
impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.inner.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
