//! A store for tests: in memory, and failing when told to.

use super::{ReadStream, RemoteCopy, RemoteStore, WriteStream};
use crate::names::Owner;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What it says of any stream.
pub(crate) const DIGEST: &str = "any";

#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) streams: Mutex<HashMap<(Owner, String), Vec<u8>>>,
    pub(crate) is_away: AtomicBool,
    /// Cuts off the last byte of streams when they are read.
    pub(crate) cuts: AtomicBool,
    pub(crate) reads: AtomicUsize,
    pub(crate) removals: AtomicUsize,
}

impl Memory {
    fn ask(&self) -> io::Result<()> {
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(io::Error::other("the store is away")),
            false => Ok(()),
        }
    }
}

impl RemoteStore for Memory {
    fn put(&self, owner: &Owner, name: &str, write: WriteStream<'_>) -> io::Result<RemoteCopy> {
        self.ask()?;
        let mut stream = Vec::new();
        write(&mut stream)?;
        let size_bytes = stream.len() as u64;
        self.streams.lock().insert((owner.clone(), name.to_owned()), stream);
        Ok(RemoteCopy { digest: DIGEST.to_owned(), size_bytes })
    }

    fn get(&self, owner: &Owner, name: &str, digest: &str, read: ReadStream<'_>) -> io::Result<()> {
        self.ask()?;
        assert_eq!(digest, DIGEST);
        self.reads.fetch_add(1, Ordering::Relaxed);
        let stream = self.streams.lock().get(&(owner.clone(), name.to_owned())).cloned();
        let stream = stream.ok_or(io::ErrorKind::NotFound)?;
        let cut = usize::from(self.cuts.load(Ordering::Relaxed));
        read(&mut &stream[..stream.len() - cut])
    }

    fn remove(&self, owner: &Owner, name: &str) -> io::Result<()> {
        self.ask()?;
        self.removals.fetch_add(1, Ordering::Relaxed);
        self.streams.lock().remove(&(owner.clone(), name.to_owned()));
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(Owner, String)>> {
        self.ask()?;
        Ok(self.streams.lock().keys().cloned().collect())
    }
}
