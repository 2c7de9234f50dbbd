//! Settings of the queue.

use crate::share::Room;
use std::time::Duration;
use types::Timestamp;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Tasks that this machine runs at the same time.
    pub slots: u32,
    /// Memory of this machine for all tasks together.
    pub memory_mb: u32,
    /// Calls to workloads that this machine waits for at the same time, in addition to tasks.
    pub call_slots: u32,
    /// Percentage of `slots` and of `memory_mb` that one workspace may have of this machine, even
    /// if nobody else wants the rest: a neighbour may come, and tasks are not interrupted.
    pub workspace_share_percent: u32,
    /// Tasks of one workspace that run at the same time on all machines.
    pub workspace_tasks_max: u32,
    /// Calls of one workspace that are waited for at the same time on all machines.
    pub workspace_calls_max: u32,
    /// How long a machine keeps its tasks without renewing its lease.
    pub lease: Duration,
    /// How often it renews the lease; several times within `lease`.
    pub heartbeat: Duration,
    /// How old a call is at least before it ends because the only machine that can make it has lost
    /// its lease, and how long tasks wait for a machine that has gone away and may have their image.
    pub machine_wait: Duration,
    /// How long the first retry of a task waits. Each further one waits twice as long, up to
    /// `backoff_max`.
    pub backoff_first: Duration,
    pub backoff_max: Duration,
    /// How many attempts may be lost through no fault of the task's own before it counts as failed.
    pub lost_attempts_max: u32,
    /// How long an execution is kept after its end.
    pub retention: Duration,
    /// Most tasks of one execution.
    pub tasks_max: u32,
    /// Most unfinished executions of one workspace.
    pub open_max: u32,
    /// With this many unfinished executions a workspace accepts none from callers without
    /// credentials, which leaves the rest to its members.
    pub open_public_max: u32,
    /// Most bytes of what one workspace asks for in a day, since all of it is kept for as long as the
    /// executions are. Callers without credentials leave half of them to the members.
    pub asked_day_bytes_max: u64,
    /// How often a machine looks for tasks that other servers created.
    pub poll: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots: 20,
            call_slots: 64,
            memory_mb: 20_480,
            workspace_share_percent: 80,
            workspace_tasks_max: 1000,
            workspace_calls_max: 32,
            lease: Duration::from_secs(60),
            heartbeat: Duration::from_secs(15),
            machine_wait: Duration::from_secs(3600),
            backoff_first: Duration::from_secs(1),
            backoff_max: Duration::from_secs(300),
            lost_attempts_max: 5,
            retention: Duration::from_secs(30 * 24 * 3600),
            tasks_max: 100_000,
            open_max: 10_000,
            open_public_max: 1_000,
            asked_day_bytes_max: 4 << 30,
            poll: Duration::from_millis(500),
        }
    }
}

/// One part in this many of a lease is left for a machine that cannot renew to end its tasks.
const ENDING_PART: u32 = 4;
/// Heartbeats that a lease must allow for at least, so that one may fail without harm.
const LEASE_HEARTBEATS: u32 = 3;

/// A setting that cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadSetting {
    /// Its name in the operator's file.
    pub setting: &'static str,
    /// Another one that it does not go with.
    pub beside: Option<&'static str>,
    /// What would be right.
    pub right: &'static str,
}

impl Settings {
    /// Returns how long after its last renewal a machine may rely on its lease.
    pub(crate) fn lease_is_safe_for(&self) -> Duration {
        self.lease - self.lease / ENDING_PART
    }

    /// Returns before which time a call was started that waits no longer for a machine without a
    /// lease, and before which a machine was up last that nobody waits for.
    pub(crate) fn abandoned(&self, now: Timestamp) -> Timestamp {
        now.minus(self.machine_wait)
    }

    /// Returns how much of so much room for tasks one workspace may have. It has one slot at least.
    pub(crate) fn share_of(&self, slots: i64, memory_mb: i64) -> Room {
        let part = |all: i64| all.saturating_mul(self.workspace_share_percent.into()) / 100;
        Room { slots: part(slots).max(slots.min(1)), memory_mb: part(memory_mb) }
    }

    /// Refuses settings that cannot work.
    pub fn check(&self) -> Result<(), BadSetting> {
        let renews = self.heartbeat.saturating_mul(LEASE_HEARTBEATS) <= self.lease;
        let wrong = [
            (self.heartbeat.is_zero(), "jobs.heartbeat", None, "must be above zero"),
            (self.poll.is_zero(), "jobs.poll", None, "must be above zero"),
            (
                !renews,
                "jobs.lease",
                Some("jobs.heartbeat"),
                "must be at least three times jobs.heartbeat",
            ),
            (
                self.backoff_max < self.backoff_first,
                "jobs.backoff_max",
                Some("jobs.backoff_first"),
                "must not be below jobs.backoff_first",
            ),
            (self.tasks_max == 0, "jobs.tasks_max", None, "must be at least 1"),
            (self.open_max == 0, "jobs.open_max", None, "must be at least 1"),
            (self.workspace_tasks_max == 0, "jobs.workspace_tasks_max", None, "must be at least 1"),
            (self.workspace_calls_max == 0, "jobs.workspace_calls_max", None, "must be at least 1"),
            (
                self.open_public_max >= self.open_max,
                "jobs.open_public_max",
                Some("jobs.open_max"),
                "must be below jobs.open_max",
            ),
        ];
        match wrong.into_iter().find(|(is_wrong, ..)| *is_wrong) {
            Some((_, setting, beside, right)) => Err(BadSetting { setting, beside, right }),
            None => Ok(()),
        }
    }
}
