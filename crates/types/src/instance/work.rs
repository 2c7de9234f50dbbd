//! The work of an instance: what it prints and how it ends.

use crate::Timestamp;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A piece of the output of some work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    /// Position at which the next piece begins.
    pub next: u64,
    pub at: Timestamp,
    pub stream: Stream,
    pub bytes: Bytes,
}

/// How some work ended, and when, by its machine's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkEnd {
    #[serde(rename = "how")]
    pub outcome: Outcome,
    /// When the program started, if it did.
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Exit status; 0 means success.
    Exited(i32),
    Killed(i32),
    /// Only the machine can tell, so an instance's first program cannot report it.
    #[serde(skip)]
    OutOfMemory,
    TimedOut,
    Interrupted,
    /// There was nothing to start, for a reason that retrying will not fix. The text says why.
    NotStarted(String),
    /// The machine does not have the image, but another one may. Like [`Self::OutOfMemory`], an
    /// instance cannot report it about itself.
    #[serde(skip)]
    NoImage(String),
    /// The machine had no room, failed, or lost the instance; none of this is the work's fault.
    /// Like [`Self::OutOfMemory`], an instance cannot report it about itself.
    #[serde(skip)]
    Lost(String),
}

impl Outcome {
    pub const SUCCESS: Self = Self::Exited(0);

    pub fn is_success(&self) -> bool {
        *self == Self::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_written_as_first_programs_of_earlier_releases_read_it() {
        let at = Timestamp::from_ms(5);
        let end = |outcome| WorkEnd { outcome, started_at: Some(at), ended_at: at };
        let time = serde_json::to_string(&at).unwrap();
        for (outcome, how) in [
            (Outcome::Exited(3), r#"{"exited":3}"#),
            (Outcome::Killed(9), r#"{"killed":9}"#),
            (Outcome::TimedOut, r#""timedOut""#),
            (Outcome::Interrupted, r#""interrupted""#),
            (Outcome::NotStarted("no".into()), r#"{"notStarted":"no"}"#),
        ] {
            let text = format!(r#"{{"how":{how},"startedAt":{time},"endedAt":{time}}}"#);
            assert_eq!(serde_json::to_string(&end(outcome.clone())).unwrap(), text);
            assert_eq!(serde_json::from_str::<WorkEnd>(&text).unwrap(), end(outcome));
        }
    }

    #[test]
    fn an_instance_cannot_say_what_only_the_machine_knows() {
        for how in [r#""outOfMemory""#, r#"{"lost":"the machine failed"}"#] {
            assert!(serde_json::from_str::<Outcome>(how).is_err(), "{how}");
        }
    }
}
