//! One transaction of the loop. The database may have to repeat it, so it changes nothing but rows.

use super::attempt_of;
use crate::queue::Queue;
use crate::rules::{self, RetryPolicy};
use crate::share::{Slots, share};
use crate::task_runner;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::executions::claims::{self, Claimer};
use store::executions::tasks::{self, State, Task};
use store::executions::{self, Execution, SlotKind, holders, images};
use store::{Error, Tx};
use types::Timestamp;
use types::ids::ExecutionId;
use types::instance::{Outcome, WorkEnd};

/// Tasks of a lost machine that one round takes over.
const LOST_BATCH: i64 = 1000;
/// Executions of one workspace that one round considers.
const CANDIDATES: i64 = 256;

#[derive(Clone)]
pub(super) struct Round {
    pub queue: Queue,
    /// The name of this machine.
    pub holder: String,
    /// Whether to renew the lease as well.
    pub renews: bool,
    /// Other machines whose lease has run out.
    pub run_out: Vec<(String, Timestamp)>,
    pub ended: Arc<Vec<Ended>>,
    /// What may be claimed for.
    pub slots: Vec<(SlotKind, Slots)>,
    pub turn: i64,
}

/// An attempt of this machine, with its outcome.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    /// The task as it was claimed.
    pub task: Task,
    pub end: WorkEnd,
}

#[derive(Debug, Default)]
pub(super) struct Done {
    pub claimed: Vec<Task>,
    /// The kinds of slots of which there were fewer than ready tasks or calls.
    pub short_of: Vec<SlotKind>,
    /// The other machines, if the lease was renewed.
    pub others: Option<Vec<holders::Holder>>,
    pub turn: i64,
}

/// Returns `now`, or the time of an execution's last change if that is later: the execution may
/// have been changed after `now` was read, and nothing of it may begin or end before that.
fn later(now: Timestamp, execution: &Execution) -> Timestamp {
    now.max(execution.updated_at)
}

impl Round {
    pub(super) fn run(&self, tx: &mut Tx<'_>) -> Result<Done, Error> {
        let now = tx.world().now();
        let mut done = Done { turn: self.turn, ..Done::default() };
        if self.renews {
            done.others = Some(self.renew(tx, now)?);
        }
        let mut ended = self.ended.as_ref().clone();
        for (name, renewed_at) in &self.run_out {
            ended.extend(take(tx, name, *renewed_at, now)?);
        }
        self.record(tx, ended, now)?;
        for (kind, slots) in &self.slots {
            self.claim(tx, *kind, slots, now, &mut done)?;
        }
        Ok(done)
    }

