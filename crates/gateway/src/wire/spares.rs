//! Connections to one instance that wait for the next request.

use super::connection::Wire;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

#[derive(Default)]
pub(crate) struct Spares(Mutex<VecDeque<Spare>>);

struct Spare {
    port: u16,
    since: Instant,
    wire: Box<Wire>,
}

impl Spares {
    /// Takes the most recently used one, so that the others age and are closed. Those of other
    /// runtimes are left alone: each event of theirs would wake another thread.
    pub(crate) fn take(&self, port: u16, life: Duration) -> Option<Box<Wire>> {
        let runtime = Handle::current().id();
        let fits = |spare: &Spare| spare.port == port && spare.wire.runtime() == runtime;
        loop {
            let mut spare = {
                let mut spares = self.0.lock();
                let at = spares.iter().rposition(fits)?;
                spares.remove(at)?
            };
            if spare.since.elapsed() < life && spare.wire.is_free() {
                return Some(spare.wire);
            }
        }
    }

    /// Keeps a connection. If there are too many, the one that waited longest is closed.
    pub(crate) fn put(&self, port: u16, wire: Box<Wire>, max: usize) {
        let since = Instant::now();
        let mut spares = self.0.lock();
        spares.push_back(Spare { port, since, wire });
        let surplus = if spares.len() > max { spares.pop_front() } else { None };
        drop(spares);
        // Closed outside of the lock.
        drop(surplus);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use tokio::net::{TcpListener, TcpStream};

    const LIFE: Duration = Duration::from_secs(60);

    /// Opens a connection. Nobody may close the other side, which is returned too.
    async fn wire() -> (Box<Wire>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (other, _) = listener.accept().await.unwrap();
        (Wire::open(stream, &Settings::default()).await.unwrap(), other)
    }

    #[tokio::test]
    async fn a_connection_is_taken_only_by_its_own_runtime() {
        let (spares, (wire, _other)) = (Spares::default(), wire().await);
        spares.put(80, wire, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let _inside = other.enter();
                assert!(spares.take(80, LIFE).is_none());
            });
        });
        assert!(spares.take(81, LIFE).is_none());
        assert!(spares.take(80, LIFE).is_some());
    }

    #[tokio::test]
    async fn the_one_that_waited_longest_makes_room() {
        let spares = Spares::default();
        let (first, second) = (wire().await, wire().await);
        spares.put(80, first.0, 1);
        spares.put(81, second.0, 1);
        assert!(spares.take(80, LIFE).is_none());
        assert!(spares.take(81, LIFE).is_some());
    }
}
