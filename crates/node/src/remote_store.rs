//! A store outside this machine for the files of snapshots, and for volumes that others begin with.

#[cfg(test)]
pub(crate) mod memory;

use crate::names::Owner;
use serde::{Deserialize, Serialize};
use std::io::{self, BufReader, BufWriter, Read, Write};

const ZSTD_LEVEL: i32 = 3;
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a stream into the writer that it is given.
pub type WriteStream<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;
/// Reads a stream to its end.
pub type ReadStream<'a> = &'a mut dyn FnMut(&mut dyn Read) -> io::Result<()>;

/// A stream that a remote store has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteCopy {
    /// Used to find and to check it.
    pub digest: String,
    /// The size of the stream.
    pub size_bytes: u64,
}

/// Keeps streams outside this machine, each under an owner and a name. Calls block for as long as a
/// stream takes.
pub trait RemoteStore: std::fmt::Debug + Send + Sync + 'static {
    /// Stores a stream. It is durable when this returns.
    fn put(&self, owner: &Owner, name: &str, write: WriteStream<'_>) -> io::Result<RemoteCopy>;

    /// Reads a stream back. Never returns a byte that differs from what was stored.
    fn get(&self, owner: &Owner, name: &str, digest: &str, read: ReadStream<'_>) -> io::Result<()>;

    /// Removes all streams of this name, including unfinished ones.
    fn remove(&self, owner: &Owner, name: &str) -> io::Result<()>;

    /// Lists the names of which anything is stored.
    fn list(&self) -> io::Result<Vec<(Owner, String)>>;
}

/// Compresses what `write` writes.
pub(crate) fn compress(
    into: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let packed = zstd::Encoder::new(into, ZSTD_LEVEL)?;
    let mut buffer = BufWriter::with_capacity(BUFFER_BYTES, packed);
    write(&mut buffer)?;
    let packed = buffer.into_inner().map_err(io::IntoInnerError::into_error)?;
    packed.finish().map(drop)
}

/// Hands over what [`compress`] was given.
pub(crate) fn decompress(
    from: &mut dyn Read,
    read: impl FnOnce(&mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    read(&mut BufReader::with_capacity(BUFFER_BYTES, zstd::Decoder::new(from)?))
}
