//! The output of tasks, replicas and builds: stored as it comes, found again by time and text.
//!
//! ```text
//! pieces of one source  ─→ Recorder ─→ chunks of lines ─→ one writer for all sources ─→ store::logs
//! ```
//!
//! Nothing is lost on the way: a program that prints faster than can be written has to wait. A
//! chunk says how far the output has been read, so that a restarted server continues with exactly
//! what is missing. What an attempt or a build prints beyond [`Settings::task_bytes_max`] is
//! dropped, and a line says so. A replica has such a limit for each day
//! ([`Settings::replica_day_bytes_max`]), and so have the logs that the server writes about a
//! workload's network rules and a model's requests. All of a workspace's output together has one
//! too ([`Settings::workspace_day_bytes_max`]).

mod find;
mod line;
mod recorder;
mod searches;
mod shares;
mod writer;

pub use find::{Found, Question};
pub use line::{Line, Severity};
pub use recorder::LINE_BYTES_MAX;
pub use searches::{SearchLimits, Searches};
pub use store::logs::{Printer, Source};
pub use writer::{LogWriter, Logs, Lost, Settings};

#[cfg(test)]
mod tests;
