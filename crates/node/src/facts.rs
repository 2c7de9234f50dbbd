//! The journal: facts about what happened to instances, kept until somebody has taken note of them.
//!
//! Facts are lines in a file, in the order in which they happened, so they survive a kill of the
//! node. They are handed out again until they are forgotten; their numbers make a second delivery
//! harmless. If the machine stops, the last facts that nobody had read may be lost; the next node
//! then reports every instance of that time as lost.

use files::Readers;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::instance::{Fact, Happened, InstanceName, Stamp, boot_number};
use types::{Timestamp, World};

pub(crate) struct Journal {
    world: World,
    path: PathBuf,
    /// `None` on a machine that does not distinguish its starts. Durations are then computed from
    /// the calendar time.
    boot: Option<i64>,
    kept_at_most: usize,
    state: Mutex<Kept>,
    changed: Condvar,
}

struct Kept {
    lines: Lines,
    facts: VecDeque<Fact>,
    next: u64,
    /// How many lines in the file are forgotten already.
    stale: usize,
}

/// The file, which is only ever appended to in whole lines.
struct Lines {
    file: File,
    /// The length of all whole lines.
    bytes: u64,
    /// Whether something may come after those, because a write failed.
    is_torn: bool,
}

/// The file is rewritten when it has more forgotten lines than this, and more of them than others.
const STALE_AT_MOST: usize = 10_000;

impl Journal {
    pub(crate) fn open(folder: &Path, kept_at_most: usize, world: World) -> io::Result<Self> {
        let path = folder.join("facts");
        let facts = read(&path)?;
        // Numbers do not repeat even when all facts are forgotten: they start from the time, and
        // the clock never goes back that far.
        let by_time = world.now().ms().max(0).cast_unsigned().saturating_mul(1_000);
        let next = facts.back().map_or(0, |fact| fact.number + 1).max(by_time);
        let lines = rewrite(&path, &facts)?;
        let state = Mutex::new(Kept { lines, facts, next, stale: 0 });
        let boot = crate::process::boot().ok().map(|boot| boot_number(&boot));
        Ok(Self { world, path, boot, kept_at_most, state, changed: Condvar::new() })
    }

    /// Returns the number of facts kept if that is too many to start another instance.
    pub(crate) fn full(&self) -> Option<usize> {
        let kept = self.state.lock().facts.len();
        (kept >= self.kept_at_most).then_some(kept)
    }

    pub(crate) fn record(
        &self,
        at: Timestamp,
        instance: &InstanceName,
        happened: Happened,
    ) -> io::Result<()> {
        let mut kept = self.state.lock();
        let (number, chance) = (kept.next, self.world.random_text(8));
        let uptime_ms = self.world.uptime_ms() - self.world.now().since(at).max(0);
        let fact = Fact {
            id: format!("{number:x}-{chance}"),
            number,
            at,
            stamp: self.boot.map(|boot| Stamp { boot, uptime_ms }),
            instance: instance.clone(),
            happened,
        };
        let mut line = serde_json::to_vec(&fact)?;
        line.push(b'\n');
        kept.lines.append(&line)?;
        kept.next += 1;
        kept.facts.push_back(fact);
        self.changed.notify_all();
        Ok(())
    }

    /// Returns the oldest facts that are not forgotten, at most `limit`. Waits up to `timeout` for
    /// the first.
    pub(crate) fn oldest(&self, limit: usize, timeout: Duration) -> Vec<Fact> {
        let deadline = Instant::now() + timeout;
        let mut kept = self.state.lock();
        while kept.facts.is_empty() {
            if self.changed.wait_until(&mut kept, deadline).timed_out() {
                break;
            }
        }
        kept.facts.iter().take(limit).cloned().collect()
    }

    pub(crate) fn forget(&self, through: u64) -> io::Result<()> {
        let mut kept = self.state.lock();
        let count = kept.facts.iter().take_while(|fact| fact.number <= through).count();
        kept.facts.drain(..count);
        kept.stale += count;
        if kept.facts.is_empty() {
            // Facts are mostly forgotten one by one, and a new file each time would be too
            // expensive.
            kept.lines.clear()?;
            kept.stale = 0;
        } else if kept.stale > STALE_AT_MOST && kept.stale > kept.facts.len() {
            kept.lines = rewrite(&self.path, &kept.facts)?;
            kept.stale = 0;
        }
        Ok(())
    }
}

impl Lines {
    /// Appends a line. If that fails, for example because the disk is full, what was written of it
    /// is gone before the next one comes.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.bytes)?;
            self.is_torn = false;
        }
        let written = self.file.write_all(line);
        match written {
            Ok(()) => self.bytes += line.len() as u64,
            Err(_) => self.is_torn = self.file.set_len(self.bytes).is_err(),
        }
        written
    }

    fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        (self.bytes, self.is_torn) = (0, false);
        Ok(())
    }
}

