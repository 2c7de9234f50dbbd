//! Sends the calls that are kept in `store::deliveries`, at least once each, until they are
//! answered or given up.
//!
//! One loop claims what is due, as far as there is room, and notes what came of it. A claim that
//! nothing was heard of lapses: so what a killed server was sending is sent again, and a receiver
//! tells repetitions by the id of the delivery.

mod gate;
mod rules;
mod send;

pub use gate::{Lookup, system_lookup};

use gate::Gate;
use send::Client;
use std::collections::BTreeMap;
use std::time::Duration;
use store::Store;
use store::deliveries::{self, Attempt, Claimed, Claiming};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use types::Timestamp;
use types::ids::WorkspaceId;

/// What the operator decides.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Attempts at one delivery, where nothing else is said.
    pub attempts_max: i64,
    /// A receiver that has not answered by then has not received.
    pub timeout: Duration,
    /// Calls that are made at once.
    pub concurrency: usize,
    /// Of them, calls of one workspace.
    pub workspace_concurrency: usize,
    /// After the first failed attempt; doubled after each further one.
    pub pause: Duration,
    pub pause_max: Duration,
    /// How often new deliveries are looked for.
    pub poll: Duration,
    /// Hosts, without ports, that may be called although they are not on the internet.
    pub inside: Vec<String>,
}

/// Beyond the time of one attempt, until a claim lapses.
const LEASE_EXTRA: Duration = Duration::from_secs(30);

/// No client for HTTP can be made.
#[derive(Debug, thiserror::Error)]
#[error("no client for callbacks can be made")]
pub struct NoClient(#[from] reqwest::Error);

pub struct Sender {
    store: Store,
    settings: Settings,
    client: Client,
}

/// What is being sent, and for whom.
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

    /// Waits for one to end, then takes all that have. Without any it waits for ever.
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
                // One that panicked cannot say whose it was.
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

    /// As [`Sender::new`], with a way of its own to find the addresses of names.
    pub fn looking_up(
        store: Store,
        settings: Settings,
        lookup: impl Lookup,
    ) -> Result<Self, NoClient> {
        let client = Client::new(Gate::new(settings.inside.clone(), lookup), settings.timeout)?;
        Ok(Self { store, settings, client })
    }

    /// Sends until the end begins, then finishes what it is sending.
    pub async fn run(&self, ending: CancellationToken) {
        let mut flights = Flights::default();
        while !ending.is_cancelled() {
            if let Err(error) = self.take_off(&mut flights).await {
                tracing::error!(%error, "callbacks could not be read; it is tried again");
            }
            tokio::select! {
                () = ending.cancelled() => {}
                () = flights.landed() => {}
                () = tokio::time::sleep(self.settings.poll) => {}
            }
        }
        while flights.tasks.join_next().await.is_some() {}
    }

    /// Sends all that is due now, and what becomes due meanwhile.
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
        if free == 0 || self.store.read(deliveries::first_due).await?.is_none_or(|due| due > now) {
            return Ok(());
        }
        let claiming = Claiming {
            now,
            until: later(now, self.settings.timeout + LEASE_EXTRA),
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

/// One attempt. Should its outcome not be noted, the claim lapses and it is made again.
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
