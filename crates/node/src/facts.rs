//! The journal: facts about what happened to instances, kept until somebody has taken note of them.
//!
//! Facts are lines in a file, in the order in which they happened, so they survive a kill of the
//! node. They are handed out again until they are forgotten; their numbers make a second delivery
//! harmless. Those that find no room on a full disk are only in memory until there is room, and only
//! a kill of the node in that time loses them. If the machine stops, the last facts that nobody had read may be lost; the next node
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
    state: Mutex<JournalState>,
    changed: Condvar,
}

struct JournalState {
    lines: Lines,
    facts: VecDeque<Fact>,
    next: u64,
    /// How many lines in the file are forgotten already, or cannot be read.
    stale: usize,
    /// How many of the last facts are not in the file, because writing failed.
    unwritten: usize,
}

/// The file, which is only ever appended to in whole lines.
struct Lines {
    file: File,
    /// The length of all whole lines.
    bytes: u64,
    /// Whether something may come after those, because a write failed.
    is_torn: bool,
}

/// How many facts are written at once, if there are that many: an adopting node has thousands.
const LINES_AT_ONCE: usize = 256;
/// The file is rewritten when it has more forgotten lines than this, and more of them than others.
const STALE_AT_MOST: usize = 10_000;

impl Journal {
    pub(crate) fn open(folder: &Path, kept_at_most: usize, world: World) -> io::Result<Self> {
        let path = folder.join("facts");
        let Found { facts, lines, stale, unwritten } = find(&path)?;
        // Numbers do not repeat even when all facts are forgotten: they start from the time, and
        // the clock never goes back that far.
        let by_time = world.now().ms().max(0).cast_unsigned().saturating_mul(1_000);
        let next = facts.back().map_or(0, |fact| fact.number + 1).max(by_time);
        let state = Mutex::new(JournalState { lines, facts, next, stale, unwritten });
        let boot = crate::process::boot().ok().map(|boot| boot_number(&boot));
        Ok(Self { world, path, boot, kept_at_most, state, changed: Condvar::new() })
    }

    /// Returns the number of facts kept if that is too many to start another instance.
    pub(crate) fn full(&self) -> Option<usize> {
        let kept = self.state.lock().facts.len();
        (kept >= self.kept_at_most).then_some(kept)
    }

    /// Records a fact. If it cannot be written, it is kept in memory and written later: what
    /// happened is not undone because a disk is full.
    pub(crate) fn record(&self, at: Timestamp, instance: &InstanceName, happened: Happened) {
        self.record_all([(at, instance.clone(), happened)]);
    }

    /// Records facts in this order, as [`Journal::record`] does.
    pub(crate) fn record_all(
        &self,
        all: impl IntoIterator<Item = (Timestamp, InstanceName, Happened)>,
    ) {
        let mut kept = self.state.lock();
        let unwritten_before = kept.unwritten;
        for (at, instance, happened) in all {
            let (number, chance) = (kept.next, self.world.random_text(8));
            let uptime_ms = self.world.uptime_ms() - self.world.now().since(at).max(0);
            let id = format!("{number:x}-{chance}");
            let stamp = self.boot.map(|boot| Stamp { boot, uptime_ms });
            kept.facts.push_back(Fact { id, number, at, stamp, instance, happened });
            kept.next += 1;
            kept.unwritten += 1;
        }
        let written = kept.write();
        // Said once, and not for each fact that follows.
        if let Err(error) = written
            && unwritten_before == 0
        {
            tracing::error!(%error, path = %self.path.display(), "facts cannot be written; they are kept in memory, and lost if the server is killed now");
        }
        self.changed.notify_all();
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
        kept.drop_oldest(count);
        if kept.facts.is_empty() {
            // Facts are mostly forgotten one by one, and a new file each time would be too
            // expensive.
            kept.lines.clear()?;
            kept.stale = 0;
        } else if kept.stale > STALE_AT_MOST && kept.stale > kept.facts.len() {
            kept.lines = rewrite(&self.path, &kept.facts)?;
            (kept.stale, kept.unwritten) = (0, 0);
        }
        // There may be room again. If not, the facts stay in memory.
        let _ = kept.write();
        Ok(())
    }
}