/// Reads all whole lines. A machine that stopped may have left half a line at the end.
fn read(path: &Path) -> io::Result<VecDeque<Fact>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(VecDeque::new()),
        other => other?,
    };
    let mut facts = VecDeque::new();
    let (mut lines, mut line) = (BufReader::new(file), Vec::new());
    while lines.read_until(b'\n', &mut line)? > 0 {
        match serde_json::from_slice(&line) {
            Ok(fact) => facts.push_back(fact),
            Err(_) if !line.ends_with(b"\n") => {}
            Err(error) => {
                let line = String::from_utf8_lossy(&line);
                tracing::error!(%error, %line, path = %path.display(), "a fact cannot be read and is lost; those after it are kept");
            }
        }
        line.clear();
    }
    Ok(facts)
}

fn rewrite(path: &Path, facts: &VecDeque<Fact>) -> io::Result<Lines> {
    let mut text = Vec::new();
    for fact in facts {
        serde_json::to_writer(&mut text, fact)?;
        text.push(b'\n');
    }
    files::replace(path, Readers::Anyone, &text)?;
    let file = OpenOptions::new().append(true).open(path)?;
    Ok(Lines { file, bytes: text.len() as u64, is_torn: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsRawFd;
    use types::instance::Exit;

    fn world() -> World {
        World::new(|| Timestamp::from_ms(5), |bytes| bytes.fill(7))
    }

    #[test]
    fn a_fact_is_delivered_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let id = InstanceName::new("one").unwrap();
        let journal = Journal::open(folder.path(), 10, world()).unwrap();
        journal.record(Timestamp::from_ms(1), &id, Happened::Started { memory_mb: 64 }).unwrap();
        journal.record(Timestamp::from_ms(2), &id, Happened::Exited(Exit::Code(3))).unwrap();
        let first = journal.oldest(10, Duration::ZERO);
        drop(journal);

        let journal = Journal::open(folder.path(), 10, world()).unwrap();
        assert_eq!(journal.oldest(10, Duration::ZERO), first);
        journal.forget(first[0].number).unwrap();
        assert_eq!(journal.oldest(10, Duration::ZERO), first[1..]);
        journal.forget(first[1].number).unwrap();
        drop(journal);
        assert_eq!(
            Journal::open(folder.path(), 10, world()).unwrap().oldest(10, Duration::ZERO),
            []
        );
    }

    #[test]
    fn half_a_line_at_the_end_costs_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        let id = InstanceName::new("one").unwrap();
        let journal = Journal::open(folder.path(), 10, world()).unwrap();
        journal.record(Timestamp::from_ms(1), &id, Happened::Paused).unwrap();
        drop(journal);
        let path = folder.path().join("facts");
        OpenOptions::new().append(true).open(path).unwrap().write_all(b"{\"id\":\"x").unwrap();
        let journal = Journal::open(folder.path(), 10, world()).unwrap();
        journal.record(Timestamp::from_ms(1), &id, Happened::Resumed).unwrap();
        drop(journal);
        assert_eq!(
            Journal::open(folder.path(), 10, world()).unwrap().oldest(10, Duration::ZERO).len(),
            2
        );
    }

    #[test]
    fn a_broken_line_in_the_middle_costs_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        let id = InstanceName::new("one").unwrap();
        let journal = Journal::open(folder.path(), 10, world()).unwrap();
        for at in [1, 2, 3] {
            journal.record(Timestamp::from_ms(at), &id, Happened::Paused).unwrap();
        }
        let mut facts = journal.oldest(10, Duration::ZERO);
        drop(journal);
        let path = folder.path().join("facts");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<_> = text.lines().collect();
        lines[1] = &lines[1][..20];
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let journal = Journal::open(folder.path(), 10, world()).unwrap();
        facts.remove(1);
        assert_eq!(journal.oldest(10, Duration::ZERO), facts);
    }

    #[test]
    fn a_fact_that_a_full_disk_cut_off_does_not_spoil_the_next() {
        let disk = crate::disk::make_memory_folder(1, 0).unwrap();
        let folder = PathBuf::from(format!("/proc/self/fd/{}", disk.as_raw_fd()));
        let id = InstanceName::new("one").unwrap();
        let journal = Journal::open(&folder, 1_000, world()).unwrap();
        let record = |at| journal.record(Timestamp::from_ms(at), &id, Happened::Paused);
        record(0).unwrap();
        let mut filler = File::create(folder.join("filler")).unwrap();
        while filler.write_all(&[0; 4_096]).is_ok() {}
        // The line that no longer fits into the last block is cut off at its end.
        let failed = (1..1_000).find(|at| record(*at).is_err()).unwrap();
        assert_eq!(std::fs::read(folder.join("facts")).unwrap().last(), Some(&b'\n'));
        drop(filler);
        std::fs::remove_file(folder.join("filler")).unwrap();
        record(failed).unwrap();
        let facts = journal.oldest(1_000, Duration::ZERO);
        let read = read(&folder.join("facts")).unwrap();
        assert_eq!(facts, Vec::from(read));
    }

    #[test]
    fn too_many_unread_facts_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path(), 1, world()).unwrap();
        assert_eq!(journal.full(), None);
        journal
            .record(Timestamp::from_ms(1), &InstanceName::new("one").unwrap(), Happened::Paused)
            .unwrap();
        assert_eq!(journal.full(), Some(1));
    }
}
