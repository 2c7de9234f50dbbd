//! Notices a workload that is silent for too long.

use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// When the body of a request was last read, shared between the body and its connection.
#[derive(Clone)]
pub(crate) struct LastSent(Arc<Mutex<Instant>>);

impl LastSent {
    pub(crate) fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(super) fn touch(&self) {
        *self.0.lock() = Instant::now();
    }

    fn get(&self) -> Instant {
        *self.0.lock()
    }
}

/// The timer is set once for a connection, not for each request. When it fires, it finds out how
/// long the silence has really been.
pub(super) struct Silence {
    limit: Duration,
    last_received: Instant,
    last_sent: Option<LastSent>,
    timer: Pin<Box<Sleep>>,
}

impl Silence {
    pub(super) fn new(limit: Duration) -> Self {
        let last_received = Instant::now();
        let timer = Box::pin(sleep_until(last_received + limit));
        Self { limit, last_received, last_sent: None, timer }
    }

    /// A request begins.
    pub(super) fn begin(&mut self, last_sent: Option<LastSent>) {
        self.last_sent = last_sent;
        self.received();
    }

    pub(super) fn received(&mut self) {
        self.last_received = Instant::now();
    }

    pub(super) fn is_too_long(&mut self, cx: &mut Context<'_>) -> bool {
        while self.timer.as_mut().poll(cx).is_ready() {
            let received = self.last_received;
            let last = self.last_sent.as_ref().map_or(received, |sent| sent.get().max(received));
            let end = last + self.limit;
            if end <= Instant::now() {
                return true;
            }
            self.timer.as_mut().reset(end);
        }
        false
    }
}
