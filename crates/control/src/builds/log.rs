//! The output of builds, which is stored with the output of their workloads.

use super::buildable::workload_kind;
use bytes::Bytes;
use store::builds::Build;
use store::logs::{Printer, Source};
use tokio::sync::mpsc;
use types::World;
use types::instance::{Printed, Stream};

/// Pieces of output of one build buffered on their way to its log. When they are full, the build
/// waits.
pub(super) const PIECES_MAX: usize = 64;

/// Returns the source under which the output of one attempt is logged.
pub(super) fn source(build: &Build) -> Source {
    let (_, name) = build.repository.split_once('/').unwrap_or(("", &build.repository));
    Source {
        workspace: build.workspace.clone(),
        // Where readers look.
        kind: workload_kind(build),
        name: name.to_owned(),
        printer: Printer::Build {
            build: build.id.clone(),
            attempt: u32::try_from(build.attempt).unwrap_or(u32::MAX),
        },
    }
}

/// Adds a line of the server's own to the output of a build.
pub(super) async fn say(world: &World, printed: &mpsc::Sender<Printed>, line: &str) {
    let line = format!("{}\n", line.trim_end());
    let piece = Printed {
        // The output of a build is never read again from a position.
        next: 0,
        at: world.now(),
        stream: Stream::Stdout,
        bytes: Bytes::from(line),
    };
    // A failure to store the lines has been reported already.
    let _ = printed.send(piece).await;
}
