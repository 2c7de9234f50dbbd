//! Whoever runs attempts, and what came of one.

use std::future::Future;
use std::pin::Pin;
use store::executions::tasks;
use types::instance::{AttemptId, Outcome, WorkEnd};

/// An answer that takes a while.
pub type Running<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs attempts on this machine. `A` is all that is needed to start one.
pub trait TaskRunner<A>: Send + Sync + 'static {
    /// The same at every start of this program on this machine, and no other machine's.
    fn name(&self) -> &str;

    /// Runs an attempt to its end, or goes on with one that an earlier run of this program began.
    /// What is left of it stays until it is [abandoned](Self::abandon), so that its outcome can be
    /// had again after a crash.
    fn run<'a>(&'a self, id: &'a AttemptId, attempt: A) -> Running<'a, WorkEnd>;

    /// Removes all of an attempt, and ends it at once if it still runs. Without it there is nothing
    /// to do.
    fn abandon<'a>(&'a self, id: &'a AttemptId) -> Running<'a, ()>;

    /// The attempts that are on this machine, also those that have ended.
    fn present(&self) -> Vec<AttemptId>;
}

const EXITED: &str = "exited";
const KILLED: &str = "killed";
const OUT_OF_MEMORY: &str = "out_of_memory";
const TIMED_OUT: &str = "timed_out";
const NOT_STARTED: &str = "not_started";
const LOST: &str = "lost";
/// Characters of a failure's text that are kept.
const TEXT_MAX: usize = 500;

/// Whether a failure is the task's own, so that it uses up one of its retries.
pub(crate) const fn is_the_tasks_own(failure: &Outcome) -> bool {
    !matches!(failure, Outcome::Lost(_) | Outcome::Interrupted)
}

/// A failure as the row of its task tells of it.
pub(crate) fn stored(failure: &Outcome) -> tasks::Failure {
    let (name, code, text) = match failure {
        Outcome::Exited(code) => (EXITED, Some(*code), None),
        Outcome::Killed(signal) => (KILLED, Some(*signal), None),
        Outcome::OutOfMemory => (OUT_OF_MEMORY, None, None),
        Outcome::TimedOut => (TIMED_OUT, None, None),
        // Nobody interrupts a task but who takes it off the machine, for reasons that are not its
        // own.
        Outcome::Interrupted => (LOST, None, Some("it was interrupted")),
        Outcome::NotStarted(why) => (NOT_STARTED, None, Some(why.as_str())),
        Outcome::Lost(why) => (LOST, None, Some(why.as_str())),
    };
    let text = text.map(|text| text.chars().take(TEXT_MAX).collect());
    tasks::Failure { name: name.into(), code: code.map(i64::from), text }
}

/// The failure that a task's row tells of.
pub fn failure_of_row(row: &tasks::Failure) -> Outcome {
    let code = row.code.and_then(|code| i32::try_from(code).ok()).unwrap_or_default();
    let text = row.text.clone().unwrap_or_default();
    match row.name.as_str() {
        EXITED => Outcome::Exited(code),
        KILLED => Outcome::Killed(code),
        OUT_OF_MEMORY => Outcome::OutOfMemory,
        TIMED_OUT => Outcome::TimedOut,
        NOT_STARTED => Outcome::NotStarted(text),
        _ => Outcome::Lost(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_back_as_it_was_stored() {
        let (why, gone) = ("no such file".to_owned(), "the machine went away".to_owned());
        for failure in [
            Outcome::Exited(-3),
            Outcome::Killed(9),
            Outcome::OutOfMemory,
            Outcome::TimedOut,
            Outcome::NotStarted(why),
            Outcome::Lost(gone),
        ] {
            assert_eq!(failure_of_row(&stored(&failure)), failure);
        }
    }
}
