//! What tasks, replicas and builds print: kept as it comes, found again by time and text.
//!
//! ```text
//! pieces of one source  ─→ Recorder ─→ chunks of lines ─→ one writer for all sources ─→ store::logs
//! ```
//!
//! Nothing is lost on the way: whoever prints faster than can be written waits. A chunk says how
//! far it has read the output, so that a server which is started again goes on with exactly what is
//! missing. What an attempt or a build prints beyond [`Settings::task_bytes_max`] is dropped, and a
//! line says so; a replica may print so much each day ([`Settings::replica_day_bytes_max`]), and so may
//! the rules of a workload's network.

mod find;
mod line;
mod recorder;
mod writer;

pub use find::{Found, Question, SCAN_BYTES_MAX, find};
pub use line::{Line, Severity};
pub use recorder::{CHUNK_BYTES_MAX, LINE_BYTES_MAX, Recorder};
pub use store::logs::{Printer, Source};
pub use writer::{LogWriter, Logs, Lost, Settings};

#[cfg(test)]
mod tests;
