//! Kept connections to providers: those of HTTP/1.1 that wait for the next request, and those of
//! HTTP/2, which carry many.

use super::dial::ProviderAddress;
use super::pieces::Pieces;
use super::wire::Wire;
use crate::models::settings::ModelSettings;
use crate::wire::Queue;
use admission::{Permit, Pool};
use hyper::client::conn::http2::SendRequest;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

#[derive(Clone)]
pub(super) struct Spares(Arc<Inner>);

struct Inner {
    providers: Mutex<HashMap<ProviderAddress, SpareConnections>>,
    permits: Pool<String>,
    place_max: usize,
    life: Duration,
    streams_max: usize,
}

#[derive(Default)]
struct SpareConnections {
    wires: Queue<Wire, Permit<String>>,
    shared: Vec<Arc<Shared>>,
}

/// An HTTP/2 connection.
pub(super) struct Shared {
    pub(super) sender: SendRequest<Pieces>,
    streams: AtomicUsize,
    /// When it last had a stream.
    used: Mutex<Instant>,
    _driving: AbortOnDropHandle<()>,
    _permit: Option<Permit<String>>,
}

/// A stream on an HTTP/2 connection.
pub(super) struct Seat(pub(super) Arc<Shared>);

impl Seat {
    fn take(shared: &Arc<Shared>) -> Self {
        shared.streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
        *self.0.used.lock() = Instant::now();
    }
}

impl Spares {
    pub(super) fn new(settings: &ModelSettings) -> Self {
        Self(Arc::new(Inner {
            providers: Mutex::default(),
            permits: Pool::new("kept connections to model providers", settings.spares),
            place_max: settings.spare_place_max,
            life: settings.spare_life,
            streams_max: settings.streams_max,
        }))
    }

    pub(super) fn take(&self, provider: &ProviderAddress) -> Option<Box<Wire>> {
        loop {
            // A statement of its own, so that the lock is free while the connection is looked at.
            let spare = self.0.providers.lock().get_mut(provider)?.wires.take(|_| true)?;
            if let Some(wire) = spare.usable(self.0.life) {
                return Some(wire);
            }
        }
    }

    /// Keeps a connection, if `owner` may have another one kept.
    pub(super) fn put(&self, provider: &ProviderAddress, owner: &String, wire: Box<Wire>) {
        let Ok(permit) = self.0.permits.take(owner, 1) else { return };
        let mut providers = self.0.providers.lock();
        let kept = match providers.get_mut(provider) {
            Some(kept) => kept,
            None => providers.entry(provider.clone()).or_default(),
        };
        let surplus = kept.wires.put(wire, permit, self.0.place_max);
        drop(providers);
        // Closed outside of the lock.
        drop(surplus);
    }

    pub(super) fn seat(&self, provider: &ProviderAddress) -> Option<Seat> {
        let providers = self.0.providers.lock();
        let free = |shared: &&Arc<Shared>| {
            shared.sender.is_ready() && shared.streams.load(Ordering::Relaxed) < self.0.streams_max
        };
        providers.get(provider)?.shared.iter().find(free).map(Seat::take)
    }

    pub(super) fn share(
        &self,
        provider: &ProviderAddress,
        owner: &String,
        sender: SendRequest<Pieces>,
        driving: AbortOnDropHandle<()>,
    ) -> Seat {
        let permit = self.0.permits.take(owner, 1).ok();
        let is_kept = permit.is_some();
        let shared = Arc::new(Shared {
            sender,
            streams: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            _driving: driving,
            _permit: permit,
        });
        let seat = Seat::take(&shared);
        let mut providers = self.0.providers.lock();
        let kept = providers.entry(provider.clone()).or_default();
        // Otherwise it lasts as long as its streams.
        if is_kept && kept.shared.len() < self.0.place_max {
            kept.shared.push(shared);
        }
        seat
    }

    /// Closes connections that were unused for too long. Ends when the pool is dropped.
    pub(super) async fn tidy(self) {
        let every = (self.0.life / 2).max(Duration::from_millis(100));
        let (inner, life) = (Arc::downgrade(&self.0), self.0.life);
        drop(self);
        loop {
            tokio::time::sleep(every).await;
            let Some(inner) = inner.upgrade() else { return };
            inner.sweep(life);
        }
    }
}

impl Inner {
    fn sweep(&self, life: Duration) {
        let mut ended: (Vec<_>, Vec<Arc<Shared>>) = Default::default();
        let now = Instant::now();
        self.providers.lock().retain(|_, kept| {
            while let Some(spare) = kept.wires.take_expired(now, life) {
                ended.0.push(spare);
            }
            let is_over = |shared: &mut Arc<Shared>| {
                let idle = shared.streams.load(Ordering::Relaxed) == 0
                    && shared.used.lock().elapsed() >= life;
                idle || shared.sender.is_closed()
            };
            ended.1.extend(kept.shared.extract_if(.., is_over));
            !kept.wires.is_empty() || !kept.shared.is_empty()
        });
        drop(ended);
    }
}
