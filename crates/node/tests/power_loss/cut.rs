//! Computes what a disk has if the power was lost at some moment of its journal.

use crate::Chances;
use crate::fuse::{FLUSHED, u64_at};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const HEADER: usize = 16;
/// A disk keeps or loses this much at once.
const PAGE: usize = 4_096;

/// What a disk makes of writes that were not flushed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unflushed {
    None,
    /// Some of them, chosen page by page.
    Some,
    All,
}

pub(crate) struct Journal(Vec<u8>);

/// A write that was not flushed yet.
struct Write<'a> {
    offset: u64,
    data: &'a [u8],
}

impl Journal {
    pub(crate) fn read(file: &Path) -> Self {
        Self(std::fs::read(file).unwrap())
    }

    pub(crate) fn end(&self) -> u64 {
        self.0.len() as u64
    }

    /// Changes a disk from before the journal into one that lost its power when the journal was
    /// this long.
    pub(crate) fn replay(&self, at: u64, unflushed: Unflushed, disk: &Path, chances: &mut Chances) {
        let disk = OpenOptions::new().write(true).open(disk).unwrap();
        let mut pending: Vec<Write<'_>> = Vec::new();
        let mut rest = &self.0[..];
        while let Some((offset, data)) = first(&mut rest)
            && self.end() - rest.len() as u64 <= at
        {
            if offset == FLUSHED {
                pending.drain(..).for_each(|write| write.apply(&disk, || true));
            } else {
                pending.push(Write { offset, data });
            }
        }
        for write in pending {
            write.apply(&disk, || match unflushed {
                Unflushed::None => false,
                Unflushed::Some => chances.below(2) == 0,
                Unflushed::All => true,
            });
        }
    }
}

/// Takes the first entry off.
fn first<'a>(rest: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    if rest.is_empty() {
        return None;
    }
    let (offset, size) = (u64_at(rest, 0), usize::try_from(u64_at(rest, 8)).unwrap());
    let (entry, after) = rest.split_at(HEADER + size);
    *rest = after;
    Some((offset, &entry[HEADER..]))
}

impl Write<'_> {
    /// Writes the pages that the disk has kept.
    fn apply(&self, disk: &File, mut is_kept: impl FnMut() -> bool) {
        let mut offset = self.offset;
        for page in self.data.chunks(PAGE) {
            if is_kept() {
                disk.write_all_at(page, offset).unwrap();
            }
            offset += page.len() as u64;
        }
    }
}
