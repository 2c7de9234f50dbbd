//! Decides what happens to a workflow job and its runner. Pure: no clock, no database, no I/O.
//!
//! ```text
//!            claim            started              seen in progress
//! Wanted ───────────▶ Starting ──────▶ Waiting ─────────────────────▶ PickedUp
//!   ▲  ▲                 │               │                               │
//!   │  └─── failed, ─────┘               │ removed or ended unused       │ ended
//!   │       lease over                   ▼                               ▼
//!   └──────── attempts left? ◀───────────┴──▶ Lost              Done ◀── seen completed, from anywhere
//! ```
//!
//! What the code host says about a workflow job only ever moves it to the right, so reports that
//! arrive twice, late or out of order change nothing. The code host, not we, decides which runner
//! with the right labels picks up which workflow job. If a runner picks up another workflow job
//! than the one it was made for, the two swap runners ([`sight`]).

use super::names;
use super::settings::Settings;
use store::runners::{Phase, Runner, WorkflowJob};
use types::Timestamp;

/// How long a workflow job can stay wanted. The code host ends one that nobody has picked up for a
/// day.
const WANTED_MAX_S: i64 = 26 * 3600;
/// The wait after a runner was first started in vain. It doubles each time.
const VAIN_FIRST_S: i64 = 5;
const VAIN_DOUBLINGS_MAX: i64 = 6;

/// What the code host says about a workflow job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sighting {
    Queued,
    /// The name of the runner that runs it, if the code host says so.
    InProgress {
        runner: Option<String>,
    },
    Completed {
        runner: Option<String>,
    },
}

impl Sighting {
    pub(super) fn runner(&self) -> Option<&str> {
        match self {
            Self::Queued => None,
            Self::InProgress { runner } | Self::Completed { runner } => runner.as_deref(),
        }
    }
}

/// Who held the runner that a sighting names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// The runner is not one of ours, or is the workflow job's own.
    NoOther,
    Other(WorkflowJob),
    /// It was about to be removed.
    Leaving(Runner),
}

/// What a decision changes besides the workflow job itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Another workflow job, which now has a different runner or none.
    pub(super) other: Option<WorkflowJob>,
    /// The name of a runner that is no longer to be removed.
    pub(super) stays: Option<String>,
    /// Runners that are no longer needed.
    pub(super) leave: Vec<Runner>,
    /// Runners that have done their work and are about to end by themselves.
    pub(super) part: Vec<Runner>,
}

/// How far the execution of a runner has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// No machine has had room for it yet.
    Queued,
    Running {
        since: Timestamp,
    },
    Ended,
}

/// What to do about a runner after a look at its execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    /// It did not pick up in time: remove it from the code host, and replace it unless it is busy.
    Remove(Runner),
}

/// Applies a sighting of the workflow job `job`, and returns what else changes.
pub(super) fn sight(
    job: &mut WorkflowJob,
    holder: Holder,
    sighting: &Sighting,
    now: Timestamp,
) -> Changes {
    let mut changes = Changes::default();
    if *sighting == Sighting::Queued {
        return changes;
    }
    let worked = matches!(job.phase, Phase::PickedUp(_));
    let own = take_runner(&mut job.phase);
    let (seen, mut spare) = match own {
        Some(own) if Some(own.name.as_str()) == sighting.runner() => (Some(own), None),
        own => (None, own),
    };
    let seen = seen.or_else(|| exchange(job, holder, &mut spare, &mut changes, now));
    let over = matches!(job.phase, Phase::Done) || matches!(sighting, Sighting::Completed { .. });
    match seen {
        Some(runner) if !over => enter(job, Phase::PickedUp(runner), now),
        seen => {
            changes.part.extend(seen);
            enter(job, Phase::Done, now);
        }
    }
    let spares = if worked { &mut changes.part } else { &mut changes.leave };
    spares.extend(spare);
    changes
}

/// Takes the runner that a sighting names from its holder and gives it to `job`.
fn exchange(
    job: &WorkflowJob,
    holder: Holder,
    spare: &mut Option<Runner>,
    changes: &mut Changes,
    now: Timestamp,
) -> Option<Runner> {
    match holder {
        Holder::Leaving(runner) => {
            changes.stays = Some(runner.name.clone());
            Some(runner)
        }
        Holder::Other(mut other) if matches!(other.phase, Phase::Waiting(_)) => {
            let taken = take_runner(&mut other.phase);
            // A waiting runner of the same job and repository serves the other workflow job just as
            // well.
            let alike = other.job == job.job && other.repository == job.repository;
            match spare.take_if(|_| alike) {
                Some(runner) => enter(&mut other, Phase::Waiting(runner), now),
                None => enter(&mut other, Phase::Wanted, now),
            }
            changes.other = Some(other);
            taken
        }
        Holder::Other(_) | Holder::NoOther => None,
    }
}

