//! Sends the calls stored in `store::deliveries`, each at least once, until they are answered or
//! given up.
//!
//! One loop claims what is due, as far as there is room, and records the outcomes. A claim without
//! an outcome lapses, so a call that a killed server was sending is sent again. Receivers recognize
//! repetitions by the id of the delivery.

mod gate;
mod rules;
mod send;

pub use gate::Lookup;

use gate::{Gate, system_lookup};
use send::Client;
use std::collections::BTreeMap;
use std::time::Duration;
use store::deliveries::{self, Attempt, Claimed, Claiming};
use store::{Store, Tx};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use types::Timestamp;
use types::ids::WorkspaceId;

/// Settings of deliveries.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Attempts at one delivery, unless the delivery has its own number.
    pub attempts_max: i64,
    /// How long a receiver has to answer; later answers do not count.
    pub timeout: Duration,
    /// Calls made at the same time.
    pub concurrency: usize,
    /// Calls of one workspace made at the same time.
    pub workspace_concurrency: usize,
    /// Pause after the first failed attempt; it doubles with each further one, up to `pause_max`.
    pub pause: Duration,
    pub pause_max: Duration,
    /// How often to look for new deliveries.
    pub poll: Duration,
    /// Hosts, without ports, that may be called although they are not on the internet.
    pub inside: Vec<String>,
}

/// How much longer than one attempt's time-out a claim lasts.
const LEASE_EXTRA: Duration = Duration::from_secs(30);

/// How much longer than the longest pause or claim a delivery may be put off, because the clocks of
/// servers differ.
const CLOCKS_APART: Duration = Duration::from_secs(60);

/// The HTTP client could not be created.
#[derive(Debug, thiserror::Error)]
#[error("no client for callbacks can be made")]
pub struct NoClient(#[from] reqwest::Error);

pub struct Sender {
    store: Store,
    settings: Settings,
    client: Client,
}

/// Calls in progress, and their number for each workspace.
#[derive(Default)]
struct Flights {
    tasks: JoinSet<WorkspaceId>,
    busy: BTreeMap<WorkspaceId, i64>,
}

impl Flights {
    fn land(&mut self, workspace: &WorkspaceId) {
        if let Some(count) = self.busy.get_mut(workspace) {
            *count -= 1;
        }
        self.busy.retain(|_, count| *count > 0);
    }

    /// Waits for a call to end, then takes all that have ended. Without any calls it waits for
    /// ever.
    async fn landed(&mut self) {
        match self.tasks.join_next().await {
            None => std::future::pending().await,
            Some(first) => {
                let ended =
                    std::iter::once(first).chain(std::iter::from_fn(|| self.tasks.try_join_next()));
                let ended: Vec<_> = ended.collect();
                for workspace in ended.into_iter().flatten() {
                    self.land(&workspace);
                }
                // A task that panicked cannot say which workspace it was for.
                if self.tasks.is_empty() {
                    self.busy.clear();
                }
            }
        }
    }
}

impl Sender {
    pub fn new(store: Store, settings: Settings) -> Result<Self, NoClient> {
        Self::looking_up(store, settings, system_lookup)
    }

    /// Like [`Sender::new`], with its own way to find the addresses of names.
    pub fn looking_up(
        store: Store,
        settings: Settings,
        lookup: impl Lookup,
    ) -> Result<Self, NoClient> {
        let client = Client::new(Gate::new(settings.inside.clone(), lookup), settings.timeout)?;
        Ok(Self { store, settings, client })
    }

    /// Sends until `ending`, then finishes the calls in progress.
    pub async fn run(&self, ending: CancellationToken) {
        let mut flights = Flights::default();
        // Said once, or an outage of the database would fill the log.
        let mut is_failing = false;
        while !ending.is_cancelled() {
            let taken_off = self.take_off(&mut flights).await;
            if let (Err(error), false) = (&taken_off, is_failing) {
                tracing::error!(%error, "callbacks cannot be read; it is tried again");
            }
            is_failing = taken_off.is_err();
            tokio::select! {
                () = ending.cancelled() => {}
                () = flights.landed() => {}
                () = tokio::time::sleep(self.settings.poll) => {}
            }
        }
        while flights.tasks.join_next().await.is_some() {}
    }

    /// Sends everything that is due now, and what becomes due meanwhile.
    pub async fn run_until_idle(&self) -> Result<(), store::Error> {
        let mut flights = Flights::default();
        loop {
            self.take_off(&mut flights).await?;
            if flights.tasks.is_empty() {
                return Ok(());
            }
            flights.landed().await;
        }
    }

    /// Begins to send what is due, as far as there is room.
    async fn take_off(&self, flights: &mut Flights) -> Result<(), store::Error> {
        let free = self.settings.concurrency.saturating_sub(flights.tasks.len());
        let now = self.store.world().now();
        let lease = self.settings.timeout + LEASE_EXTRA;
        let latest = later(now, lease.max(self.settings.pause_max) + CLOCKS_APART);
        let due = move |tx: &mut Tx<'_>| deliveries::has_due(tx, now, latest);
        if free == 0 || !self.store.read(due).await? {
            return Ok(());
        }
        let claiming = Claiming {
            now,
            latest,
            until: later(now, lease),
            limit: i64::try_from(free).unwrap_or(i64::MAX),
            share: i64::try_from(self.settings.workspace_concurrency).unwrap_or(i64::MAX),
            busy: flights.busy.clone(),
        };
        let claimed = self.store.write(move |tx| deliveries::claim(tx, &claiming)).await?;
        for delivery in claimed {
            *flights.busy.entry(delivery.workspace.clone()).or_default() += 1;
            flights.tasks.spawn(deliver(
                self.store.clone(),
                self.settings.clone(),
                self.client.clone(),
                delivery,
            ));
        }
        Ok(())
    }
}

/// Makes one attempt. If its outcome cannot be recorded, the claim lapses and the call is made
/// again.
async fn deliver(
    store: Store,
    settings: Settings,
    client: Client,
    delivery: Claimed,
) -> WorkspaceId {
    let answer = client.send(&delivery, store.world().now()).await;
    let now = store.world().now();
    let next = rules::next(&answer, &delivery, &settings, now, store.world());
    let attempt = Attempt { status: answer.status(), error: answer.error(), next };
    tracing::debug!(id = %delivery.id, status = attempt.status, ?next, "a callback was tried");
    let (id, claim) = (delivery.id.clone(), delivery.claim);
    if let Err(error) = store.write(move |tx| deliveries::record(tx, &id, claim, &attempt)).await {
        tracing::error!(%error, id = %delivery.id, "what came of a callback could not be noted; it is sent again");
    }
    delivery.workspace
}

fn later(time: Timestamp, span: Duration) -> Timestamp {
    time.plus(span)
}
