//! How much of its output each workspace keeps in a day.

use super::line::{self, Line};
use crate::daily::Daily;
use store::logs::Chunk;
use types::Timestamp;
use types::ids::WorkspaceId;

pub(super) struct Shares {
    day_bytes_max: u64,
    daily: Daily,
}

impl Shares {
    pub(super) fn new(day_bytes_max: u64) -> Self {
        Self { day_bytes_max, daily: Daily::default() }
    }

    /// Counts chunks that are about to be written. Returns false if the workspace has less left.
    pub(super) fn take(&self, workspace: &WorkspaceId, chunks: &[Chunk], now: Timestamp) -> bool {
        let wanted = chunks.iter().map(|chunk| chunk.text.len() as u64).sum();
        self.daily.take(workspace, wanted, self.day_bytes_max, now)
    }

    /// Returns what is written in place of chunks that do not fit.
    pub(super) fn note(&self, mut chunks: Vec<Chunk>) -> Vec<Chunk> {
        chunks.truncate(1);
        for chunk in &mut chunks {
            let why = format!(
                "more was printed, but the {} bytes that a workspace keeps in a day are used up",
                self.day_bytes_max
            );
            let note = Line::note(chunk.first_ns, why);
            (chunk.last_ns, chunk.lines) = (chunk.first_ns, 1);
            (chunk.severities, chunk.text) = (note.severity.bit(), line::write(&note));
        }
        chunks
    }
}
