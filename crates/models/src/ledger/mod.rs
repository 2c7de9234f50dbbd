//! Limits on the use of models, and the record of what was used.
//!
//! The most that a call can use is reserved before the call, and settled when it has ended. The
//! amounts come out of *grants*: each server takes pieces of a limit's amount out of the store, in
//! transactions that keep `used + what all servers hold <= amount`, so servers need not ask each
//! other. Reservations and settlements are written to a journal before the call goes on
//! ([`journal`]). A background task (`background`) syncs the journal, moves it into the store in
//! batches, and fetches grants before they are needed. After a kill, the journal tells which calls
//! were in flight, and those count in full.
//!
//! ```text
//! hold        what a call asks of its limits, and what it got; `refused` says why it got nothing
//! window      when each window of a limit begins and ends
//! apart       caps how many names chosen by callers get a count of their own
//! account     one limit, subject and window: decides what fits, and queues who waits
//! state       all accounts, the journal, and what is not in the store yet, under one lock
//! journal     records in files: length, checksum, content
//! replay      reads the journal at a start
//! shared      the state and what works with it: calls, and the background task
//! background  what happens without a caller
//! books       the store, as a ledger sees it
//! ```

mod account;
mod apart;
mod background;
mod books;
mod hold;
mod journal;
mod refused;
mod replay;
mod settings;
mod shared;
mod state;
#[cfg(test)]
mod tests;
mod window;

use admission::{Permit, Pool};
use hold::Taken;
use journal::End;
use parking_lot::Mutex;
use settings::ms;
use shared::Shared;
use state::{Attempt, Settled, Try};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use types::World;
use types::ids::WorkspaceId;
use types::model_books::{LimitAccount, used_by};
use types::models::{ModelCall, ModelOutcome};

pub use books::{Books, BooksError};
pub use hold::Hold;
pub use refused::{OverLimit, Refused, measure_text};
pub use replay::OpenError;
pub use settings::Settings;
pub use window::window;

/// The limits and the usage that this server counts. Cheap to clone.
#[derive(Clone)]
pub struct Ledger(Arc<Shared>);

/// What a call may use. If it is dropped without being settled or given back, it counts in full.
pub struct Reservation {
    shared: Arc<Shared>,
    id: u64,
    accounts: Vec<Taken>,
    /// What is counted if the reservation is dropped. `None` once it was settled or given back.
    call: Option<Box<ModelCall>>,
}

