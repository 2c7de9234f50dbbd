//! Whoever runs attempts, and what came of one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use store::executions::tasks;
use types::Timestamp;
use types::ids::ExecutionId;

/// An answer that takes a while.
pub type Running<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One try at one task. As text it is also the name of the instance that runs it, and no other
/// instance ever has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    pub execution: ExecutionId,
    /// Of the task in its execution, from 0.
    pub task: u32,
    /// From 1.
    pub number: u32,
}

/// Runs attempts on this machine. `A` is all that is needed to start one.
pub trait TaskRunner<A>: Send + Sync + 'static {
    /// The same at every start of this program on this machine, and no other machine's.
    fn name(&self) -> &str;

    /// Runs an attempt to its end, or goes on with one that an earlier run of this program began.
    /// What is left of it stays until it is [abandoned](Self::abandon), so that its outcome can be
    /// had again after a crash.
    fn run<'a>(&'a self, id: &'a AttemptId, attempt: A) -> Running<'a, Outcome>;

    /// Removes all of an attempt, and ends it at once if it still runs. Without it there is nothing
    /// to do.
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

impl Failure {
    /// Whether it is the task's own, so that it uses up one of its retries.
    pub(crate) const fn is_the_tasks_own(&self) -> bool {
        !matches!(self, Self::Lost(_))
    }

    pub(crate) fn stored(&self) -> tasks::Failure {
        let (name, code, text) = match self {
            Self::Exited(code) => (EXITED, Some(*code), None),
            Self::Killed(signal) => (KILLED, Some(*signal), None),
            Self::OutOfMemory => (OUT_OF_MEMORY, None, None),
            Self::TimedOut => (TIMED_OUT, None, None),
            Self::NotStarted(why) => (NOT_STARTED, None, Some(why)),
            Self::Lost(why) => (LOST, None, Some(why)),
        };
        let text = text.map(|text| text.chars().take(TEXT_MAX).collect());
        tasks::Failure { name: name.into(), code: code.map(i64::from), text }
    }

    /// The failure that a task's row tells of.
    pub fn of_row(row: &tasks::Failure) -> Self {
        let code = row.code.and_then(|code| i32::try_from(code).ok());
        let text = row.text.clone().unwrap_or_default();
        match (row.name.as_str(), code) {
            (EXITED, Some(code)) => Self::Exited(code),
            (KILLED, Some(code)) => Self::Killed(code),
            (OUT_OF_MEMORY, _) => Self::OutOfMemory,
            (TIMED_OUT, _) => Self::TimedOut,
            (NOT_STARTED, _) => Self::NotStarted(text),
            (LOST, _) => Self::Lost(text),
            // A newer release wrote it, or nobody: that it was a success must not be the answer.
            (name, _) => Self::Lost(format!("the stored failure `{name}` is not known: {text}")),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no attempt")]
pub struct BadAttemptId(String);

const EXITED: &str = "exited";
const KILLED: &str = "killed";
const OUT_OF_MEMORY: &str = "out_of_memory";
const TIMED_OUT: &str = "timed_out";
const NOT_STARTED: &str = "not_started";
const LOST: &str = "lost";
/// Characters of a failure's text that are kept.
const TEXT_MAX: usize = 500;

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
    fn a_failure_reads_back_as_it_was_stored() {
        let (why, gone) = ("no such file".to_owned(), "the machine went away".to_owned());
        for failure in [
            Failure::Exited(-3),
            Failure::Killed(9),
            Failure::OutOfMemory,
            Failure::TimedOut,
            Failure::NotStarted(why),
            Failure::Lost(gone),
        ] {
            assert_eq!(Failure::of_row(&failure.stored()), failure);
        }
    }

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
