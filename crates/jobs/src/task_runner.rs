//! The interface to whoever runs attempts, and the outcomes of attempts.

use futures_util::future::BoxFuture;
use store::executions::tasks;
use types::instance::{AttemptId, Outcome, WorkEnd};

/// Runs attempts on this machine. `A` is everything that is needed to start one.
pub trait TaskRunner<A>: Send + Sync + 'static {
    /// The machine's name: the same at every start of this program, and unique among machines.
    fn name(&self) -> &str;

    /// Runs an attempt to its end, or continues with one that an earlier run of this program began.
    /// Its leftovers stay until it is [abandoned](Self::abandon), so that its outcome is still
    /// available after a crash.
    fn run<'a>(&'a self, id: &'a AttemptId, attempt: A) -> BoxFuture<'a, WorkEnd>;

    /// Removes everything of an attempt, and ends it at once if it still runs. Does nothing if
    /// there is no such attempt.
    fn abandon<'a>(&'a self, id: &'a AttemptId) -> BoxFuture<'a, ()>;

    /// Asks an attempt to end, waits until it has or its grace period is over, and removes
    /// everything of it. Nobody wants its outcome any more.
    fn dismiss<'a>(&'a self, id: &'a AttemptId) -> BoxFuture<'a, ()> {
        self.abandon(id)
    }

    /// Returns the attempts on this machine, including those that have ended.
    fn present(&self) -> Vec<AttemptId>;
}

const EXITED: &str = "exited";
const KILLED: &str = "killed";
const OUT_OF_MEMORY: &str = "out_of_memory";
const TIMED_OUT: &str = "timed_out";
const NOT_STARTED: &str = "not_started";
const LOST: &str = "lost";
/// Most characters of a failure's text that are kept.
const TEXT_MAX: usize = 500;

/// Whether a failure is the task's own, so that it uses up one of its retries.
pub(crate) const fn is_the_tasks_own(failure: &Outcome) -> bool {
    !matches!(failure, Outcome::Lost(_) | Outcome::Interrupted)
}

/// Converts a failure to the form that its task's row has.
pub(crate) fn stored(failure: &Outcome) -> tasks::Failure {
    let (name, code, text) = match failure {
        Outcome::Exited(code) => (EXITED, Some(*code), None),
        Outcome::Killed(signal) => (KILLED, Some(*signal), None),
        Outcome::OutOfMemory => (OUT_OF_MEMORY, None, None),
        Outcome::TimedOut => (TIMED_OUT, None, None),
        // A task is interrupted only by those who take it off the machine, for reasons that are not
        // the task's own.
        Outcome::Interrupted => (LOST, None, Some("it was interrupted")),
        Outcome::NotStarted(why) | Outcome::NoImage(why) => (NOT_STARTED, None, Some(why.as_str())),
        Outcome::Lost(why) => (LOST, None, Some(why.as_str())),
    };
    let text = text.map(|text| text.chars().take(TEXT_MAX).collect());
    tasks::Failure { name: name.into(), code: code.map(i64::from), text }
}

/// Whether the last attempt at a waiting task was none: its machine did not have the image. Any other
/// task that did not start is not tried again.
pub(crate) fn was_given_back(task: &tasks::Task) -> bool {
    task.failure.as_ref().is_some_and(|failure| failure.name == NOT_STARTED)
}

/// Converts a failure from a task's row.
pub fn failure_of_row(row: &tasks::Failure) -> Result<Outcome, store::Error> {
    let corrupt = |why| store::Error::corrupt("tasks", row.name.as_str(), why);
    let code = || {
        let code = row.code.and_then(|code| i32::try_from(code).ok());
        code.ok_or_else(|| corrupt("the failure has no exit code"))
    };
    let text = || row.text.clone().ok_or_else(|| corrupt("the failure has no text"));
    Ok(match row.name.as_str() {
        EXITED => Outcome::Exited(code()?),
        KILLED => Outcome::Killed(code()?),
        OUT_OF_MEMORY => Outcome::OutOfMemory,
        TIMED_OUT => Outcome::TimedOut,
        NOT_STARTED => Outcome::NotStarted(text()?),
        LOST => Outcome::Lost(text()?),
        _ => return Err(corrupt("it is no known failure")),
    })
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
            assert_eq!(failure_of_row(&stored(&failure)).unwrap(), failure);
        }
    }

    #[test]
    fn a_failure_that_was_never_stored_is_none() {
        let row = |name: &str| tasks::Failure { name: name.into(), code: None, text: None };
        for name in [EXITED, KILLED, NOT_STARTED, LOST, "gone"] {
            let read = failure_of_row(&row(name));
            assert!(matches!(read, Err(store::Error::Corrupt { .. })), "{name}");
        }
    }
}
