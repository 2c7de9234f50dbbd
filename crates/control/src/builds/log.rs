//! What builds print, beside what their workloads print.

use super::buildable::kind_of;
use bytes::Bytes;
use store::builds::Build;
use store::logs::{Printer, Source};
use tokio::sync::mpsc;
use types::instance::{Printed, Stream};
use types::{KindName, World};

/// Pieces of output of one build on their way to its log. Beyond this the build waits.
pub(super) const PIECES_MAX: usize = 64;

/// Where the output of one try goes.
pub(super) fn source(build: &Build) -> Source {
    let (first, name) = build.repository.split_once('/').unwrap_or(("", &build.repository));
    // An image is for a kind of workload, whose lines are where its readers look.
    let kind = if build.kind == KindName::Image { kind_of(first) } else { Some(build.kind) };
    Source {
        workspace: build.workspace.clone(),
        kind: kind.unwrap_or(KindName::Image),
        name: name.to_owned(),
        printer: Printer::Build {
            build: build.id.clone(),
            attempt: u32::try_from(build.attempt).unwrap_or(u32::MAX),
        },
    }
}

/// Adds a line of the server's own to what a build prints.
pub(super) async fn say(world: &World, printed: &mpsc::Sender<Printed>, line: &str) {
    let line = format!("{}\n", line.trim_end());
    let piece = Printed {
        // The output of a build is never read again from a position.
        next: 0,
        at: world.now(),
        stream: Stream::Stdout,
        bytes: Bytes::from(line),
    };
    // Whoever keeps the lines has said already why it does not.
    let _ = printed.send(piece).await;
}
