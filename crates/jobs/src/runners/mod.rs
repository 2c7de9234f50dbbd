//! Runners for the workflows of a code host: each workflow job whose labels name one of our jobs
//! gets a runner of its own.
//!
//! ```text
//! code host ──webhook──▶ Runners::take ──┐
//!     ▲   ◀──polls── polls ──────────────┤ sightings        ┌─▶ starts: register a runner, start its execution
//!     │                                  ▼                  │          look whether it picked up in time
//!     └──── register, remove ──── rows (workflow_jobs) ─due─┤
//!                                                           └─▶ leaves: remove runners that nobody needs
//! ```
//!
//! All decisions are made in [`rules`], from one locked row and what the code host said about it.
//! Every row with something left to do has a time when it is due, and whoever works on it first
//! moves that time forward. This is how several servers share the work, and how another server
//! takes over what one of them dropped. Webhooks only make it fast; nothing depends on them,
//! because the code host is polled as well.
//!
//! A runner is removed from the code host before its execution is ended. The code host refuses to
//! remove a runner that is busy, so no workflow job is ever cut off.

mod connections;
mod host;
mod intake;
mod leaves;
mod names;
mod polls;
mod rows;
mod rules;
mod settings;
mod starter;
mod starts;
mod webhooks;

pub use intake::WebhookRefused;
pub use rules::Progress;
pub use settings::Settings;
pub use starter::{StartError, Starter};
pub use webhooks::{WEBHOOK_BYTES_MAX, Webhook};

use admission::Pool;
use host::{CodeHost, Fault};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use types::Timestamp;

/// The longest sleep between looks for work. It is short because clocks of machines get adjusted
/// and other servers write rows too.
const NAP: Duration = Duration::from_secs(1);
const NAP_AFTER_FAILURE: Duration = Duration::from_secs(5);
/// Rows handled at once.
const BATCH: i64 = 64;
/// Waits after the code host failed: because it cannot be reached, or because it refuses and
/// somebody has to fix something.
const UNREACHABLE_S: i64 = 10;
const REFUSED_S: i64 = 60;

/// The HTTP client for the code host could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("failed to prepare connections to the code host")]
pub struct NoClient(#[source] reqwest::Error);

/// All runners of this installation. Cheap to clone.
#[derive(Clone)]
pub struct Runners(Arc<Inner>);

struct Inner {
    store: Store,
    settings: Settings,
    host: CodeHost,
    starter: Arc<dyn Starter>,
    wake: Notify,
    /// Webhooks that are being handled, by the name of the workspace in their address.
    webhooks: Pool<String>,
    /// When to next check which repositories are served, and to delete old rows.
    survey_at: Mutex<Timestamp>,
}

impl Runners {
    pub fn new(
        store: Store,
        settings: Settings,
        starter: Arc<dyn Starter>,
    ) -> Result<Self, NoClient> {
        let host = CodeHost::new(&settings, store.world().clone()).map_err(NoClient)?;
        let webhooks = Pool::new("webhooks of the code host", intake::AT_ONCE);
        let (wake, survey_at) = (Notify::new(), Mutex::default());
        Ok(Self(Arc::new(Inner { store, settings, host, starter, wake, webhooks, survey_at })))
    }

    /// Keeps runners and workflow jobs in step until shutdown begins.
    pub async fn run(&self, ending: CancellationToken) {
        let loops = async {
            tokio::join!(
                self.again_and_again(|| self.start_due()),
                self.again_and_again(|| self.leave_due()),
                self.again_and_again(|| self.poll_due()),
            )
        };
        ending.run_until_cancelled(Box::pin(loops)).await;
    }

    /// Does everything that is due now, once, and returns how much that was.
    pub async fn turn(&self) -> Result<usize, store::Error> {
        Ok(self.poll_due().await? + self.start_due().await? + self.leave_due().await?)
    }

    async fn again_and_again<F: Future<Output = Result<usize, store::Error>>>(
        &self,
        turn: impl Fn() -> F,
    ) {
        loop {
            let nap = match turn().await {
                Ok(0) => NAP,
                Ok(_) => continue,
                Err(error) => {
                    tracing::error!(%error, "runners could not be looked after; it is tried again");
                    NAP_AFTER_FAILURE
                }
            };
            let _ = tokio::time::timeout(nap, self.0.wake.notified()).await;
        }
    }

    /// Works on `items`, as many at once as there may be requests, because a claim must not run out
    /// while its request waits for its turn. Returns for how many there was something to do.
    async fn each<T, F>(&self, items: Vec<T>, work: impl Fn(Self, T) -> F) -> usize
    where
        F: Future<Output = Result<bool, store::Error>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        let mut items = items.into_iter();
        let at_once = self.0.settings.requests_max;
        items.by_ref().take(at_once).for_each(|item| drop(tasks.spawn(work(self.clone(), item))));
        let mut done = 0;
        while let Some(result) = tasks.join_next().await {
            match result {
                Ok(Ok(worked)) => done += usize::from(worked),
                Ok(Err(error)) => {
                    tracing::error!(%error, "a runner could not be looked after; it is tried again")
                }
                Err(error) => {
                    tracing::error!(%error, "work on a runner ended early; it is tried again")
                }
            }
            if let Some(item) = items.next() {
                tasks.spawn(work(self.clone(), item));
            }
        }
        done
    }

    fn now(&self) -> Timestamp {
        self.0.store.world().now()
    }

    /// Returns when to try again after a fault.
    fn again(&self, fault: &Fault) -> Timestamp {
        let now = self.now();
        match fault {
            Fault::Limited { until } => *until,
            Fault::Unreachable(_) | Fault::TooMany(_) => now.plus_s(UNREACHABLE_S),
            Fault::Refused { .. } | Fault::Credentials(_) => now.plus_s(REFUSED_S),
        }
    }
}
