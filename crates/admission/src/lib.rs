//! Divides what a server has only once (memory, networks, connections, streams) among its users.
//!
//! A [`Pool`] counts one such resource. No owner holds more than a share of it, and all owners
//! together never more than there is, so the caller who takes too much is the one who is refused.
//! The caller decides what counts as one owner: a workspace, a credential, an address.
//! [`Connections`] also distinguishes known callers from strangers: when the places run out, a
//! stranger makes room for the next. [`Recheck`] ends long-lived connections once their caller
//! would no longer be let in. [`Bounded`] keeps one peer from taking a whole thread with what it
//! sends before an answer, [`FrameLimited`] with frames of HTTP/2 that carry no request, and with
//! bytes without end; [`Pace`] does the latter for whatever else works on bytes. [`Turns`] has
//! callers who want to do heavy work wait instead of refusing them, and [`Locks`] those who want to
//! work on the same thing. [`Heads`] counts the requests that HTTP/2 has open at the same time.
//! [`Linger`] reads on for a while when a client is refused in the middle of its body,
//! [`LingeringClose`] in the middle of its head.

mod before_answer;
mod connections;
mod frames;
mod heads;
mod linger;
mod lingering_close;
mod locks;
mod own_address;
mod pace;
mod recheck;
mod room;
mod turns;

pub use before_answer::{BeforeAnswer, Bounded};
pub use connections::{Busy, Connection, Connections, Places};
pub use frames::FrameLimited;
pub use heads::{Head, Heads};
pub use linger::{Expected, Linger, Lingering};
pub use lingering_close::{LingeringClose, LingeringStream};
pub use locks::Locks;
pub use own_address::is_own_address;
pub use pace::Pace;
pub use recheck::{Due, Recheck, Verdict, tell_when_due};
pub use room::Room;
pub use turns::{Turn, Turns};

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

/// Most bytes that the kernel takes for a connection before they can be sent. It would take
/// megabytes (`net.ipv4.tcp_wmem`), and has one room for those of the whole machine (`tcp_mem`),
/// which some hundred peers that do not read would use up. What is on its way to a peer does not
/// count.
pub const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// How much there is of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most that all owners may hold together.
    pub total: u64,
    /// The most that one owner may hold.
    pub share: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The owner has to give something back first.
    #[error("the limit of {limit} {resource} for one owner is reached")]
    Share { resource: &'static str, limit: u64 },
    /// The server has no more to give to anybody.
    #[error("the limit of {limit} {resource} for the whole server is reached")]
    Total { resource: &'static str, limit: u64 },
}

/// One resource, and how much of it each owner holds. Clones are the same pool.
pub struct Pool<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    /// What is counted, as a plural: "open change streams". Also the label in the metrics.
    resource: &'static str,
    held: Mutex<Held<K>>,
    /// Kept, because looking it up each time would cost more than everything else here.
    gauge: OnceLock<metrics::Gauge>,
}

struct Held<K> {
    limits: Limits,
    total: u64,
    /// Has only owners who hold something.
    by_owner: HashMap<K, u64>,
}

impl<K: Eq + Hash + Clone> Pool<K> {
    pub fn new(resource: &'static str, limits: Limits) -> Self {
        let held = Mutex::new(Held { limits, total: 0, by_owner: HashMap::new() });
        Self { inner: Arc::new(Inner { resource, held, gauge: OnceLock::new() }) }
    }

    /// Takes `amount` for `owner` until the permit is dropped.
    pub fn take(&self, owner: &K, amount: u64) -> Result<Permit<K>, Refused> {
        let mut held = self.inner.held.lock();
        let refused = self.inner.refuses(&held, owner, amount);
        if let Some(refused) = refused {
            drop(held);
            let scope = if matches!(refused, Refused::Share { .. }) { "owner" } else { "server" };
            let labels = [("resource", self.inner.resource), ("scope", scope)];
            metrics::counter!("holm_admission_refused_total", &labels).increment(1);
            return Err(refused);
        }
        Ok(self.hand_out(&mut held, owner, amount))
    }

    /// Counts what an owner already has, even beyond the limits: counting something that runs does
    /// not undo it.
    pub fn adopt(&self, owner: &K, amount: u64) -> Permit<K> {
        self.hand_out(&mut self.inner.held.lock(), owner, amount)
    }

    /// Returns what all owners hold together.
    pub fn held(&self) -> u64 {
        self.inner.held.lock().total
    }

    pub fn held_by(&self, owner: &K) -> u64 {
        self.inner.held.lock().by_owner.get(owner).copied().unwrap_or(0)
    }

    pub fn limits(&self) -> Limits {
        self.inner.held.lock().limits
    }

    /// Raises the limits to these, because there is more of the resource now. Those that are higher
    /// already stay.
    pub fn raise(&self, to: Limits) {
        let limits = &mut self.inner.held.lock().limits;
        limits.total = limits.total.max(to.total);
        limits.share = limits.share.max(to.share);
    }

    fn hand_out(&self, held: &mut Held<K>, owner: &K, amount: u64) -> Permit<K> {
        held.total = held.total.saturating_add(amount);
        match held.by_owner.get_mut(owner) {
            Some(own) => *own = own.saturating_add(amount),
            None => drop(held.by_owner.insert(owner.clone(), amount)),
        }
        self.inner.publish(held);
        Permit { pool: Arc::clone(&self.inner), owner: owner.clone(), amount }
    }
}

impl<K: Eq + Hash> Inner<K> {
    fn refuses(&self, held: &Held<K>, owner: &K, amount: u64) -> Option<Refused> {
        let Limits { total, share } = held.limits;
        let own = held.by_owner.get(owner).copied().unwrap_or(0);
        if own.saturating_add(amount) > share {
            return Some(Refused::Share { resource: self.resource, limit: share });
        }
        let over = held.total.saturating_add(amount) > total;
        over.then_some(Refused::Total { resource: self.resource, limit: total })
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    fn publish(&self, held: &Held<K>) {
        let gauge = || metrics::gauge!("holm_admission_held", "resource" => self.resource);
        self.gauge.get_or_init(gauge).set(held.total as f64);
    }
}

impl<K> Clone for Pool<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K> fmt::Debug for Pool<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("resource", &self.inner.resource)
            .field("limits", &self.inner.held.lock().limits)
            .finish()
    }
}

/// An owner's part of a pool. Dropping it gives it back.
#[must_use = "a permit that is dropped is given back"]
pub struct Permit<K: Eq + Hash> {
    pool: Arc<Inner<K>>,
    owner: K,
    amount: u64,
}

impl<K: Eq + Hash> Permit<K> {
    pub fn owner(&self) -> &K {
        &self.owner
    }
}

impl<K: Eq + Hash> fmt::Debug for Permit<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("resource", &self.pool.resource)
            .field("amount", &self.amount)
            .finish()
    }
}

impl<K: Eq + Hash> Drop for Permit<K> {
    fn drop(&mut self) {
        let mut held = self.pool.held.lock();
        held.total = held.total.saturating_sub(self.amount);
        if let Some(own) = held.by_owner.get_mut(&self.owner) {
            *own = own.saturating_sub(self.amount);
            if *own == 0 {
                held.by_owner.remove(&self.owner);
            }
        }
        self.pool.publish(&held);
    }
}

#[cfg(test)]
mod tests;
