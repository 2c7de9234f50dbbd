//! Stores a stream while it is being written.

use crate::{Error, Folder, Objects, PART_BYTES, Part, Parts, Stored};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A writer that stores a stream. Writing waits until one of the service's slots is free.
///
/// If it is dropped before [`Upload::finish`], it leaves parts behind that no list names. Either
/// the owner of the folder removes it, or the same stream is put again and uses them.
#[derive(Debug)]
pub struct Upload {
    objects: Objects,
    folder: Folder,
    runtime: Handle,
    part: Vec<u8>,
    size_bytes: u64,
    parts: Vec<Part>,
    sent: VecDeque<JoinHandle<Result<Part, Error>>>,
}

impl Upload {
    pub(crate) fn new(objects: Objects, folder: Folder, runtime: Handle) -> Self {
        let (parts, sent) = (Vec::new(), VecDeque::new());
        Self { objects, folder, runtime, part: Vec::new(), size_bytes: 0, parts, sent }
    }

    /// Waits until everything is stored.
    pub fn finish(mut self) -> Result<Stored, Error> {
        if !self.part.is_empty() {
            self.send()?;
        }
        while !self.sent.is_empty() {
            self.take_in()?;
        }
        let parts = Parts { parts: std::mem::take(&mut self.parts) };
        let list = serde_json::to_vec(&parts).map_err(|error| Error::service(&error))?;
        let list = self.objects.write(&self.folder, Bytes::from(list));
        let list = self.runtime.block_on(list)?;
        Ok(Stored { digest: list.digest, size_bytes: self.size_bytes })
    }

    /// Sends the current part, which is full or the last one.
    fn send(&mut self) -> Result<(), Error> {
        let slot = Arc::clone(&self.objects.slots).acquire_owned();
        let slot = self.runtime.block_on(slot).map_err(|_| Error::Interrupted)?;
        // If a part has failed, there is no use in sending more.
        while self.sent.front().is_some_and(JoinHandle::is_finished) {
            self.take_in()?;
        }
        let content = Bytes::from(std::mem::take(&mut self.part));
        let (objects, folder) = (self.objects.clone(), self.folder.clone());
        self.sent.push_back(self.runtime.spawn(async move {
            let _slot = slot;
            objects.write(&folder, content).await
        }));
        Ok(())
    }

    fn take_in(&mut self) -> Result<(), Error> {
        let Some(oldest) = self.sent.pop_front() else { return Ok(()) };
        let part = self.runtime.block_on(oldest).map_err(|_| Error::Interrupted)??;
        self.parts.push(part);
        Ok(())
    }
}

impl io::Write for Upload {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        if self.part.capacity() == 0 {
            self.part.reserve_exact(PART_BYTES);
        }
        let taken = content.len().min(PART_BYTES - self.part.len());
        self.part.extend_from_slice(&content[..taken]);
        self.size_bytes += taken as u64;
        if self.part.len() == PART_BYTES {
            self.send().map_err(io::Error::other)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.sent.iter().for_each(JoinHandle::abort);
    }
}
