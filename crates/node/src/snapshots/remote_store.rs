//! A store outside this machine for the files of snapshots.

use super::SnapshotName;
use super::place::RemoteCopy;
use crate::owner::Owner;
use std::io::{self, Read, Write};

/// Writes a stream into the writer that it is given.
pub type WriteStream<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;
/// Reads a stream to its end.
pub type ReadStream<'a> = &'a mut dyn FnMut(&mut dyn Read) -> io::Result<()>;

/// Keeps streams outside this machine. Calls block for as long as a stream takes.
pub trait RemoteStore: std::fmt::Debug + Send + Sync + 'static {
    /// Stores the stream of a snapshot. It is durable when this returns.
    fn put(
        &self,
        owner: &Owner,
        name: &SnapshotName,
        write: WriteStream<'_>,
    ) -> io::Result<RemoteCopy>;

    /// Reads a stream back. Never returns a byte that differs from what was stored.
    fn get(
        &self,
        owner: &Owner,
        name: &SnapshotName,
        copy: &RemoteCopy,
        read: ReadStream<'_>,
    ) -> io::Result<()>;

    /// Removes all streams of a snapshot, including unfinished ones.
    fn remove(&self, owner: &Owner, name: &SnapshotName) -> io::Result<()>;

    /// Lists the snapshots of which anything is stored.
    fn list(&self) -> io::Result<Vec<(Owner, SnapshotName)>>;
}