/// Returns the name of the runner that the caller may now make. The claim holds for
/// `settings.lease_s`.
pub(super) fn claim(job: &mut WorkflowJob, settings: &Settings, now: Timestamp) -> Option<String> {
    if !matches!(job.phase, Phase::Wanted | Phase::Starting { .. })
        || job.due_at.is_none_or(|due| due > now)
    {
        return None;
    }
    if now.since(job.created_at) > WANTED_MAX_S * 1000 {
        enter(job, Phase::Lost, now);
        return None;
    }
    job.serial += 1;
    let name = names::runner(&job.workspace, job.id, job.serial);
    enter(job, Phase::Starting { name: name.clone() }, now);
    job.due_at = Some(now.plus_s(settings.lease_s));
    Some(name)
}

/// True if the claim on a runner of this name still holds.
pub(super) fn is_starting(job: &WorkflowJob, name: &str) -> bool {
    matches!(&job.phase, Phase::Starting { name: known } if known == name)
}

/// Notes that the runner is registered and its execution started. Call it only while the claim
/// holds.
pub(super) fn started(job: &mut WorkflowJob, runner: Runner, settings: &Settings, now: Timestamp) {
    enter(job, Phase::Waiting(runner), now);
    job.due_at = Some(now.plus_s(settings.look_s));
}

/// Notes that the runner of this name could not be made, through no fault of the workflow job.
pub(super) fn failed(job: &mut WorkflowJob, name: &str, now: Timestamp, again: Timestamp) {
    if is_starting(job, name) {
        enter(job, Phase::Wanted, now);
        job.due_at = Some(again);
    }
}

/// Decides what the progress of its runner's execution means for a workflow job.
pub(super) fn look(
    job: &mut WorkflowJob,
    progress: Progress,
    settings: &Settings,
    now: Timestamp,
) -> (Verdict, Changes) {
    let mut changes = Changes::default();
    let overdue = match progress {
        Progress::Queued => now.since(job.since) >= settings.queued_max_s * 1000,
        // For a runner that was swapped, the wait begins at the swap.
        Progress::Running { since } => now.since(since.max(job.since)) >= settings.pickup_s * 1000,
        Progress::Ended => false,
    };
    match (job.phase.clone(), progress) {
        (Phase::Waiting(runner), Progress::Ended) => {
            changes.leave.push(runner);
            in_vain(job, settings, now);
        }
        (Phase::PickedUp(runner), Progress::Ended) => {
            changes.leave.push(runner);
            enter(job, Phase::Done, now);
        }
        (Phase::Waiting(runner), _) if overdue => {
            job.due_at = Some(now.plus_s(settings.lease_s));
            return (Verdict::Remove(runner), changes);
        }
        (Phase::Waiting(_) | Phase::PickedUp(_), _) => {
            job.due_at = Some(now.plus_s(settings.look_s))
        }
        (Phase::Wanted | Phase::Starting { .. } | Phase::Done | Phase::Lost, _) => {}
    }
    (Verdict::Keep, changes)
}

/// Notes that the code host has removed a runner that did not pick up in time. Returns whether the
/// runner still belonged to this workflow job.
pub(super) fn removed(
    job: &mut WorkflowJob,
    runner: &Runner,
    settings: &Settings,
    now: Timestamp,
) -> bool {
    let still = matches!(&job.phase, Phase::Waiting(waiting) if waiting == runner);
    if still {
        in_vain(job, settings, now);
    }
    still
}

/// Withdraws our service from a workflow job whose job is gone, disabled or no longer for this
/// repository. A workflow job that was already picked up goes on.
pub(super) fn withdraw(job: &mut WorkflowJob, now: Timestamp) -> Changes {
    let mut changes = Changes::default();
    if matches!(job.phase, Phase::Wanted | Phase::Starting { .. } | Phase::Waiting(_)) {
        changes.leave.extend(take_runner(&mut job.phase));
        enter(job, Phase::Done, now);
    }
    changes
}

fn in_vain(job: &mut WorkflowJob, settings: &Settings, now: Timestamp) {
    job.attempts += 1;
    if job.attempts >= settings.attempts_max {
        return enter(job, Phase::Lost, now);
    }
    let doublings = (job.attempts - 1).min(VAIN_DOUBLINGS_MAX);
    enter(job, Phase::Wanted, now);
    job.due_at = Some(now.plus_s(VAIN_FIRST_S << doublings));
}

/// Takes the registered runner out of a phase. A phase without one stays as it is.
fn take_runner(phase: &mut Phase) -> Option<Runner> {
    match phase {
        Phase::Waiting(_) | Phase::PickedUp(_) => match std::mem::replace(phase, Phase::Wanted) {
            Phase::Waiting(runner) | Phase::PickedUp(runner) => Some(runner),
            _ => None,
        },
        Phase::Wanted | Phase::Starting { .. } | Phase::Done | Phase::Lost => None,
    }
}

fn enter(job: &mut WorkflowJob, phase: Phase, now: Timestamp) {
    job.since = now;
    job.due_at = (!matches!(phase, Phase::Done | Phase::Lost)).then_some(now);
    job.phase = phase;
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
