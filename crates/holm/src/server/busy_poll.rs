//! Keeps a thread awake for a moment after it has served something, while it serves one connection
//! only.
//!
//! A request that is passed on is answered a moment later, and a client that sends one request after
//! the other sends the next. It takes longer to wake a sleeping thread than to serve either of them.
//! With several connections something is always to be done, so the thread sleeps as usual.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A connection is the only one if no other was served for this long.
const ALONE_AFTER: Duration = Duration::from_millis(1);

/// Belongs to one thread, which alone changes it: the atomics are only there because tasks can be
/// sent to that thread. Times are in nanoseconds since `begun`.
pub(super) struct BusyPoll {
    span: Duration,
    begun: Instant,
    connections: AtomicU64,
    /// The connection that was served last, when that was, and since when it is the only one.
    last: AtomicU64,
    last_at: AtomicU64,
    alone_since: AtomicU64,
    served: Notify,
}

impl BusyPoll {
    /// Polls for `span`; zero means never.
    pub(super) fn new(span: Duration) -> Self {
        Self {
            span,
            begun: Instant::now(),
            connections: AtomicU64::new(0),
            last: AtomicU64::new(0),
            last_at: AtomicU64::new(0),
            alone_since: AtomicU64::new(0),
            served: Notify::new(),
        }
    }

    /// Serves a connection, and notes whenever something was done for it.
    pub(super) async fn watch<F: Future>(&self, serving: F) -> F::Output {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let mut serving = pin!(serving);
        poll_fn(|context| {
            let polled = serving.as_mut().poll(context);
            self.note(connection);
            polled
        })
        .await
    }

    fn note(&self, connection: u64) {
        let now = self.now();
        self.last_at.store(now, Ordering::Relaxed);
        if self.last.swap(connection, Ordering::Relaxed) != connection {
            self.alone_since.store(now, Ordering::Relaxed);
        }
        if self.is_due() {
            self.served.notify_one();
        }
    }

    /// Polls for events after each time that something was served. Never ends.
    pub(super) async fn run(&self) {
        loop {
            self.served.notified().await;
            while self.is_due() {
                // Whoever else wants this core comes first: it may be the program that is waited for.
                thread::yield_now();
                tokio::task::yield_now().await;
            }
        }
    }

    fn is_due(&self) -> bool {
        let now = self.now();
        let since = |time: &AtomicU64| {
            Duration::from_nanos(now.saturating_sub(time.load(Ordering::Relaxed)))
        };
        since(&self.last_at) < self.span && since(&self.alone_since) >= ALONE_AFTER
    }

    fn now(&self) -> u64 {
        // Enough for 500 years.
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;
    use tokio::time::advance;

    const SPAN: Duration = Duration::from_micros(50);

    #[tokio::test(start_paused = true)]
    async fn it_is_due_for_a_moment_after_the_only_connection_was_served() {
        let busy = BusyPoll::new(SPAN);
        busy.note(1);
        assert!(!busy.is_due());
        advance(ALONE_AFTER).await;
        assert!(!busy.is_due());
        busy.note(1);
        assert!(busy.is_due());
        advance(SPAN - Duration::from_nanos(1)).await;
        assert!(busy.is_due());
        advance(Duration::from_nanos(1)).await;
        assert!(!busy.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_not_due_while_connections_take_turns() {
        let busy = BusyPoll::new(SPAN);
        for turn in 0..20 {
            advance(ALONE_AFTER).await;
            busy.note(1 + turn % 2);
            assert!(!busy.is_due(), "{turn}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_span_it_is_never_due() {
        let busy = BusyPoll::new(Duration::ZERO);
        busy.note(1);
        advance(ALONE_AFTER * 2).await;
        busy.note(1);
        assert!(!busy.is_due());
    }

    #[tokio::test]
    async fn what_is_watched_runs_beside_the_polling() {
        let busy = BusyPoll::new(Duration::from_secs(3600));
        let work = busy.watch(async {
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
            ready(7).await
        });
        tokio::select! {
            () = busy.run() => unreachable!("it never ends"),
            done = work => assert_eq!(done, 7),
        }
        assert!(busy.is_due());
    }
}
