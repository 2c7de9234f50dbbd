//! The queue for code that starts and cancels executions. Everything here runs inside the caller's
//! transaction.

use crate::daily::Daily;
use crate::plan::{self, Plan};
use crate::rules;
use crate::settings::Settings;
use std::fmt;
use std::sync::Arc;
use store::executions::{self, Counts, Execution, Phase, claims, holders, tasks};
use store::{Error, Store, Tx};
use tokio::sync::Notify;
use types::ids::{ExecutionId, ResourceId, WorkspaceId};
use types::instance::{AttemptId, WorkEnd};
use types::{KindName, Timestamp};

/// Rows that one transaction deletes.
const TRIM_BATCH: i64 = 1000;

/// What other parts do in the same transaction as a change here. An error undoes both.
pub trait Hooks: Send + Sync + 'static {
    /// Called when an attempt was given to this machine.
    fn claimed(
        &self,
        _tx: &mut Tx<'_>,
        _attempt: &AttemptId,
        _execution: &Execution,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Called when the outcome of an attempt was accepted.
    fn attempted(
        &self,
        _tx: &mut Tx<'_>,
        _attempt: &AttemptId,
        _execution: &Execution,
        _end: &WorkEnd,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Called when an execution has ended, once for each.
    fn ended(&self, _tx: &mut Tx<'_>, _execution: &Execution) -> Result<(), Error> {
        Ok(())
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Queue(Arc<Inner>);

struct Inner {
    settings: Settings,
    hooks: Vec<Arc<dyn Hooks>>,
    asked: Daily,
    /// Wakes the dispatcher when a workspace was deleted.
    removal: Notify,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

/// Who asks for an execution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caller {
    /// A member of the workspace, or one of its clocks.
    #[default]
    Member,
    /// Anybody who knows a public address. All strangers together leave room for members.
    Stranger,
}

/// An execution to be started.
#[derive(Debug, Clone)]
pub struct NewExecution {
    pub id: ExecutionId,
    pub workspace: WorkspaceId,
    /// Job, or the kind of the workload that is called.
    pub kind: KindName,
    pub job_id: ResourceId,
    pub job: String,
    /// The machine that has to run it; any, if it is `None`.
    pub machine: Option<String>,
    /// Unique within the job.
    pub name: String,
    /// Memory of each task.
    pub memory_mb: i64,
    pub retries_max: i64,
    /// Most tasks that may run at the same time; `None` for all of them.
    pub parallelism: Option<i64>,
    pub plan: Plan,
    /// The arguments of each task: a JSON object without line breaks.
    pub tasks: Vec<String>,
    /// Whether it may wait for room.
    pub may_wait: bool,
    pub caller: Caller,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("an execution has at least 1 task and at most {max}; this one has {count}")]
    Tasks { count: usize, max: u32 },
    #[error("the job has an execution `{0}` already")]
    Taken(String),
    /// Possible again once some of them have ended.
    #[error("the workspace has {max} executions that have not ended, and no more are allowed")]
    Crowded { max: u32 },
    /// Possible again the next day.
    #[error(
        "the tasks and calls that the workspace asked for today (UTC) have {max} bytes, and no more are kept"
    )]
    UsedUp { max: u64 },
    /// There may be room another time.
    #[error(
        "there is no room now for {wanted} tasks, and the execution must not wait: {free} more can run"
    )]
    Full { wanted: i64, free: i64 },
    /// There will never be room.
    #[error("{0}")]
    NeverFits(String),
    #[error(transparent)]
    Store(#[from] Error),
}

