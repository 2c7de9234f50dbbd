//! Queues of requests that cannot be served yet. How many wait, and for how long, is limited.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// One queue for each thing that is waited for. A queue without waiters is removed.
#[derive(Default)]
pub(crate) struct WaitQueues {
    queues: Mutex<HashMap<String, Queue>>,
    /// Set when nothing that is waited for will come any more.
    closed: AtomicBool,
}

#[derive(Default)]
struct Queue {
    waiting: usize,
    changed: Arc<Notify>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// How many may wait in one queue.
    pub(crate) waiting: usize,
    pub(crate) until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitError {
    Full,
    TimedOut,
    Closed,
}

impl WaitQueues {
    /// Calls `ready` now and after each [`notify`](Self::notify), until it returns an answer.
    pub(crate) async fn wait<T>(
        &self,
        key: &str,
        limit: Limit,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        let waiter = self.join(key, limit.waiting).ok_or(WaitError::Full)?;
        loop {
            let mut changed = pin!(waiter.changed.notified());
            // Enabled before `ready` is asked, so that a change in between is not missed.
            changed.as_mut().enable();
            if let Some(answer) = ready() {
                return Ok(answer);
            }
            if self.closed.load(Ordering::SeqCst) {
                return Err(WaitError::Closed);
            }
            timeout_at(limit.until, changed).await.map_err(|_| WaitError::TimedOut)?;
        }
    }

    /// Lets all waiters of the queue ask again.
    pub(crate) fn notify(&self, key: &str) {
        if let Some(queue) = self.queues.lock().get(key) {
            queue.changed.notify_waiters();
        }
    }

    /// Ends all waiting, now and from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.queues.lock().values().for_each(|queue| queue.changed.notify_waiters());
    }

    pub(crate) fn waiting(&self, key: &str) -> usize {
        self.queues.lock().get(key).map_or(0, |queue| queue.waiting)
    }

    fn join<'q>(&'q self, key: &'q str, max: usize) -> Option<Waiter<'q>> {
        if max == 0 {
            return None;
        }
        let mut queues = self.queues.lock();
        let queue = match queues.get_mut(key) {
            Some(queue) => queue,
            None => queues.entry(key.to_owned()).or_default(),
        };
        if queue.waiting >= max {
            return None;
        }
        queue.waiting += 1;
        Some(Waiter { queues: self, key, changed: Arc::clone(&queue.changed) })
    }
}

struct Waiter<'q> {
    queues: &'q WaitQueues,
    key: &'q str,
    changed: Arc<Notify>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.queues.lock();
        if let Some(queue) = queues.get_mut(self.key) {
            queue.waiting -= 1;
            if queue.waiting == 0 {
                queues.remove(self.key);
            }
        }
    }
}
