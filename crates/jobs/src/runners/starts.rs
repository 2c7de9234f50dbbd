//! Handles workflow jobs that are due: gives a runner to those that want one, and checks on those
//! that have one.

use super::connections::{self, Connection};
use super::host::{Fault, Registered, Removal};
use super::rows::{self, Serving};
use super::rules::{self, Verdict};
use super::starter::StartError;
use super::{BATCH, REFUSED_S, Runners};
use store::runners::{self, Phase, Repository, Runner, WorkflowJob};
use store::{Error, Tx, resources};
use types::KindName;
use types::Timestamp;
use types::ids::WorkspaceId;
use types::parts::Sensitive;

/// Wait before looking again at a job that has all the runners it may have, unless one of them ends
/// earlier.
const FULL_S: i64 = 10;
/// The variable in which the code host's runner program looks for its configuration.
const VARIABLE: &str = "ACTIONS_RUNNER_INPUT_JITCONFIG";

/// A runner that is to be made.
#[derive(Debug, Clone)]
struct Order {
    workspace: WorkspaceId,
    workflow_job: i64,
    repository: String,
    name: String,
    serving: Serving,
    connection: Connection,
}

impl Runners {
    pub(super) async fn start_due(&self) -> Result<usize, Error> {
        let now = self.now();
        let due = self.0.store.read(move |tx| runners::due(tx, now, BATCH)).await?;
        Ok(self.each(due, |runners, job| async move { Box::pin(runners.attend(job)).await }).await)
    }

    async fn attend(self, job: WorkflowJob) -> Result<bool, Error> {
        match job.phase {
            Phase::Wanted | Phase::Starting { .. } => self.make(&job).await,
            Phase::Waiting(_) | Phase::PickedUp(_) => self.look(&job).await,
            Phase::Done | Phase::Lost => Ok(false),
        }
    }

    /// Registers a runner and starts its execution. If a crash comes in between, another server
    /// finds out: the claim runs out, and the code host lists a runner whose name is in no row.
    async fn make(&self, job: &WorkflowJob) -> Result<bool, Error> {
        let (of, workspace, id) = (self.clone(), job.workspace.clone(), job.id);
        let claimed = self.0.store.write(move |tx| of.claim(tx, &workspace, id)).await?;
        let order = match claimed {
            Claimed::Order(order) => *order,
            Claimed::Nothing { changed } => return Ok(changed),
        };
        let Order { repository, name, serving, connection, .. } = &order;
        match self.0.host.register(connection, repository, name, &serving.labels).await {
            Ok(registered) => self.start(order, registered).await?,
            Err(fault) => {
                tracing::warn!(%fault, runner = %name, %repository, "a runner could not be registered");
                self.put_back(&order, self.again(&fault)).await?;
            }
        }
        Ok(true)
    }

    fn claim(&self, tx: &mut Tx<'_>, workspace: &WorkspaceId, id: i64) -> Result<Claimed, Error> {
        let (now, settings) = (self.now(), &self.0.settings);
        let Some(mut job) = runners::lock(tx, workspace, id)?.filter(|job| is_due(job, now)) else {
            return Ok(Claimed::Nothing { changed: false });
        };
        let Some(serving) = rows::serving(tx, settings, &job.job, &job.repository)? else {
            let changes = rules::withdraw(&mut job, now);
            rows::save(tx, &job, changes, now)?;
            return Ok(Claimed::Nothing { changed: true });
        };
        // Claims of one job take turns, so that the count stays correct until this transaction
        // ends.
        resources::lock(tx, workspace, KindName::Job, "", &serving.name)?;
        let own = i64::from(matches!(job.phase, Phase::Starting { .. }));
        if runners::runners_of(tx, &job.job)? - own >= serving.runners_max {
            runners::postpone_wanted(tx, &job.job, now, now.plus_s(FULL_S))?;
            return Ok(Claimed::Nothing { changed: false });
        }
        let all = connections::all(tx, &self.0.store.keyring(), workspace)?;
        let Some(connection) = connections::choose(&all, &job.repository).cloned() else {
            tracing::warn!(%workspace, repository = job.repository, "no connection to the code host serves a repository");
            job.due_at = Some(now.plus_s(REFUSED_S));
            runners::put(tx, &job)?;
            return Ok(Claimed::Nothing { changed: false });
        };
        let name = rules::claim(&mut job, settings, now);
        runners::put(tx, &job)?;
        let Some(name) = name else { return Ok(Claimed::Nothing { changed: true }) };
        let (workspace, repository) = (job.workspace, job.repository);
        let order =
            Order { workspace, workflow_job: job.id, repository, name, serving, connection };
        Ok(Claimed::Order(Box::new(order)))
    }

    /// Starts the execution of a registered runner, if it is still wanted.
    async fn start(&self, order: Order, registered: Registered) -> Result<(), Error> {
        let (of, wanted, id) = (self.clone(), order.clone(), registered.id);
        let begun = self.0.store.write(move |tx| of.begin(tx, &wanted, &registered)).await;
        let again = match begun {
            Ok(true) => return Ok(()),
            Ok(false) => None,
            Err(StartError::Refused(why)) => {
                tracing::warn!(runner = %order.name, why, "the execution of a runner could not be started");
                Some(self.now().plus_s(REFUSED_S))
            }
            Err(StartError::Store(error)) => return Err(error),
        };
        // If this fails, the sweep of the repository finds the runner by its name.
        if let Err(fault) = self.0.host.remove(&order.connection, &order.repository, id).await {
            tracing::warn!(%fault, runner = %order.name, "a runner that is not wanted could not be removed yet");
        }
        match again {
            Some(again) => self.put_back(&order, again).await,
            None => Ok(()),
        }
    }