impl JournalState {
    /// Writes the facts that are not in the file yet, oldest first, up to the first that fail.
    fn write(&mut self) -> io::Result<()> {
        while self.unwritten > 0 {
            let first = self.facts.len() - self.unwritten;
            let count = self.unwritten.min(LINES_AT_ONCE);
            let mut lines = Vec::new();
            for fact in self.facts.range(first..first + count) {
                serde_json::to_writer(&mut lines, fact)?;
                lines.push(b'\n');
            }
            self.lines.append(&lines)?;
            self.unwritten -= count;
        }
        Ok(())
    }

    fn drop_oldest(&mut self, count: usize) {
        let written = count.min(self.facts.len() - self.unwritten);
        self.facts.drain(..count);
        self.stale += written;
        self.unwritten -= count - written;
    }
}

impl Lines {
    /// Appends whole lines. If that fails, for example because the disk is full, what was written of
    /// them is gone before the next ones come.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.bytes)?;
            self.is_torn = false;
        }
        let written = self.file.write_all(lines);
        match written {
            Ok(()) => self.bytes += lines.len() as u64,
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

/// What an earlier node left.
struct Found {
    facts: VecDeque<Fact>,
    lines: Lines,
    stale: usize,
    unwritten: usize,
}

/// Finds the file, or makes one. One that is there is left as it is, because the disk may be full:
/// what cannot be read goes when the file is next rewritten, and half a line with the next append.
fn find(path: &Path) -> io::Result<Found> {
    let file = match OpenOptions::new().read(true).append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let facts = VecDeque::new();
            let lines = rewrite(path, &facts)?;
            return Ok(Found { facts, lines, stale: 0, unwritten: 0 });
        }
        other => other?,
    };
    let lines = Lines { file: file.try_clone()?, bytes: 0, is_torn: false };
    let mut found = Found { facts: VecDeque::new(), lines, stale: 0, unwritten: 0 };
    let (mut file, mut line) = (BufReader::new(file), Vec::new());
    while file.read_until(b'\n', &mut line)? > 0 {
        found.take(&line, path);
        line.clear();
    }
    Ok(found)
}

impl Found {
    /// Takes one more line. A machine that stopped may have left half a one at the end.
    fn take(&mut self, line: &[u8], path: &Path) {
        let is_whole = line.ends_with(b"\n");
        match serde_json::from_slice(line) {
            Ok(fact) => {
                self.facts.push_back(fact);
                self.unwritten += usize::from(!is_whole);
            }
            Err(_) if !is_whole => {}
            Err(error) => {
                let line = String::from_utf8_lossy(line);
                tracing::error!(%error, %line, path = %path.display(), "a fact cannot be read and is lost; those after it are kept");
                self.stale += 1;
            }
        }
        match is_whole {
            true => self.lines.bytes += line.len() as u64,
            false => self.lines.is_torn = true,
        }
    }
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
        journal.record(Timestamp::from_ms(1), &id, Happened::Started { memory_mb: 64 });
        journal.record(Timestamp::from_ms(2), &id, Happened::Exited(Exit::Code(3)));
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
        journal.record(Timestamp::from_ms(1), &id, Happened::Paused);
        drop(journal);
        let path = folder.path().join("facts");
        OpenOptions::new().append(true).open(path).unwrap().write_all(b"{\"id\":\"x").unwrap();
        let journal = Journal::open(folder.path(), 10, world()).unwrap();
        journal.record(Timestamp::from_ms(1), &id, Happened::Resumed);
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
            journal.record(Timestamp::from_ms(at), &id, Happened::Paused);
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

    /// Fills a disk of a journal and records more than fits. Returns what is to be removed for room.
    fn fill(folder: &Path, record: impl Fn(i64)) -> PathBuf {
        record(0);
        let filler = folder.join("filler");
        let mut file = File::create(&filler).unwrap();
        while file.write_all(&[0; 4_096]).is_ok() {}
        // Those that no longer fit into the last block.
        (1..200).for_each(record);
        assert_eq!(std::fs::read(folder.join("facts")).unwrap().last(), Some(&b'\n'));
        filler
    }

