//! Connections that wait for the next request.

use super::connection::Wire;
use super::reusable::Reusable;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Connections, each with a note of its owner. The one that waits longest comes first.
pub(crate) struct Queue<C, N>(VecDeque<Spare<C, N>>);

pub(crate) struct Spare<C, N> {
    connection: Box<C>,
    note: N,
    since: Instant,
}

impl<C, N> Default for Queue<C, N> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<C: Reusable, N> Queue<C, N> {
    /// Takes the most recently used one, so that the others age and are closed. Those of other
    /// runtimes are left alone: each event of theirs would wake another thread.
    pub(crate) fn take(&mut self, fits: impl Fn(&N) -> bool) -> Option<Spare<C, N>> {
        let runtime = Handle::current().id();
        let fits = |spare: &Spare<C, N>| fits(&spare.note) && spare.connection.runtime() == runtime;
        let at = self.0.iter().rposition(fits)?;
        self.0.remove(at)
    }

    /// Keeps a connection. If there are too many, returns the one that waited longest, which the
    /// caller closes outside of its lock.
    pub(crate) fn put(&mut self, connection: Box<C>, note: N, max: usize) -> Option<Spare<C, N>> {
        self.0.push_back(Spare { connection, note, since: Instant::now() });
        if self.0.len() > max { self.0.pop_front() } else { None }
    }

    /// Takes the first one if it has expired.
    pub(crate) fn take_expired(&mut self, now: Instant, life: Duration) -> Option<Spare<C, N>> {
        let is_over = self.0.front().is_some_and(|spare| spare.since + life <= now);
        if is_over { self.0.pop_front() } else { None }
    }

    /// Returns when the next one expires.
    pub(crate) fn expires(&self, life: Duration) -> Option<Instant> {
        self.0.front().map(|spare| spare.since + life)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<C: Reusable, N> Spare<C, N> {
    /// Returns the connection if it can still be used.
    pub(crate) fn usable(mut self, life: Duration) -> Option<Box<C>> {
        let is_usable = self.since.elapsed() < life && self.connection.is_free();
        is_usable.then_some(self.connection)
    }
}

/// Spare connections to the ports of one instance.
#[derive(Default)]
pub(crate) struct Spares(Mutex<Queue<Wire, u16>>);

impl Spares {
    pub(crate) fn take(&self, port: u16, life: Duration) -> Option<Box<Wire>> {
        loop {
            // A statement of its own, so that the lock is free while the connection is looked at.
            let spare = self.0.lock().take(|of| *of == port)?;
            if let Some(wire) = spare.usable(life) {
                return Some(wire);
            }
        }
    }

    pub(crate) fn put(&self, port: u16, wire: Box<Wire>, max: usize) {
        let surplus = self.0.lock().put(wire, port, max);
        drop(surplus);
    }

    /// Closes expired connections and returns when the next one expires.
    pub(crate) fn sweep(&self, now: Instant, life: Duration) -> Option<Instant> {
        let mut spares = self.0.lock();
        while spares.take_expired(now, life).is_some() {}
        spares.expires(life)
    }

    pub(crate) fn clear(&self) {
        let ended = std::mem::take(&mut *self.0.lock());
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime;

    const LIFE: Duration = Duration::from_secs(60);

    struct Connection {
        runtime: runtime::Id,
        is_free: bool,
    }

    impl Connection {
        fn new() -> Box<Self> {
            Box::new(Self { runtime: Handle::current().id(), is_free: true })
        }
    }

    impl Reusable for Connection {
        fn runtime(&self) -> runtime::Id {
            self.runtime
        }

        fn is_free(&mut self) -> bool {
            self.is_free
        }
    }

    fn notes(queue: &mut Queue<Connection, u16>) -> Vec<u16> {
        std::iter::from_fn(|| queue.take(|_| true)).map(|spare| spare.note).collect()
    }

    #[tokio::test]
    async fn a_connection_is_taken_only_by_its_own_runtime() {
        let mut queue = Queue::default();
        queue.put(Connection::new(), 80, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let _inside = other.enter();
                assert!(queue.take(|_| true).is_none());
            });
        });
        assert!(queue.take(|port| *port == 81).is_none());
        assert!(queue.take(|port| *port == 80).is_some());
    }

    #[tokio::test]
    async fn the_one_that_waited_longest_makes_room_and_the_last_used_is_taken_first() {
        let mut queue = Queue::default();
        let surplus: Vec<_> = (1..=3)
            .filter_map(|note| queue.put(Connection::new(), note, 2))
            .map(|spare| spare.note)
            .collect();
        assert_eq!(surplus, [1]);
        assert_eq!(notes(&mut queue), [3, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_waited_too_long_or_was_closed_is_not_used() {
        let mut queue = Queue::default();
        queue.put(Connection::new(), 1, 9);
        tokio::time::advance(LIFE).await;
        queue.put(Connection::new(), 2, 9);
        queue.put(Box::new(Connection { is_free: false, ..*Connection::new() }), 3, 9);
        let mut usable = || queue.take(|_| true).unwrap().usable(LIFE).is_some();
        assert_eq!([usable(), usable(), usable()], [false, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_expired_are_taken_in_turn() {
        let mut queue = Queue::default();
        let begun = Instant::now();
        queue.put(Connection::new(), 1, 9);
        tokio::time::advance(LIFE / 2).await;
        queue.put(Connection::new(), 2, 9);
        assert!(queue.take_expired(Instant::now(), LIFE).is_none());
        assert_eq!(queue.expires(LIFE), Some(begun + LIFE));
        assert_eq!(queue.take_expired(begun + LIFE, LIFE).map(|spare| spare.note), Some(1));
        assert!(queue.take_expired(begun + LIFE, LIFE).is_none());
        assert_eq!(notes(&mut queue), [2]);
    }
}
