//! Notices a workload that has been silent for too long.

use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// When the body of a request was last read; shared between the body and its connection.
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

/// Measures silence. The timer is set once for a connection, not for each request. When it fires,
/// it checks how long the silence has really been.
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

    /// Begins a request.
    pub(super) fn begin(&mut self, last_sent: Option<LastSent>, limit: Duration) {
        self.last_sent = last_sent;
        self.received();
        if limit != self.limit {
            self.limit = limit;
            self.timer.as_mut().reset(self.last_received + limit);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tokio::time::advance;

    const LIMIT: Duration = Duration::from_secs(100);

    fn is_too_long(silence: &mut Silence) -> bool {
        silence.is_too_long(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test(start_paused = true)]
    async fn every_byte_of_either_side_begins_the_silence_anew() {
        let mut silence = Silence::new(LIMIT * 9);
        let sent = LastSent::now();
        silence.begin(Some(sent.clone()), LIMIT);
        for round in 0..20 {
            advance(LIMIT - Duration::from_secs(1)).await;
            assert!(!is_too_long(&mut silence), "{round}");
            if round % 2 == 0 { sent.touch() } else { silence.received() }
        }
        advance(LIMIT).await;
        assert!(is_too_long(&mut silence));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_the_limit_of_its_last_request() {
        let mut silence = Silence::new(LIMIT);
        silence.begin(None, LIMIT * 9);
        advance(LIMIT * 8).await;
        assert!(!is_too_long(&mut silence));
        silence.begin(None, LIMIT);
        advance(LIMIT).await;
        assert!(is_too_long(&mut silence));
    }
}
