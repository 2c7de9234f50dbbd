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
    file: File,
    facts: VecDeque<Fact>,
    next: u64,
    /// How many lines in the file are forgotten already.
    stale: usize,
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
        let file = rewrite(&path, &facts)?;
        let state = Mutex::new(Kept { file, facts, next, stale: 0 });
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
        kept.file.write_all(&line)?;
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
            kept.file.set_len(0)?;
            kept.stale = 0;
        } else if kept.stale > STALE_AT_MOST && kept.stale > kept.facts.len() {
            kept.file = rewrite(&self.path, &kept.facts)?;
            kept.stale = 0;
        }
        Ok(())
    }
}

/// Reads up to the first incomplete line, which a machine that stopped may have left.
fn read(path: &Path) -> io::Result<VecDeque<Fact>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(VecDeque::new()),
        other => other?,
    };
    let mut facts = VecDeque::new();
    for line in BufReader::new(file).split(b'\n') {
        let Ok(fact) = serde_json::from_slice(&line?) else { break };
        facts.push_back(fact);
    }
    Ok(facts)
}

fn rewrite(path: &Path, facts: &VecDeque<Fact>) -> io::Result<File> {
    let mut text = Vec::new();
    for fact in facts {
        serde_json::to_writer(&mut text, fact)?;
        text.push(b'\n');
    }
    files::replace(path, Readers::Anyone, &text)?;
    OpenOptions::new().append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
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
