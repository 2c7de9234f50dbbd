//! What a copy reports: its size, and what it left out.

use crate::{output, term};
use std::path::PathBuf;

/// Most skipped files that are listed by name.
const NAMED_MAX: usize = 10;

/// Size of a finished copy.
pub(crate) struct Copied {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Copied {
    pub(crate) fn tell(&self) {
        let files = output::counted(self.files, "file");
        term::note(format!("copied {files}, {}", output::size(self.bytes)));
    }
}

/// Tells of files that were skipped, and why.
pub(super) fn tell_left_out(left_out: &[(PathBuf, &'static str)]) {
    for (path, why) in left_out.iter().take(NAMED_MAX) {
        term::note(format!("left out {}: {why}", term::harmless(&path.to_string_lossy())));
    }
    if left_out.len() > NAMED_MAX {
        term::note(format!("left out {} more", left_out.len() - NAMED_MAX));
    }
}