    #[test]
    fn facts_that_find_a_full_disk_are_written_when_there_is_room() {
        let disk = crate::disk::make_memory_folder(1, 0).unwrap();
        let folder = PathBuf::from(format!("/proc/self/fd/{}", disk.as_raw_fd()));
        let id = InstanceName::new("one").unwrap();
        let journal = Journal::open(&folder, 1_000, world()).unwrap();
        let record = |at| journal.record(Timestamp::from_ms(at), &id, Happened::Paused);
        let filler = fill(&folder, record);
        let written = || Vec::from(find(&folder.join("facts")).unwrap().facts);
        let known = || journal.oldest(1_000, Duration::ZERO);
        assert_eq!(known().len(), 200);
        assert_eq!(written(), known()[..written().len()]);
        assert!(written().len() < 200, "the disk is full");
        std::fs::remove_file(filler).unwrap();
        record(200);
        assert_eq!(written().len(), 201);
        assert_eq!(written(), known());
    }

    #[test]
    fn a_journal_opens_on_a_full_disk() {
        let disk = crate::disk::make_memory_folder(1, 0).unwrap();
        let folder = PathBuf::from(format!("/proc/self/fd/{}", disk.as_raw_fd()));
        let id = InstanceName::new("one").unwrap();
        let journal = Journal::open(&folder, 1_000, world()).unwrap();
        let record = |at| journal.record(Timestamp::from_ms(at), &id, Happened::Paused);
        let filler = fill(&folder, record);
        let written = find(&folder.join("facts")).unwrap().facts;
        drop(journal);

        // As a kill in the middle of a write leaves it.
        let path = folder.join("facts");
        let torn = OpenOptions::new().append(true).open(&path).unwrap().write(b"{");
        let journal = Journal::open(&folder, 1_000, world()).unwrap();
        assert_eq!(written, journal.oldest(1_000, Duration::ZERO));
        let record = |at| journal.record(Timestamp::from_ms(at), &id, Happened::Resumed);
        (0..200).for_each(record);
        std::fs::remove_file(filler).unwrap();
        record(200);
        let known = journal.oldest(1_000, Duration::ZERO);
        assert_eq!(known.len(), written.len() + 201, "half a line is none: {torn:?}");
        assert_eq!(find(&path).unwrap().facts, known);
    }

    #[test]
    fn facts_that_are_not_written_yet_can_be_forgotten() {
        let disk = crate::disk::make_memory_folder(1, 0).unwrap();
        let folder = PathBuf::from(format!("/proc/self/fd/{}", disk.as_raw_fd()));
        let id = InstanceName::new("one").unwrap();
        let journal = Journal::open(&folder, 1_000, world()).unwrap();
        let record = |at| journal.record(Timestamp::from_ms(at), &id, Happened::Paused);
        let filler = fill(&folder, record);
        let written = find(&folder.join("facts")).unwrap().facts.len();
        let numbers: Vec<_> =
            journal.oldest(1_000, Duration::ZERO).iter().map(|fact| fact.number).collect();
        // First some that are written, then some that are not.
        for last in [1, written + 10] {
            journal.forget(numbers[last]).unwrap();
            let rest: Vec<_> =
                journal.oldest(1_000, Duration::ZERO).iter().map(|fact| fact.number).collect();
            assert_eq!(rest, numbers[last + 1..]);
        }
        std::fs::remove_file(filler).unwrap();
        journal.forget(numbers[written + 11]).unwrap();
        let kept = journal.oldest(1_000, Duration::ZERO);
        drop(journal);
        let all = Vec::from(find(&folder.join("facts")).unwrap().facts);
        assert_eq!(all[all.len() - kept.len()..], kept);
    }

    #[test]
    fn too_many_unread_facts_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path(), 1, world()).unwrap();
        assert_eq!(journal.full(), None);
        journal.record(Timestamp::from_ms(1), &InstanceName::new("one").unwrap(), Happened::Paused);
        assert_eq!(journal.full(), Some(1));
    }
}
