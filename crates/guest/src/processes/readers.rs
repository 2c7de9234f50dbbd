//! Limits how many requests follow output. Each may hold some of it for a reader who is slow, and the
//! workload's memory must not go to them.

use crate::http::Error;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const READERS_MAX: usize = 256;

pub(super) struct Readers(Arc<Semaphore>);

impl Default for Readers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READERS_MAX)))
    }
}

impl Readers {
    /// Takes a place, which is free again when the result is dropped.
    pub(super) fn enter(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.0.clone().try_acquire_owned().map_err(|_| {
            Error::Unavailable(format!(
                "{READERS_MAX} requests follow the output of processes already; end some first"
            ))
        })
    }
}