impl Queue {
    pub fn new(settings: Settings, hooks: Vec<Arc<dyn Hooks>>) -> Self {
        Self(Arc::new(Inner { settings, hooks, asked: Daily::default(), removal: Notify::new() }))
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn hooks(&self) -> impl Iterator<Item = &dyn Hooks> {
        self.0.hooks.iter().map(|hooks| &**hooks)
    }

    /// Tells the dispatcher that a workspace was deleted, so that it ends the tasks that went with
    /// it. It finds them with its next heartbeat anyway.
    pub fn note_removal(&self) {
        self.0.removal.notify_one();
    }

    /// Waits until a workspace was deleted.
    pub(crate) async fn removal(&self) {
        self.0.removal.notified().await;
    }

    /// Creates an execution. Machines learn of it when the transaction commits.
    pub fn start(
        &self,
        tx: &mut Tx<'_>,
        keyring: &store::Keyring,
        new: &NewExecution,
    ) -> Result<Execution, StartError> {
        let max = self.0.settings.tasks_max;
        let count = new.tasks.len();
        let total = match u32::try_from(count) {
            Ok(total) if total > 0 && total <= max => i64::from(total),
            _ => return Err(StartError::Tasks { count, max }),
        };
        let now = tx.world().now();
        let execution = Execution {
            id: new.id.clone(),
            workspace: new.workspace.clone(),
            kind: new.kind,
            job_id: new.job_id.clone(),
            job: new.job.clone(),
            machine: new.machine.clone(),
            name: new.name.clone(),
            phase: Phase::Open,
            total,
            next: 0,
            parallelism: new.parallelism.unwrap_or(total).clamp(1, total),
            memory_mb: new.memory_mb,
            retries_max: new.retries_max,
            counts: Counts::default(),
            ready_at: Some(rules::AT_ONCE),
            turn: now.ms(),
            created_at: now,
            updated_at: now,
            started_at: None,
            ended_at: None,
        };
        if executions::find(tx, &new.workspace, &new.job, &new.name)?.is_some() {
            return Err(StartError::Taken(new.name.clone()));
        }
        self.require_open(tx, &new.workspace, new.caller)?;
        let holders = holders::list(tx)?;
        require_fit(&execution, &holders)?;
        if !new.may_wait {
            self.require_room(tx, &execution)?;
        }
        let order = plan::stored(keyring, &new.id, &new.plan, &new.tasks)?;
        self.require_day(tx, new, &order, now)?;
        match executions::insert(tx, &execution, &order) {
            Err(Error::Duplicate { .. }) => Err(StartError::Taken(new.name.clone())),
            inserted => Ok(inserted.map(|()| execution)?),
        }
    }

    /// Checks whether the workspace may have one more execution that has not ended.
    pub fn require_open(
        &self,
        tx: &mut Tx<'_>,
        workspace: &WorkspaceId,
        caller: Caller,
    ) -> Result<(), StartError> {
        let max = match caller {
            Caller::Member => self.0.settings.open_max,
            Caller::Stranger => self.0.settings.open_public_max,
        };
        if executions::count_open(tx, workspace, max.into())? >= i64::from(max) {
            return Err(StartError::Crowded { max });
        }
        Ok(())
    }

    /// Refuses an execution that would have to wait: for slots of the machines, or because its
    /// workspace already has its share of them.
    fn require_room(&self, tx: &mut Tx<'_>, execution: &Execution) -> Result<(), StartError> {
        let holders = holders::lock_all(tx)?;
        let (wanted, memory_mb) = (execution.parallelism, execution.memory_mb);
        let fit = |slots: i64, memory: i64| slots.min(memory / memory_mb.max(1));
        let all: i64 = holders.iter().map(|holder| fit(holder.slots, holder.memory_mb)).sum();
        let of_own = |holder: &holders::Holder| {
            let share = self.0.settings.share_of(holder.slots, holder.memory_mb);
            // What is larger than a share runs alone.
            let alone = fit(holder.slots, holder.memory_mb).min(1);
            fit(share.slots, share.memory_mb).max(alone)
        };
        let own: i64 = holders.iter().map(of_own).sum();
        if !holders.is_empty() && wanted > own {
            return Err(StartError::NeverFits(format!(
                "a workspace may run {own} tasks of this size on all machines, fewer than {wanted}, so \
                 the execution can never begin without waiting"
            )));
        }
        let own = own - claims::wanted(tx, Some(&execution.workspace))?;
        match own.min(all - claims::wanted(tx, None)?).max(0) {
            free if free < wanted => Err(StartError::Full { wanted, free }),
            _ => Ok(()),
        }
    }

    /// Checks whether the workspace may still ask for this much today, and counts it unless the
    /// transaction is undone.
    fn require_day(
        &self,
        tx: &mut Tx<'_>,
        new: &NewExecution,
        order: &executions::Order,
        now: Timestamp,
    ) -> Result<(), StartError> {
        let max = match new.caller {
            Caller::Member => self.0.settings.asked_day_bytes_max,
            Caller::Stranger => self.0.settings.asked_day_bytes_max / 2,
        };
        let bytes = (order.plan.len() + order.arguments.len()) as u64;
        if !self.0.asked.take(&new.workspace, bytes, max, now) {
            return Err(StartError::UsedUp { max });
        }
        let (queue, workspace) = (self.clone(), new.workspace.clone());
        tx.if_undone(move || queue.0.asked.give_back(&workspace, bytes, now));
        Ok(())
    }

    /// Lets no further task of an execution begin; running tasks continue to their end. Repeating
    /// this is harmless.
    pub fn cancel(&self, tx: &mut Tx<'_>, id: &ExecutionId) -> Result<Option<Execution>, Error> {
        let Some(mut execution) = executions::lock(tx, id)? else { return Ok(None) };
        if execution.phase != Phase::Open {
            return Ok(Some(execution));
        }
        let now = tx.world().now();
        tasks::cancel_waiting(tx, id, now)?;
        rules::cancelled(&mut execution, now);
        self.conclude(tx, &mut execution, now)?;
        Ok(Some(execution))
    }

    /// Cancels all executions of a job, or all calls to a workload.
    pub fn cancel_all(
        &self,
        tx: &mut Tx<'_>,
        workspace: &WorkspaceId,
        (kind, name): (KindName, &str),
    ) -> Result<(), Error> {
        for id in executions::open_of(tx, workspace, kind, name)? {
            self.cancel(tx, &id)?;
        }
        Ok(())
    }

    /// Stores an execution whose counts have changed, and ends it if nothing is left.
    pub(crate) fn conclude(
        &self,
        tx: &mut Tx<'_>,
        execution: &mut Execution,
        now: Timestamp,
    ) -> Result<(), Error> {
        let earliest = match execution.counts.waiting {
            0 => None,
            _ => tasks::earliest(tx, &execution.id)?,
        };
        let ended = rules::concluded(execution, earliest, now);
        executions::put(tx, execution)?;
        if ended {
            for hooks in self.hooks() {
                hooks.ended(tx, execution)?;
            }
        }
        Ok(())
    }

    /// Deletes executions that ended longer ago than the retention period. Returns the number of
    /// rows.
    pub async fn tidy(&self, store: &Store) -> Result<u64, Error> {
        let ended_before = store.world().now().minus(self.0.settings.retention);
        let mut forgotten = 0;
        loop {
            match store.write(move |tx| executions::trim(tx, ended_before, TRIM_BATCH)).await? {
                0 => return Ok(forgotten),
                rows => forgotten += rows,
            }
        }
    }
}

/// Refuses tasks that no machine has the memory for: they would wait for ever.
fn require_fit(execution: &Execution, holders: &[holders::Holder]) -> Result<(), StartError> {
    let largest = holders.iter().map(|holder| holder.memory_mb).max();
    match largest {
        Some(largest) if execution.memory_mb > largest => Err(StartError::NeverFits(format!(
            "no machine has {} MB for a task: at most {largest} MB can be had, so the execution can \
             never begin",
            execution.memory_mb
        ))),
        // No machine is there yet.
        _ => Ok(()),
    }
}
