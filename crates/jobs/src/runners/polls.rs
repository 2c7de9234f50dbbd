//! Polls the code host, in case webhooks were lost or none are set up, and deletes what is old.

use super::connections::{self, Connection};
use super::host::{Allowance, Fault, Removal};
use super::rules::Sighting;
use super::webhooks::Report;
use super::{BATCH, Runners, names, rows};
use std::collections::BTreeSet;
use store::runners::{self, Repository, WorkflowJob};
use store::{Error, Tx, resources};
use types::ids::ResourceId;
use types::{KindName, Timestamp};

/// Runs with one of these statuses have workflow jobs that may need a runner.
const OPEN_RUNS: [&str; 2] = ["queued", "in_progress"];
/// Jobs read in one transaction.
const SCAN: i64 = 500;
/// Rows deleted in one transaction, and most such transactions in a row.
const TRIM: i64 = 1000;
const TRIMS_MAX: usize = 100;
/// Most workflow jobs of a repository that are asked for one by one because the code host did not
/// list them.
const RECHECKS_MAX: usize = 50;

/// Why polling a repository ended early.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error(transparent)]
    Host(#[from] Fault),
    #[error(transparent)]
    Store(#[from] Error),
}

impl Runners {
    pub(super) async fn poll_due(&self) -> Result<usize, Error> {
        self.survey().await?;
        let now = self.now();
        let due = self.0.store.read(move |tx| runners::due_polls(tx, now, BATCH)).await?;
        Ok(self
            .each(
                due,
                |runners, repository| async move { Box::pin(runners.poll(repository)).await },
            )
            .await)
    }

    /// Finds out which repositories are served, and deletes what is old.
    async fn survey(&self) -> Result<(), Error> {
        let now = self.now();
        {
            let mut next = self.0.survey_at.lock();
            if *next > now {
                return Ok(());
            }
            *next = now.plus_s(self.0.settings.poll_s);
        }
        let served = self.served().await?;
        let work = move |tx: &mut Tx<'_>| {
            let known: BTreeSet<Repository> = runners::repositories(tx)?.into_iter().collect();
            for gone in known.difference(&served) {
                runners::drop_poll(tx, gone)?;
            }
            for new in served.difference(&known) {
                runners::poll_too(tx, new, now)?;
            }
            Ok::<_, Error>(())
        };
        self.0.store.write(work).await?;
        self.trim(now).await
    }

    async fn served(&self) -> Result<BTreeSet<Repository>, Error> {
        let (mut served, mut after) = (BTreeSet::new(), None::<ResourceId>);
        loop {
            let from = after.take();
            let page =
                move |tx: &mut Tx<'_>| resources::scan(tx, KindName::Job, from.as_ref(), SCAN);
            let jobs = self.0.store.read(page).await?;
            for job in &jobs {
                let of = |name| Repository { workspace: job.workspace.clone(), name };
                match rows::repositories(job) {
                    Ok(names) => served.extend(names.into_iter().map(of)),
                    // The others are served all the same.
                    Err(error) => tracing::error!(%error, "a job provides no runners"),
                }
            }
            match jobs.last() {
                Some(last) => after = Some(last.id.clone()),
                None => return Ok(served),
            }
        }
    }

    async fn trim(&self, now: Timestamp) -> Result<(), Error> {
        let before = now.plus_s(-self.0.settings.kept_s);
        for _ in 0..TRIMS_MAX {
            let work = move |tx: &mut Tx<'_>| {
                let deliveries = runners::trim_deliveries(tx, before, TRIM)?;
                Ok::<_, Error>(deliveries + runners::trim(tx, before, TRIM)?)
            };
            if self.0.store.write(work).await? == 0 {
                break;
            }
        }
        Ok(())
    }

    async fn poll(self, repository: Repository) -> Result<bool, Error> {
        let (of, this, now) = (self.clone(), repository.clone(), self.now());
        let next = now.plus_s(self.0.settings.poll_s);
        let work = move |tx: &mut Tx<'_>| {
            if !runners::claim_poll(tx, &this, now, next)? {
                return Ok(None);
            }
            let all = connections::all(tx, &of.0.store.keyring(), &this.workspace)?;
            Ok::<_, Error>(connections::choose(&all, &this.name).cloned())
        };
        let Some(connection) = self.0.store.write(work).await? else { return Ok(false) };
        match self.ask(&repository, &connection).await {
            Ok(()) => {}
            Err(PollError::Store(error)) => return Err(error),
            Err(PollError::Host(Fault::Limited { until })) => {
                tracing::debug!(%until, "asking about a repository waits")
            }
            Err(PollError::Host(fault)) => {
                tracing::warn!(%fault, repository = repository.name, "a repository could not be asked about");
            }
        }
        Ok(true)
    }

    async fn ask(&self, repository: &Repository, connection: &Connection) -> Result<(), PollError> {
        let mut seen = BTreeSet::new();
        let discovered = self.discover(repository, connection, &mut seen).await;
        // Even if there are too many new ones to read, check on those already known.
        if let Err(PollError::Host(Fault::TooMany(_))) = discovered {
            self.recheck(repository, connection, &seen).await?;
            return discovered;
        }
        discovered?;
        self.recheck(repository, connection, &seen).await
    }

    /// Takes in the workflow jobs of all runs that have not ended.
    async fn discover(
        &self,
        repository: &Repository,
        connection: &Connection,
        seen: &mut BTreeSet<i64>,
    ) -> Result<(), PollError> {
        let mut allowance = Allowance::of(self.0.settings.poll_requests_max);
        self.sweep(repository, connection, &mut allowance).await?;
        let mut runs = Vec::new();
        for status in OPEN_RUNS {
            runs.extend(
                self.0.host.runs(connection, &repository.name, status, &mut allowance).await?,
            );
        }
        // If there are too many runs for one poll, starting at random gives each its turn
        // eventually.
        let first = u16::from_le_bytes(self.0.store.world().random_bytes());
        let turn = usize::from(first) % runs.len().max(1);
        runs.rotate_left(turn);
        for run in runs {
            let reports =
                self.0.host.jobs(connection, &repository.name, run, &mut allowance).await?;
            seen.extend(
                reports.iter().filter(|report| report.sighting.is_some()).map(|report| report.id),
            );
            self.report(repository, reports).await?;
        }
        Ok(())
    }

    /// Asks for known workflow jobs that are not in any open run: they have ended, or were missed.
    async fn recheck(
        &self,
        repository: &Repository,
        connection: &Connection,
        seen: &BTreeSet<i64>,
    ) -> Result<(), PollError> {
        let mut allowance = Allowance::of(RECHECKS_MAX);
        let of = repository.clone();
        let open = self
            .0
            .store
            .read(move |tx| runners::open(tx, &of.workspace, &of.name, i64::MAX))
            .await?;
        let missing = open.iter().filter(|job| !seen.contains(&job.id));
        for WorkflowJob { id, run_id, .. } in missing.take(RECHECKS_MAX) {
            let found = self.0.host.job(connection, &repository.name, *id, &mut allowance).await?;
            let gone = || Report {
                id: *id,
                run_id: *run_id,
                labels: Vec::new(),
                sighting: Some(Sighting::Completed { runner: None }),
            };
            self.report(repository, vec![found.unwrap_or_else(gone)]).await?;
        }
        Ok(())
    }

    async fn report(&self, repository: &Repository, reports: Vec<Report>) -> Result<(), Error> {
        let (of, repository, now) = (self.clone(), repository.clone(), self.now());
        let work = move |tx: &mut Tx<'_>| {
            for report in &reports {
                rows::take(
                    tx,
                    &of.0.settings,
                    &repository.workspace,
                    &repository.name,
                    report,
                    now,
                )?;
            }
            Ok::<_, Error>(())
        };
        self.0.store.write(work).await?;
        self.0.wake.notify_waiters();
        Ok(())
    }

    /// Removes those of our runners that are in no row: the server that registered one ended before
    /// it could write that down.
    async fn sweep(
        &self,
        repository: &Repository,
        connection: &Connection,
        allowance: &mut Allowance,
    ) -> Result<(), PollError> {
        let listed = self.0.host.runners(connection, &repository.name, allowance).await?;
        // Read this after the list: a runner has its row before the code host hears of it.
        let of = repository.clone();
        let known =
            self.0.store.read(move |tx| runners::names(tx, &of.workspace, &of.name)).await?;
        let prefix = names::prefix(&repository.workspace);
        for orphan in listed
            .iter()
            .filter(|runner| runner.name.starts_with(&prefix) && !known.contains(&runner.name))
        {
            match self.0.host.remove(connection, &repository.name, orphan.id).await? {
                Removal::Gone => {
                    tracing::info!(runner = %orphan.name, "a runner that nobody knew was removed")
                }
                Removal::Busy => {
                    tracing::debug!(runner = %orphan.name, "a runner that nobody knows is at work")
                }
            }
        }
        Ok(())
    }
}
