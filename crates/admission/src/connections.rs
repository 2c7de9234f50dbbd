//! Counts connections by client and by whether they are signed in, and decides which one is closed
//! when there is no place left.
//!
//! ```text
//!           admit                    signed_in
//! accepted ──────→ stranger, idle ⇄ stranger, busy ──────→ signed in
//!                       │ 1st            │ 2nd, when nobody is idle
//!                       └────────────────┴──→ told to close, for the next one
//! ```
//!
//! A connection without valid credentials so far is a stranger. Strangers have places of their own,
//! and a newcomer always gets one: when all are taken, the stranger who has been idle longest makes
//! room, or if none is idle, the one who has been busy longest. Signed-in connections have the
//! other places, which no stranger can take. When a holder of credentials exceeds the share, the
//! surplus connections stay strangers.

use crate::{Limits, Permit, Pool, Refused};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// Connections of strangers.
    pub strangers: u64,
    /// Connections that are signed in, in total and for each holder of credentials.
    pub signed_in: Limits,
    /// Connections of one client, signed in or not.
    pub client: u64,
}

/// All connections of a server. Clones share the same state.
#[derive(Debug)]
pub struct Connections<C: Eq + Hash + Clone> {
    clients: Pool<C>,
    book: Arc<Book>,
}

impl<C: Eq + Hash + Clone> Clone for Connections<C> {
    fn clone(&self) -> Self {
        Self { clients: self.clients.clone(), book: Arc::clone(&self.book) }
    }
}

/// The part that does not depend on the type of a client.
#[derive(Debug)]
struct Book {
    strangers_max: u64,
    holders: Pool<String>,
    strangers: Mutex<Strangers>,
}

/// Strangers in the order in which they became idle or busy, oldest first.
#[derive(Debug, Default)]
struct Strangers {
    next: u64,
    idle: BTreeMap<u64, CancellationToken>,
    busy: BTreeMap<u64, CancellationToken>,
}

impl<C: Eq + Hash + Clone + Send + Sync + 'static> Connections<C> {
    pub fn new(places: Places) -> Self {
        let Places { strangers, signed_in, client } = places;
        // The total is bounded by the places already.
        let clients =
            Pool::new("connections of clients", Limits { total: u64::MAX, share: client });
        let holders = Pool::new("connections that are signed in", signed_in);
        let book = Book { strangers_max: strangers.max(1), holders, strangers: Mutex::default() };
        Self { clients, book: Arc::new(book) }
    }

    /// Takes a connection in. `client` is `None` where one address stands for many clients, such as
    /// a proxy's. Refuses only clients who have too many connections.
    pub fn admit(&self, client: Option<&C>) -> Result<Connection, Refused> {
        let permit = client.map(|client| self.clients.take(client, 1)).transpose()?;
        let closing = CancellationToken::new();
        let order = self.book.enter(&closing);
        let state =
            Mutex::new(State { requests: 0, began: false, standing: Standing::Stranger { order } });
        let permit: Option<Box<dyn Held>> = permit.map(|permit| Box::new(permit) as _);
        Ok(Connection(Arc::new(Inner {
            book: Arc::clone(&self.book),
            closing,
            state,
            _client: permit,
        })))
    }
}

impl<C: Eq + Hash + Clone> Connections<C> {
    /// Closes connections of strangers, at most this many, as newcomers do when all places are
    /// taken. For when something else runs out that every connection needs.
    pub fn make_room(&self, count: usize) {
        let mut strangers = self.book.strangers.lock();
        for _ in 0..count {
            if !strangers.close_oldest() {
                break;
            }
        }
        strangers.publish();
    }
}

/// Something that is given back when it is dropped.
trait Held: Send + Sync {}

impl<C: Eq + Hash + Send + Sync> Held for Permit<C> {}

impl Book {
    /// Gives a newcomer, who starts out idle, a place, closing another stranger's connection if
    /// needed.
    fn enter(&self, closing: &CancellationToken) -> u64 {
        let mut strangers = self.strangers.lock();
        while strangers.count() >= self.strangers_max && strangers.close_oldest() {}
        let order = strangers.add(false, closing.clone());
        strangers.publish();
        order
    }
}

