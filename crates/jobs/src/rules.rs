//! The rules for executions and their tasks. Pure: no clock, no database, no randomness.
//!
//! ```text
//! task       (never claimed) ──claim──▶ running ──success──▶ succeeded
//!                                 ▲        │ ├──failure, no retry left──▶ failed
//!                              claim       │ └──lost, while cancelling──▶ cancelled
//!                                 │        ▼
//!                                 └──── waiting ──cancel──▶ cancelled
//!
//! execution  open ──last task ends──▶ succeeded | failed
//!              └──cancel──▶ cancelling ──nothing runs any more──▶ cancelled
//! ```
//!
//! Always: never claimed + running + waiting + succeeded + failed + cancelled = total.

use crate::settings::Settings;
use crate::task_runner;
use std::time::Duration;
use store::executions::tasks::{State, Task};
use store::executions::{Execution, Phase};
use types::Timestamp;
use types::instance::{Outcome, WorkEnd};
use types::wire::JobExecutionStatus;

/// Ready at once, whatever the clocks of other servers say.
pub(crate) const AT_ONCE: Timestamp = Timestamp::from_ms(0);

/// How often a task is tried, and after which pauses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryPolicy {
    pub retries_max: i64,
    pub losses_max: i64,
    pub first: Duration,
    pub longest: Duration,
}

impl RetryPolicy {
    pub(crate) fn new(settings: &Settings, retries_max: i64) -> Self {
        Self {
            retries_max,
            losses_max: i64::from(settings.lost_attempts_max),
            first: settings.backoff_first,
            longest: settings.backoff_max,
        }
    }

    /// Returns the pause after the `count`-th failure (or loss). Half of it is fixed and the rest
    /// is jitter, so that tasks that failed together do not come back together.
    fn pause_ms(self, count: i64, jitter: u16) -> i64 {
        let doublings = u32::try_from(count.saturating_sub(1)).unwrap_or(u32::MAX);
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let pause = self.first.saturating_mul(factor).min(self.longest);
        let half = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX) / 2;
        half.saturating_add(half.saturating_mul(i64::from(jitter)) / i64::from(u16::MAX))
    }
}

/// Counts the tasks that were never claimed and still may be.
pub(crate) const fn fresh(execution: &Execution) -> i64 {
    match execution.phase {
        Phase::Open => execution.total - execution.next,
        _ => 0,
    }
}

/// Counts how many more tasks may be claimed now, whether they are due or not.
pub(crate) fn claimable(execution: &Execution) -> i64 {
    match execution.phase {
        Phase::Open => {
            let tasks = fresh(execution) + execution.counts.waiting;
            tasks.min(execution.parallelism - execution.counts.running).max(0)
        }
        _ => 0,
    }
}

/// Notes that tasks were claimed: some for the first time, and others for another attempt.
/// Some of these were only given back, by a machine that did not have the image.
pub(crate) fn claimed(
    execution: &mut Execution,
    fresh: i64,
    (again, given_back): (i64, i64),
    now: Timestamp,
) {
    let counts = &mut execution.counts;
    execution.next += fresh;
    counts.running += fresh + again;
    counts.waiting -= again;
    counts.retried += again - given_back;
    execution.started_at.get_or_insert(now);
    execution.updated_at = now;
}

/// Returns what a running task becomes after the outcome of its attempt. `elsewhere` says whether
/// another machine may have the image that its own one does not have.
pub(crate) fn after(
    task: &Task,
    end: &WorkEnd,
    (phase, elsewhere): (Phase, bool),
    policy: RetryPolicy,
    jitter: u16,
) -> Task {
    let mut task = task.clone();
    (task.started_at, task.ended_at) = (end.started_at, Some(end.ended_at));
    let failure = &end.outcome;
    if failure.is_success() {
        (task.failure, task.state) = (None, State::Succeeded);
        return task;
    }
    task.failure = Some(task_runner::stored(failure));
    if let (Outcome::NoImage(_), true) = (failure, elsewhere) {
        // Nothing was tried yet, so this counts neither as a failure nor as a loss.
        task.state = match phase {
            Phase::Open => State::Waiting(end.ended_at),
            _ => State::Cancelled,
        };
        return task;
    }
    let own = task_runner::is_the_tasks_own(failure);
    let (count, max) = match own {
        true => (&mut task.failures, policy.retries_max),
        false => (&mut task.losses, policy.losses_max),
    };
    *count += 1;
    let is_in_vain = matches!(failure, Outcome::NotStarted(_) | Outcome::NoImage(_));
    let (count, retries_left) = (*count, *count <= max && !is_in_vain);
    task.state = match phase {
        Phase::Open if retries_left => {
            State::Waiting(end.ended_at.plus_ms(policy.pause_ms(count, jitter)))
        }
        Phase::Cancelling if !own => State::Cancelled,
        _ => State::Failed,
    };
    task
}

/// Counts a running task that became `state`.
pub(crate) fn ended(execution: &mut Execution, state: State, now: Timestamp) {
    let counts = &mut execution.counts;
    counts.running -= 1;
    match state {
        State::Succeeded => counts.succeeded += 1,
        State::Failed => counts.failed += 1,
        State::Cancelled => counts.cancelled += 1,
        State::Waiting(_) => counts.waiting += 1,
        State::Running => counts.running += 1,
    }
    execution.updated_at = now;
}

/// Cancels an execution: waiting tasks and tasks never claimed are cancelled, running tasks
/// continue to their end.
pub(crate) fn cancelled(execution: &mut Execution, now: Timestamp) {
    if execution.phase != Phase::Open {
        return;
    }
    execution.counts.cancelled += fresh(execution) + execution.counts.waiting;
    execution.counts.waiting = 0;
    execution.phase = Phase::Cancelling;
    execution.updated_at = now;
}

/// Decides from the counts whether the execution has ended, and if not, when a task can be claimed.
/// `earliest` is when the first of the waiting tasks is due. Returns whether the execution ended
/// just now.
pub(crate) fn concluded(
    execution: &mut Execution,
    earliest: Option<Timestamp>,
    now: Timestamp,
) -> bool {
    let counts = execution.counts;
    let left = fresh(execution) + counts.running + counts.waiting;
    let end = match execution.phase {
        Phase::Open if left == 0 && counts.failed > 0 => Some(Phase::Failed),
        Phase::Open if left == 0 => Some(Phase::Succeeded),
        Phase::Cancelling if counts.running == 0 => Some(Phase::Cancelled),
        _ => None,
    };
    if let Some(end) = end {
        (execution.phase, execution.ended_at, execution.updated_at) = (end, Some(now), now);
    }
    execution.ready_at = match claimable(execution) {
        0 => None,
        _ if fresh(execution) > 0 => Some(AT_ONCE),
        _ => earliest,
    };
    end.is_some()
}

/// Returns the status that callers read.
pub fn status(execution: &Execution) -> JobExecutionStatus {
    match execution.phase {
        Phase::Succeeded => JobExecutionStatus::Succeeded,
        Phase::Failed => JobExecutionStatus::Failed,
        Phase::Cancelled => JobExecutionStatus::Cancelled,
        Phase::Cancelling => JobExecutionStatus::Cancelling,
        Phase::Open if execution.counts.running > 0 => JobExecutionStatus::Running,
        Phase::Open if execution.next == 0 => JobExecutionStatus::Queued,
        Phase::Open => JobExecutionStatus::Pending,
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