impl Ledger {
    /// Reads the journal, moves what it holds into the store, and starts the background task.
    pub async fn open(
        settings: Settings,
        books: Arc<dyn Books>,
        world: World,
    ) -> Result<Self, OpenError> {
        let (state, next_id) = replay::open(&settings, &*books, &world).await?;
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            next_id: AtomicU64::new(next_id),
            waiters: Pool::new("requests that wait for limits of models", settings.waiting),
            settings,
            books,
            world,
            poke: Notify::new(),
            ending: CancellationToken::new(),
            background: Mutex::new(None),
        });
        *shared.background.lock() = Some(tokio::spawn(background::run(shared.clone())));
        Ok(Self(shared))
    }

    /// Reserves the most that a call can use of every limit that applies to it. `call` is what is
    /// counted if this server is killed before the call ends.
    pub async fn reserve(&self, holds: Vec<Hold>, call: ModelCall) -> Result<Reservation, Refused> {
        let shared = &self.0;
        let note =
            |error: io::Error| Refused::Unavailable(format!("the call cannot be noted: {error}"));
        let json = serde_json::to_vec(&call).map_err(|error| note(error.into()))?;
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        let began = shared.world.uptime_ms();
        let mut waiting: Option<Waiting> = None;
        let mut place: Option<Result<Permit<WorkspaceId>, admission::Refused>> = None;
        loop {
            let (now, uptime_ms) = (shared.world.now(), shared.world.uptime_ms());
            let wait_left_ms = ms(shared.settings.wait_max) - (uptime_ms - began);
            let asked = hold::asked(&holds, now);
            let attempt = Try {
                id,
                record: journal::reserved(id, &asked, &json).map_err(note)?,
                asked,
                workspace: &call.workspace,
                now,
                uptime_ms,
                ticket: waiting.as_ref().map(|waiting| waiting.ticket),
                is_last: wait_left_ms <= 0 || matches!(place, Some(Err(_))),
            };
            let attempt = shared.state.lock().attempt(&shared.settings, attempt);
            if attempt.is_poke {
                shared.poke.notify_one();
            }
            let wait = match attempt.outcome {
                Attempt::Taken(accounts) => {
                    drop(waiting);
                    let shared = shared.clone();
                    return Ok(Reservation { shared, id, accounts, call: Some(Box::new(call)) });
                }
                Attempt::Refused(refused) => return Err(refused),
                Attempt::Wait(wait) => wait,
            };
            let left_ms = wait_left_ms.min(wait.ends_at.since(now));
            if waiting.as_ref().is_none_or(|waiting| waiting.account != wait.account) {
                let shared = shared.clone();
                // Replacing it gives up the place in another queue, if there is one.
                waiting = Some(Waiting { shared, account: wait.account, ticket: wait.ticket });
            }
            let place = place.get_or_insert_with(|| shared.waiters.take(&call.workspace, 1));
            if place.is_err() {
                continue;
            }
            let left = Duration::from_millis(u64::try_from(left_ms.max(1)).unwrap_or(1));
            // Whether it was woken or the time is up, the next attempt decides.
            let _ = tokio::time::timeout(left, wait.woken.notified()).await;
        }
    }

    /// Moves everything that was used into the store and gives back the rest. Nothing can be
    /// reserved after that.
    pub async fn close(&self) {
        self.0.ending.cancel();
        let background = self.0.background.lock().take();
        if let Some(background) = background
            && let Err(error) = background.await
        {
            tracing::error!(%error, "the background of the ledger of models has failed");
        }
    }

    /// Moves what was used so far into the store, for callers that want to read it there.
    pub async fn flush(&self) {
        let told = self.0.state.lock().tell();
        self.0.poke.notify_one();
        // An error means that the background task has ended, and it moves everything before it
        // ends.
        let _ = told.await;
    }
}

impl Reservation {
    /// Counts what the call used, in the windows in which it was reserved.
    pub fn settle(mut self, call: &ModelCall) {
        if self.call.take().is_some() {
            self.finish(Some(call));
        }
    }

    /// Gives the reservation back without counting anything: the call was not made.
    pub fn give_back(mut self) {
        if self.call.take().is_some() {
            self.finish(None);
        }
    }

    fn finish(&self, call: Option<&ModelCall>) {
        let used = |taken: &Taken| call.map_or(0, |call| used_by(call, taken.account.measure));
        let used: Vec<i64> = self.accounts.iter().map(used).collect();
        self.write(&used, call);
    }

    fn write(&self, used: &[i64], call: Option<&ModelCall>) {
        let record = journal::settled(self.id, used, call.map(End::of));
        if let Err(error) = &record {
            // The reservation stays open in the journal and counts in full after the next start.
            tracing::error!(%error, "what a call used cannot be noted");
        }
        let settled = Settled {
            id: self.id,
            accounts: &self.accounts,
            used,
            record: record.ok(),
            usage: call.map(Settled::usage_of),
            uptime_ms: self.shared.world.uptime_ms(),
        };
        let is_poke = self.shared.state.lock().settle(settled, &self.shared.settings);
        if is_poke {
            self.shared.poke.notify_one();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(mut call) = self.call.take() {
            call.outcome = ModelOutcome::Interrupted;
            let most: Vec<i64> = self.accounts.iter().map(|taken| taken.most).collect();
            self.write(&most, Some(&*call));
        }
    }
}

/// A place in the queue of an account, given up on drop.
struct Waiting {
    shared: Arc<Shared>,
    account: LimitAccount,
    ticket: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.state.lock().leave(&self.account, self.ticket);
    }
}