    fn begin(
        &self,
        tx: &mut Tx<'_>,
        order: &Order,
        registered: &Registered,
    ) -> Result<bool, StartError> {
        let Some(mut job) = runners::lock(tx, &order.workspace, order.workflow_job)? else {
            return Ok(false);
        };
        if !rules::is_starting(&job, &order.name) {
            return Ok(false);
        }
        let Sensitive(configuration) = &registered.configuration;
        let variables = [(VARIABLE, Sensitive(configuration.clone()))];
        let execution = self.0.starter.start(tx, &job.job, &variables)?;
        let runner = Runner { name: order.name.clone(), id: registered.id, execution };
        rules::started(&mut job, runner, &self.0.settings, self.now());
        runners::put(tx, &job)?;
        Ok(true)
    }

    /// Makes the workflow job of an order want a runner again, from the time `again` on.
    async fn put_back(&self, order: &Order, again: Timestamp) -> Result<(), Error> {
        let (now, order) = (self.now(), order.clone());
        let work = move |tx: &mut Tx<'_>| {
            let Some(mut job) = runners::lock(tx, &order.workspace, order.workflow_job)? else {
                return Ok(());
            };
            rules::failed(&mut job, &order.name, now, again);
            runners::put(tx, &job)
        };
        self.0.store.write(work).await
    }

    /// Checks how far the execution of a runner has got, and replaces a runner that did not pick up
    /// in time.
    async fn look(&self, job: &WorkflowJob) -> Result<bool, Error> {
        let (of, workspace, id) = (self.clone(), job.workspace.clone(), job.id);
        let looked = self.0.store.write(move |tx| of.judge(tx, &workspace, id)).await?;
        let (runner, connection) = match looked {
            Looked::Overdue(runner, connection) => (runner, connection),
            Looked::Settled { changed } => return Ok(changed),
        };
        let removal = match connection {
            Some(connection) => self.0.host.remove(&connection, &job.repository, runner.id).await,
            // No connection is left to ask the code host with, so it cannot refuse.
            None => Ok(Removal::Gone),
        };
        match removal {
            Ok(Removal::Gone) => self.replace(job, runner).await?,
            Ok(Removal::Busy) => self.ask_now(job).await?,
            Err(fault) => {
                tracing::warn!(%fault, runner = %runner.name, "a runner could not be removed yet")
            }
        }
        Ok(true)
    }

    fn judge(&self, tx: &mut Tx<'_>, workspace: &WorkspaceId, id: i64) -> Result<Looked, Error> {
        let (now, settings) = (self.now(), &self.0.settings);
        let locked = runners::lock(tx, workspace, id)?.filter(|job| is_due(job, now));
        let Some(mut job) = locked else { return Ok(Looked::Settled { changed: false }) };
        let (Phase::Waiting(runner) | Phase::PickedUp(runner)) = &job.phase else {
            return Ok(Looked::Settled { changed: false });
        };
        let progress = self.0.starter.progress(tx, &runner.execution)?;
        let before = job.phase.clone();
        let withdrawn = matches!(job.phase, Phase::Waiting(_))
            && rows::serving(tx, settings, &job.job, &job.repository)?.is_none();
        let (verdict, changes) = match withdrawn {
            true => (Verdict::Keep, rules::withdraw(&mut job, now)),
            false => rules::look(&mut job, progress, settings, now),
        };
        rows::save(tx, &job, changes, now)?;
        match verdict {
            Verdict::Keep => Ok(Looked::Settled { changed: job.phase != before }),
            Verdict::Remove(runner) => {
                let all = connections::all(tx, &self.0.store.keyring(), workspace)?;
                Ok(Looked::Overdue(
                    runner,
                    connections::choose(&all, &job.repository).cloned().map(Box::new),
                ))
            }
        }
    }

    /// Ends the execution of a runner that the code host has removed, so that another one is made.
    async fn replace(&self, job: &WorkflowJob, runner: Runner) -> Result<(), Error> {
        tracing::info!(runner = %runner.name, repository = job.repository, "a runner did not pick up its workflow job in time");
        let (of, workspace, id) = (self.clone(), job.workspace.clone(), job.id);
        let work = move |tx: &mut Tx<'_>| {
            let now = of.now();
            let Some(mut job) = runners::lock(tx, &workspace, id)? else { return Ok(()) };
            if rules::removed(&mut job, &runner, &of.0.settings, now) {
                of.0.starter.cancel(tx, &runner.execution)?;
                rows::save(tx, &job, rules::Changes::default(), now)?;
            }
            Ok(())
        };
        self.0.store.write(work).await
    }

    /// Polls the repository at once: a runner is busy and we have not heard with what, so a webhook
    /// was lost.
    async fn ask_now(&self, job: &WorkflowJob) -> Result<(), Error> {
        let repository =
            Repository { workspace: job.workspace.clone(), name: job.repository.clone() };
        let now = self.now();
        self.0.store.write(move |tx| runners::poll_now(tx, &repository, now)).await
    }
}

enum Claimed {
    Order(Box<Order>),
    Nothing { changed: bool },
}

enum Looked {
    Overdue(Runner, Option<Box<Connection>>),
    Settled { changed: bool },
}

fn is_due(job: &WorkflowJob, now: Timestamp) -> bool {
    job.due_at.is_some_and(|due| due <= now)
}

impl Fault {
    /// True if somebody has to fix something before it can go on.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Credentials(_))
    }
}
