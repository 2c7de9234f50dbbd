//! Limits that hold, and the count of what was used.
//!
//! What a call may take at most is reserved before it is made, and settled when it has ended. The
//! amounts come out of *grants*: each server takes pieces of a limit's amount out of the store, in
//! transactions in which `used + what all servers hold <= amount`, so servers need not ask each
//! other. Reservations and settlements are written into a journal before the call goes on
//! ([`journal`]); the background (`keeper`) syncs it, moves it into the store in batches, and fetches
//! grants ahead of need. After a kill the journal says what was in flight, and that counts in full.
//!
//! ```text
//! window    when a limit begins anew
//! apart     how many names that callers choose are counted apart
//! account   one window of a limit of one subject: the rule of what fits, and who waits
//! state     all accounts, the journal, and what is not in the store yet, under one lock
//! journal   records in files: length, checksum, content
//! replay    what the journal says at a start
//! keeper    the background
//! ```

mod account;
mod apart;
mod journal;
mod keeper;
mod replay;
mod state;
#[cfg(test)]
mod tests;
mod window;

use admission::{Limits, Permit, Pool};
use journal::End;
use parking_lot::Mutex;
use state::{Attempt, Settled, State, Try};
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::ids::WorkspaceId;
use types::kinds::policy::LimitPer;
use types::model_books::{Batch, Beginning, LimitAccount, Standing, used_by, word};
use types::models::{LimitMeasure, ModelCall, ModelLimit, ModelOutcome};
use types::{Timestamp, World};

pub use window::window;

/// An answer that is still to come.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where the limits of all servers are kept. An error means that it is not known whether it happened:
/// the same is asked again until it did.
pub trait Books: Send + Sync {
    /// Where a ledger goes on.
    fn begin(&self, ledger: String) -> Answer<'_, Result<Beginning, BooksError>>;
    /// Takes a batch in, once, and says how the accounts of its wants stand.
    fn keep(&self, batch: Arc<Batch>) -> Answer<'_, Result<Vec<Standing>, BooksError>>;
    /// Accounts of which a ledger holds some and others got less than they need: with the first of
    /// these, by its name.
    fn asked_for(
        &self,
        ledger: String,
    ) -> Answer<'_, Result<Vec<(LimitAccount, String)>, BooksError>>;
}

/// Why books cannot be kept now.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BooksError(pub String);

#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the journal is. One process at a time.
    pub folder: PathBuf,
    /// Which start of the machine this is. What was written during another may have been lost with
    /// the power.
    pub boot: String,
    /// How much time a power cut may take away.
    pub sync_every: Duration,
    /// How often what was settled is moved into the store, at least.
    pub keep_up_every: Duration,
    /// How long a call waits for what others may give back.
    pub wait_max: Duration,
    /// Calls that wait, in all and of one workspace.
    pub waiting: Limits,
    /// Limits × subjects × windows in memory, in all and of one workspace.
    pub accounts: Limits,
    /// Rows of usage in memory. Beyond, end users and tags are counted together until some are moved.
    pub usage_max: usize,
    /// End users, tags and the like of a workspace that are counted apart in one hour. What comes
    /// beyond them is counted together.
    pub usage_each_max: usize,
    /// A grant is this part of the limit's amount, or what a call needs.
    pub grants: i64,
    /// Accounts for which one batch asks the store. The rest comes with the next ones.
    pub wants_max: usize,
    /// After which time without calls a grant is given back.
    pub idle_after: Duration,
    /// How long the store may take for an answer when the server ends.
    pub last_wait: Duration,
    /// Bytes of a file of the journal.
    pub file_max: u64,
    /// Bytes of the journal of what the store does not have yet. Beyond, nothing can be reserved.
    pub journal_max: u64,
}

impl Settings {
    pub fn new(folder: PathBuf, boot: String) -> Self {
        Self {
            folder,
            boot,
            sync_every: Duration::from_millis(100),
            keep_up_every: Duration::from_millis(500),
            wait_max: Duration::from_secs(10),
            waiting: Limits { total: 10_000, share: 1_000 },
            accounts: Limits { total: 100_000, share: 12_500 },
            usage_max: 50_000,
            usage_each_max: 10_000,
            grants: 16,
            wants_max: 256,
            idle_after: Duration::from_secs(10),
            last_wait: Duration::from_secs(10),
            file_max: 64 << 20,
            journal_max: 1 << 30,
        }
    }
}