impl Strangers {
    fn count(&self) -> u64 {
        (self.idle.len() + self.busy.len()) as u64
    }

    /// Tells the stranger to close who has been idle longest, or if none is idle, busy longest.
    /// Returns `false` if there is none.
    fn close_oldest(&mut self) -> bool {
        let oldest = self.idle.pop_first().or_else(|| self.busy.pop_first());
        if let Some((_, oldest)) = &oldest {
            oldest.cancel();
            let labels = [("resource", "connections of strangers"), ("scope", "server")];
            metrics::counter!("holm_admission_refused_total", &labels).increment(1);
        }
        oldest.is_some()
    }

    fn add(&mut self, busy: bool, closing: CancellationToken) -> u64 {
        let order = self.next;
        self.next += 1;
        if busy {
            self.busy.insert(order, closing)
        } else {
            self.idle.insert(order, closing)
        };
        order
    }

    /// Removes a stranger, who is not there any more if told to close.
    fn remove(&mut self, order: u64) -> Option<CancellationToken> {
        let found = self.idle.remove(&order).or_else(|| self.busy.remove(&order));
        self.publish();
        found
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    fn publish(&self) {
        metrics::gauge!("holm_admission_held", "resource" => "connections of strangers")
            .set(self.count() as f64);
    }
}

/// One connection. It counts for as long as a clone of this exists, because what a request turned
/// it into (such as a WebSocket) may outlive the request.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    book: Arc<Book>,
    closing: CancellationToken,
    state: Mutex<State>,
    _client: Option<Box<dyn Held>>,
}

#[derive(Debug)]
struct State {
    /// Requests whose answers are not finished yet.
    requests: u32,
    /// Whether there has ever been a request.
    began: bool,
    standing: Standing,
}

#[derive(Debug)]
enum Standing {
    /// `order` is the key in [`Strangers`].
    Stranger {
        order: u64,
    },
    SignedIn {
        permit: Permit<String>,
    },
}

impl Connection {
    /// Notes that a request has come. The connection is busy until the returned guard is dropped.
    pub fn begin(&self) -> Busy {
        let mut state = self.0.state.lock();
        state.began = true;
        state.requests += 1;
        if state.requests == 1 {
            self.0.reorder(&mut state, true);
        }
        Busy(self.clone())
    }

    /// Notes that valid credentials were shown, which belong to `holder`.
    pub fn signed_in(&self, holder: &str) {
        let mut state = self.0.state.lock();
        let Standing::Stranger { order } = state.standing else { return };
        // A holder with too many connections goes on as a stranger.
        let Ok(permit) = self.0.book.holders.take(&holder.to_owned(), 1) else { return };
        self.0.book.strangers.lock().remove(order);
        state.standing = Standing::SignedIn { permit };
    }

    /// Returns whose credentials were shown, if the connection has a place for those.
    pub fn holder(&self) -> Option<String> {
        match &self.0.state.lock().standing {
            Standing::Stranger { .. } => None,
            Standing::SignedIn { permit } => Some(permit.owner().clone()),
        }
    }

    /// Waits until the connection has to make room for another.
    pub async fn closing(&self) {
        self.0.closing.cancelled().await;
    }

    /// Waits for `limit`, and returns only if no request came in that time.
    pub async fn silent(&self, limit: Duration) {
        tokio::time::sleep(limit).await;
        if self.0.state.lock().began {
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&*self.0.state.lock()).finish()
    }
}

impl Inner {
    fn reorder(&self, state: &mut State, busy: bool) {
        let Standing::Stranger { order } = &mut state.standing else { return };
        let mut strangers = self.book.strangers.lock();
        if let Some(closing) = strangers.remove(*order) {
            *order = strangers.add(busy, closing);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Standing::Stranger { order } = self.state.get_mut().standing {
            self.book.strangers.lock().remove(order);
        }
    }
}

/// Marks a request as being in progress, until its answer has ended.
#[derive(Debug)]
pub struct Busy(Connection);

impl Busy {
    pub fn connection(&self) -> &Connection {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let inner = &self.0.0;
        let mut state = inner.state.lock();
        state.requests -= 1;
        if state.requests == 0 {
            inner.reorder(&mut state, false);
        }
    }
}

#[cfg(test)]
mod tests;
