//! Whoever runs attempts, and what came of one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use types::Timestamp;
use types::ids::ExecutionId;

/// An answer that takes a while.
pub type Running<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One try at one task. As text it is also the name of the instance that runs it, and no other instance ever has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    pub execution: ExecutionId,
    /// Of the task in its execution, from 0.
    pub task: u32,
    /// From 1.
    pub number: u32,
}

/// Runs attempts on this machine. `A` is all that is needed to start one.
pub trait Crew<A>: Send + Sync + 'static {
    /// The same at every start of this program on this machine, and no other machine's.
    fn name(&self) -> &str;

    /// Runs an attempt to its end, or goes on with one that an earlier run of this program began. When this answers,
    /// nothing of the attempt is left on the machine.
    fn run<'a>(&'a self, id: &'a AttemptId, attempt: A) -> Running<'a, Outcome>;

    /// Ends an attempt at once and removes all of it. Without it there is nothing to do.
    fn abandon<'a>(&'a self, id: &'a AttemptId) -> Running<'a, ()>;

    /// The attempts that are on this machine, also those that have ended.
    fn present(&self) -> Vec<AttemptId>;
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// When its program started, if it did.
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub result: Result<(), Failure>,
}

/// Why an attempt did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    Exited(i32),
    Killed(i32),
    OutOfMemory,
    TimedOut,
    /// The program could not be started, for a reason that another try will not mend.
    NotStarted(String),
    /// The machine had no room or failed; nothing of this is the task's fault.
    Lost(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no attempt")]
pub struct BadAttemptId(String);

const PREFIX: &str = "task-";
const EXECUTION_PREFIX: &str = "exe_";

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stem = self.execution.as_str().trim_start_matches(EXECUTION_PREFIX);
        write!(f, "{PREFIX}{stem}-{}-{}", self.task, self.number)
    }
}

impl FromStr for AttemptId {
    type Err = BadAttemptId;

    fn from_str(text: &str) -> Result<Self, BadAttemptId> {
        let parsed = text.strip_prefix(PREFIX).and_then(|rest| {
            let (rest, number) = rest.rsplit_once('-')?;
            let (stem, task) = rest.rsplit_once('-')?;
            let execution = ExecutionId::known(format!("{EXECUTION_PREFIX}{stem}"));
            Some(Self { execution, task: task.parse().ok()?, number: number.parse().ok()? })
        });
        parsed.ok_or_else(|| BadAttemptId(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_found_again_by_the_name_of_its_instance() {
        let id = AttemptId { execution: ExecutionId::known("exe_ab3k9"), task: 17, number: 2 };
        assert_eq!(id.to_string(), "task-ab3k9-17-2");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "ab3k9-1", "task-", "task-ab3k9-1", "task-ab3k9-x-1"] {
            assert!(bad.parse::<AttemptId>().is_err(), "{bad}");
        }
    }
}
