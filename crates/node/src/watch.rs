//! Runs one thread that learns of the end of every first process.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// How many events are taken at once.
const BATCH: usize = 64;
const END: u64 = u64::MAX;

pub(crate) struct Watch {
    poll: Arc<OwnedFd>,
    end: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread, which calls `ended` with the key of each process that has ended.
    pub(crate) fn start(ended: impl Fn(u64) + Send + 'static) -> io::Result<Self> {
        let poll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        epoll::add(&poll, &end, EventData::new_u64(END), EventFlags::IN)?;
        let watched = Arc::clone(&poll);
        let thread =
            std::thread::Builder::new().name("watch".into()).spawn(move || run(&watched, ended))?;
        Ok(Self { poll, end, thread: Some(thread) })
    }

    /// Watches a process. `key` must not be [`u64::MAX`].
    pub(crate) fn add(&self, process: impl AsFd, key: u64) -> io::Result<()> {
        Ok(epoll::add(
            &self.poll,
            process,
            EventData::new_u64(key),
            EventFlags::IN | EventFlags::ONESHOT,
        )?)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The write cannot block, because nothing else was written to the eventfd.
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(poll: &OwnedFd, ended: impl Fn(u64)) {
    let mut events = Vec::with_capacity(BATCH);
    loop {
        match epoll::wait(poll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "cannot wait for the end of instances");
                return;
            }
        }
        for event in events.drain(..) {
            match event.data.u64() {
                END => return,
                key => ended(key),
            }
        }
    }
}
