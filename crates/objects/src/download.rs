//! Reads a stream part by part.

use crate::{Error, Folder, Objects, PART_BYTES, Part};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// How many parts are fetched ahead of the reader and kept in memory.
const AHEAD: usize = 3;

/// A reader of a stream. A part that differs from what was stored ends the stream with an error
/// before any of its bytes are read.
#[derive(Debug)]
pub struct Download {
    objects: Objects,
    folder: Folder,
    runtime: Handle,
    parts: std::vec::IntoIter<Part>,
    fetched: VecDeque<JoinHandle<Result<Bytes, Error>>>,
    now: Bytes,
}

impl Download {
    pub(crate) fn new(objects: Objects, folder: Folder, parts: Vec<Part>, runtime: Handle) -> Self {
        let parts = parts.into_iter();
        Self { objects, folder, runtime, parts, fetched: VecDeque::new(), now: Bytes::new() }
    }

    fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while self.fetched.len() < AHEAD
            && let Some(part) = self.parts.next()
        {
            let (objects, folder) = (self.objects.clone(), self.folder.clone());
            self.fetched.push_back(self.runtime.spawn(async move {
                let slot = Arc::clone(&objects.slots).acquire_owned().await;
                let _slot = slot.map_err(|_| Error::Interrupted)?;
                let content = objects.read(&folder, &part.digest, PART_BYTES as u64).await?;
                match content.len() as u64 == part.size_bytes {
                    true => Ok(content),
                    false => Err(Error::Corrupt(part.digest.into())),
                }
            }));
        }
        let Some(oldest) = self.fetched.pop_front() else { return Ok(None) };
        self.runtime.block_on(oldest).map_err(|_| Error::Interrupted)?.map(Some)
    }
}

impl io::Read for Download {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.now.is_empty() {
            match self.next().map_err(io::Error::other)? {
                Some(part) => self.now = part,
                None => return Ok(0),
            }
        }
        let taken = into.len().min(self.now.len());
        self.now.copy_to_slice(&mut into[..taken]);
        Ok(taken)
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        self.fetched.iter().for_each(JoinHandle::abort);
    }
}