/// The limits and the usage of this server. Cheap to clone.
#[derive(Clone)]
pub struct Ledger(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    settings: Settings,
    books: Arc<dyn Books>,
    world: World,
    /// The number of the next reservation.
    next_id: AtomicU64,
    waiters: Pool<WorkspaceId>,
    /// Wakes the background.
    poke: Notify,
    ending: CancellationToken,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// What a call takes of a limit at most.
#[derive(Debug, Clone)]
pub struct Hold {
    pub limit: Arc<ModelLimit>,
    /// Whose use is counted: by `limit.per` the id of the model or of the workspace, the key, the end
    /// user.
    pub subject: String,
    pub most: i64,
}

/// Why a call cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("{0}")]
    OverLimit(OverLimit),
    /// Nothing can be reserved now: the store cannot be reached, the disk is full, too many wait.
    #[error("limits cannot be checked: {0}")]
    Unavailable(String),
}

/// Which limit is reached, and until when.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} allows {amount} {} in each window, {left} are left and {needs} are needed", measure_text(*.measure))]
pub struct OverLimit {
    /// The id of the limit.
    pub limit: String,
    /// What messages call it.
    pub name: String,
    pub measure: LimitMeasure,
    pub amount: i64,
    /// What could be reserved when the call was refused.
    pub left: i64,
    pub needs: i64,
    /// When the window ends.
    pub ends_at: Timestamp,
    pub retry_after: Duration,
}

/// What a limit counts, as messages say it.
pub const fn measure_text(measure: LimitMeasure) -> &'static str {
    match measure {
        LimitMeasure::Cost => "nanodollars",
        LimitMeasure::Requests => "requests",
        LimitMeasure::InputTokens => "input tokens",
        LimitMeasure::OutputTokens => "output tokens",
        LimitMeasure::TotalTokens => "tokens",
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the journal of models in {folder} is used by another process")]
    InUse { folder: String },
    #[error("the journal of models cannot be used: {0}")]
    Journal(#[from] std::io::Error),
    #[error("limits of models cannot be read: {0}")]
    Books(#[from] BooksError),
}

/// What a call may take. Settled when it has ended; dropped without that, it counts in full.
pub struct Reservation {
    shared: Arc<Shared>,
    id: u64,
    accounts: Vec<Taken>,
    /// What it counts as if nobody settles it.
    call: Option<Box<ModelCall>>,
}

/// What was taken out of one account.
#[derive(Debug, Clone)]
struct Taken {
    account: LimitAccount,
    /// What it counts as if nobody settles it.
    most: i64,
    /// Less than `most` where a call crosses its limit.
    reserved: i64,
}

impl Ledger {
    /// Reads the journal, moves what it has into the store, and starts the background.
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
            keeper: Mutex::new(None),
        });
        *shared.keeper.lock() = Some(tokio::spawn(keeper::run(shared.clone())));
        Ok(Self(shared))
    }

    /// Takes what a call may need at most of each limit that it is under. `call` is what it counts as
    /// if this server is killed meanwhile.
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
            let asked = state::asked(&holds, now);
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
                // Gives up the place in another queue, if there is one.
                waiting = Some(Waiting { shared, account: wait.account, ticket: wait.ticket });
            }
            let place = place.get_or_insert_with(|| shared.waiters.take(&call.workspace, 1));
            if place.is_err() {
                continue;
            }
            let left = Duration::from_millis(u64::try_from(left_ms.max(1)).unwrap_or(1));
            // Woken or not: another look says what came of it.
            let _ = tokio::time::timeout(left, wait.woken.notified()).await;
        }
    }

    /// Moves all that was used into the store and gives back what was not. Nothing can be reserved
    /// afterwards.
    pub async fn close(&self) {
        self.0.ending.cancel();
        let keeper = self.0.keeper.lock().take();
        if let Some(keeper) = keeper
            && let Err(error) = keeper.await
        {
            tracing::error!(%error, "the background of the ledger of models has failed");
        }
    }

    /// Moves what was used up to now into the store, for whoever wants to see it there.
    pub async fn flush(&self) {
        let told = self.0.state.lock().tell();
        self.0.poke.notify_one();
        // The background has ended: what there was is in the store already.
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

    /// The call was not made: nothing of it counts.
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
            // The reservation stays open in the journal and counts in full at the next start.
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

/// A place in the queue of an account, given up when dropped.
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

/// Whose use an account counts. What one sort of subject is called cannot be what another is called.
fn subject(per: LimitPer, subject: &str) -> String {
    let sort = match per {
        LimitPer::Model => "model",
        LimitPer::Workspace => "workspace",
        LimitPer::Key => "key",
        LimitPer::EndUser => "user",
    };
    word(&format!("{sort}:{subject}"))
}

fn ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
