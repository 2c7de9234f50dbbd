//! The table of processes. Starting one never looks at those that have ended, however many are
//! remembered.

use super::process::{Number, Process};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// How many ended processes are remembered; the oldest is forgotten first.
pub(super) const ENDED_MAX: usize = 1000;

#[derive(Default)]
pub(super) struct Table {
    all: BTreeMap<Number, Arc<Process>>,
    /// By name, which is unique among running processes.
    running: HashMap<String, Number>,
    ended: BTreeSet<Number>,
    last: Number,
}

impl Table {
    /// Returns all processes, the oldest first.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &Arc<Process>> {
        self.all.values()
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Arc<Process>> {
        self.running.values().filter_map(|number| self.all.get(number))
    }

    pub(super) fn is_running(&self, name: &str) -> bool {
        self.running.contains_key(name)
    }

    pub(super) fn count_running(&self) -> usize {
        self.running.len()
    }

    /// Makes room for one more ended process.
    pub(super) fn forget_surplus(&mut self) {
        while self.ended.len() >= ENDED_MAX
            && let Some(oldest) = self.ended.pop_first()
        {
            // Something that it has left behind may still write, which nobody counts from here on.
            if let Some(process) = self.all.remove(&oldest) {
                process.change(|state| state.log.end_keeping());
            }
        }
    }

    pub(super) fn next_number(&mut self) -> Number {
        self.last = self.last.next();
        self.last
    }

    pub(super) fn add(&mut self, process: Arc<Process>) {
        if process.has_ended() {
            self.ended.insert(process.number);
        } else {
            self.running.insert(process.name().to_owned(), process.number);
        }
        self.all.insert(process.number, process);
    }

    pub(super) fn end(&mut self, process: &Process) {
        self.running.remove(process.name());
        self.ended.insert(process.number);
    }
}
