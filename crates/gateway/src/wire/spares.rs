//! Connections to one instance that wait for the next request.

use super::connection::Wire;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Default)]
pub(crate) struct Spares(Mutex<VecDeque<Spare>>);

struct Spare {
    port: u16,
    since: Instant,
    wire: Box<Wire>,
}

impl Spares {
    /// Takes the most recently used one, so that the others age and are closed.
    pub(crate) fn take(&self, port: u16, life: Duration) -> Option<Box<Wire>> {
        loop {
            let mut spare = {
                let mut spares = self.0.lock();
                let at = spares.iter().rposition(|spare| spare.port == port)?;
                spares.remove(at)?
            };
            if spare.since.elapsed() < life && spare.wire.is_free() {
                return Some(spare.wire);
            }
        }
    }

    pub(crate) fn put(&self, port: u16, wire: Box<Wire>, max: usize) {
        let since = Instant::now();
        let mut spares = self.0.lock();
        if spares.len() < max {
            spares.push_back(Spare { port, since, wire });
        }
    }

    /// Closes expired connections and returns when the next one expires.
    pub(crate) fn sweep(&self, now: Instant, life: Duration) -> Option<Instant> {
        let mut spares = self.0.lock();
        while spares.front().is_some_and(|spare| spare.since + life <= now) {
            spares.pop_front();
        }
        spares.front().map(|spare| spare.since + life)
    }

    pub(crate) fn clear(&self) {
        let ended = std::mem::take(&mut *self.0.lock());
        drop(ended);
    }
}
