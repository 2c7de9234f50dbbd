//! The log that users read during a build: the steps with their numbers, and their output. How it
//! ended is the last line, which the control plane writes.

use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::mpsc;
use types::World;
use types::instance::{Printed, Stream};

const CUT: &str =
    "\n(the rest of what the steps print is left out: the log of a build has a limit)\n";

pub(super) struct Log {
    printed: mpsc::Sender<Printed>,
    world: World,
    position: AtomicU64,
    /// How many more bytes of the steps' output are logged. The machine's own lines are not
    /// limited.
    left: AtomicU64,
    was_cut: AtomicBool,
}

impl Log {
    pub(super) fn new(printed: mpsc::Sender<Printed>, world: World, bytes_max: u64) -> Self {
        Self {
            printed,
            world,
            position: AtomicU64::new(0),
            left: AtomicU64::new(bytes_max),
            was_cut: AtomicBool::new(false),
        }
    }

    fn piece(&self, stream: Stream, bytes: Bytes) -> Printed {
        let length = bytes.len() as u64;
        let next = self.position.fetch_add(length, Ordering::Relaxed) + length;
        Printed { next, at: self.world.now(), stream, bytes }
    }

    /// Logs a line of the machine's own. May block.
    pub(super) fn line(&self, text: &str) {
        let piece = self.piece(Stream::Stdout, Bytes::from(format!("{text}\n")));
        // Even if nobody reads the log any more, somebody may still wait for the build.
        let _ = self.printed.blocking_send(piece);
    }

    /// Logs output of a step.
    pub(super) async fn pass_on(&self, printed: Printed) {
        let wanted = printed.bytes.len() as u64;
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(wanted), Ordering::Relaxed);
        let piece = if wanted <= left {
            self.piece(printed.stream, printed.bytes)
        } else if self.was_cut.swap(true, Ordering::Relaxed) {
            return;
        } else {
            self.piece(Stream::Stdout, Bytes::from_static(CUT.as_bytes()))
        };
        let _ = self.printed.send(piece).await;
    }
}