    fn renew(&self, tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<holders::Holder>, Error> {
        let settings = self.queue.settings();
        let holder = holders::Holder {
            name: self.holder.clone(),
            slots: settings.slots.into(),
            memory_mb: settings.memory_mb.into(),
            renewed_at: now,
        };
        holders::renew(tx, &holder)?;
        let mut others = holders::list(tx)?;
        others.retain(|other| other.name != self.holder);
        Ok(others)
    }

    /// Records outcomes, grouped by execution, in the order in which executions are locked.
    fn record(&self, tx: &mut Tx<'_>, ended: Vec<Ended>, now: Timestamp) -> Result<(), Error> {
        let mut of: BTreeMap<ExecutionId, Vec<Ended>> = BTreeMap::new();
        for one in ended {
            of.entry(one.task.execution.clone()).or_default().push(one);
        }
        for (id, ended) in of {
            // It is gone with its workspace, and its tasks with it.
            let Some(mut execution) = executions::lock(tx, &id)? else { continue };
            let now = later(now, &execution);
            if self.accept(tx, &mut execution, &ended, now)? {
                self.queue.conclude(tx, &mut execution, now)?;
            }
        }
        Ok(())
    }

    /// Records the outcomes of one execution. Returns whether any of them was new.
    fn accept(
        &self,
        tx: &mut Tx<'_>,
        execution: &mut Execution,
        ended: &[Ended],
        now: Timestamp,
    ) -> Result<bool, Error> {
        let policy = RetryPolicy::new(self.queue.settings(), execution.retries_max);
        let has_no_image = ended.iter().any(|one| matches!(one.end.outcome, Outcome::NoImage(_)));
        let abandoned = self.queue.settings().abandoned(now);
        let elsewhere = has_no_image && images::missing_at(tx, execution, &self.holder, abandoned)?;
        let after = |one: &Ended| {
            let jitter = u16::from_le_bytes(tx.world().random_bytes());
            rules::after(&one.task, &one.end, (execution.phase, elsewhere), policy, jitter)
        };
        let after: Vec<Task> = ended.iter().map(after).collect();
        let accepted = tasks::record(tx, &after)?;
        for (task, one) in after
            .iter()
            .zip(ended)
            .filter(|(task, _)| accepted.contains(&(task.index, task.attempt)))
        {
            rules::ended(execution, task.state, now);
            let Some(attempt) = attempt_of(task) else { continue };
            for hooks in self.queue.hooks() {
                hooks.attempted(tx, &attempt, execution, &one.end)?;
            }
        }
        Ok(!accepted.is_empty())
    }

    fn claim(
        &self,
        tx: &mut Tx<'_>,
        kind: SlotKind,
        slots: &Slots,
        now: Timestamp,
        done: &mut Done,
    ) -> Result<(), Error> {
        let settings = self.queue.settings();
        let claimer = Claimer {
            name: &self.holder,
            abandoned: settings.abandoned(now),
            memory_mb: settings.memory_mb.into(),
        };
        let candidates = claims::candidates(tx, (kind, claimer), now, CANDIDATES)?;
        if candidates.is_empty() {
            return Ok(());
        }
        let workspace_max = match kind {
            SlotKind::Task => settings.workspace_tasks_max,
            SlotKind::Call => settings.workspace_calls_max,
        };
        let ready: i64 = candidates.iter().map(|candidate| candidate.room).sum();
        let running = claims::running(tx, kind)?;
        let shares = share(slots.clone(), candidates, &running, workspace_max.into());
        if shares.values().sum::<i64>() < ready {
            done.short_of.push(kind);
        }
        for (id, count) in shares {
            // Another machine may be working on it; then it is looked at again shortly.
            let Some(mut execution) = executions::lock_if_free(tx, &id)? else { continue };
            let now = later(now, &execution);
            let count = count.min(rules::claimable(&execution));
            let claimed = self.claim_of(tx, &mut execution, count, now)?;
            if claimed.is_empty() {
                continue;
            }
            done.turn = (done.turn + 1).max(now.ms());
            execution.turn = done.turn;
            self.queue.conclude(tx, &mut execution, now)?;
            done.claimed.extend(claimed);
        }
        Ok(())
    }

    /// Claims tasks of one execution: retries first, then tasks that never ran.
    fn claim_of(
        &self,
        tx: &mut Tx<'_>,
        execution: &mut Execution,
        count: i64,
        now: Timestamp,
    ) -> Result<Vec<Task>, Error> {
        let mut claimed = match execution.counts.waiting {
            0 => Vec::new(),
            _ => tasks::due(tx, &execution.id, now, count)?,
        };
        for task in &mut claimed {
            tasks::claim_again(tx, task, &self.holder, now)?;
            task.attempt += 1;
            self.holder.clone_into(&mut task.holder);
            (task.state, task.claimed_at, task.started_at, task.ended_at) =
                (State::Running, now, None, None);
        }
        let count_of = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let again = count_of(claimed.len());
        let given_back = claimed.iter().filter(|task| task_runner::was_given_back(task));
        let given_back = count_of(given_back.count());
        let fresh = (count - again).clamp(0, rules::fresh(execution));
        let first = execution.next;
        tasks::claim_fresh(tx, &execution.id, first, fresh, &self.holder, now)?;
        claimed.extend((first..first + fresh).map(|index| self.fresh(&execution.id, index, now)));
        rules::claimed(execution, fresh, (again, given_back), now);
        for attempt in claimed.iter().filter_map(attempt_of) {
            for hooks in self.queue.hooks() {
                hooks.claimed(tx, &attempt, execution)?;
            }
        }
        Ok(claimed)
    }

    /// Returns a task as [`tasks::claim_fresh`] has written it.
    fn fresh(&self, execution: &ExecutionId, index: i64, now: Timestamp) -> Task {
        Task {
            execution: execution.clone(),
            index,
            state: State::Running,
            attempt: 1,
            holder: self.holder.clone(),
            failures: 0,
            losses: 0,
            claimed_at: now,
            started_at: None,
            ended_at: None,
            failure: None,
        }
    }
}

/// Takes over the tasks of a machine whose lease has run out, unless the machine came back. The
/// lease is removed with the last of them.
fn take(
    tx: &mut Tx<'_>,
    name: &str,
    renewed_at: Timestamp,
    now: Timestamp,
) -> Result<Vec<Ended>, Error> {
    if !holders::lock_if_stale(tx, name, renewed_at)? {
        return Ok(Vec::new());
    }
    let held = tasks::held(tx, name, LOST_BATCH)?;
    if i64::try_from(held.len()).is_ok_and(|count| count < LOST_BATCH) {
        holders::remove(tx, name)?;
    }
    let why = || Outcome::Lost("the machine that had it was not heard of any more".into());
    let lost =
        |task| Ended { task, end: WorkEnd { started_at: None, ended_at: now, outcome: why() } };
    Ok(held.into_iter().map(lost).collect())
}
