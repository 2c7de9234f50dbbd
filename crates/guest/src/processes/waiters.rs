//! Limits how many requests wait for the ends of processes. Each holds one of the connections that
//! this program serves, and the others must stay for requests that are answered at once.

use crate::http::Error;
use tokio::sync::{Semaphore, SemaphorePermit};

const WAITERS_MAX: usize = 512;

pub(super) struct Waiters(Semaphore);

impl Default for Waiters {
    fn default() -> Self {
        Self(Semaphore::new(WAITERS_MAX))
    }
}

impl Waiters {
    /// Takes a place, which is free again when the result is dropped.
    pub(super) fn enter(&self) -> Result<SemaphorePermit<'_>, Error> {
        self.0.try_acquire().map_err(|_| {
            Error::Unavailable(format!(
                "{WAITERS_MAX} requests wait for processes already; ask again later"
            ))
        })
    }
}
