//! A list of patterns, indexed by host, so that a thousand of them cost a request no more than a
//! few.

use crate::pattern::{Condition, Domain, Pattern, Range};
use std::collections::HashMap;
use types::parts::hosts::Host;

/// What a list says about a host before its requests are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Never,
    /// Depends on the method or the path.
    Sometimes,
    Always,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    names: HashMap<Box<str>, Vec<Entry>>,
    /// By the name whose subdomains match.
    suffixes: HashMap<Box<str>, Vec<Entry>>,
    all: Vec<Entry>,
    ranges: Vec<(Range, Entry)>,
}

#[derive(Debug)]
struct Entry {
    /// The entry's index in the list as it was written.
    index: u32,
    condition: Option<Box<Condition>>,
}

impl Index {
    pub(super) fn new(patterns: &[String]) -> Self {
        let mut index = Self::default();
        for (number, text) in (0..).zip(patterns) {
            let Pattern { domain, condition } = Pattern::parse(text);
            let entry = Entry { index: number, condition };
            match domain {
                Domain::All => index.all.push(entry),
                Domain::Name(name) => index.names.entry(name.into()).or_default().push(entry),
                Domain::Below(name) => index.suffixes.entry(name.into()).or_default().push(entry),
                Domain::Range(range) => index.ranges.push((range, entry)),
                Domain::Nowhere => {}
            }
        }
        index
    }

    /// Visits the entries for a host, in no particular order.
    pub(super) fn each<'a>(
        &'a self,
        host: &Host,
        mut visit: impl FnMut(u32, Option<&'a Condition>),
    ) {
        let mut visit = |entry: &'a Entry| visit(entry.index, entry.condition.as_deref());
        self.all.iter().for_each(&mut visit);
        match host {
            Host::Name(name) => {
                self.names.get(name.as_str()).into_iter().flatten().for_each(&mut visit);
                if !self.suffixes.is_empty() {
                    for (dot, _) in name.match_indices('.') {
                        let above = self.suffixes.get(&name[dot + 1..]);
                        above.into_iter().flatten().for_each(&mut visit);
                    }
                }
            }
            Host::Address(address) => {
                let held = self.ranges.iter().filter(|(range, _)| range.holds(*address));
                held.for_each(|(_, entry)| visit(entry));
            }
        }
    }

    pub(super) fn of_host(&self, host: &Host) -> Answer {
        let mut answer = Answer::Never;
        self.each(host, |_, condition| match condition {
            None => answer = Answer::Always,
            Some(_) if answer == Answer::Never => answer = Answer::Sometimes,
            Some(_) => {}
        });
        answer
    }

    /// Finds the first entry in the order of the list that matches a host's request.
    pub(super) fn first(&self, host: &Host, meets: impl Fn(&Condition) -> bool) -> Option<u32> {
        let mut first = None;
        self.each(host, |index, condition| {
            if first.is_none_or(|first| index < first) && condition.is_none_or(&meets) {
                first = Some(index);
            }
        });
        first
    }

    /// Describes the first entry that decides without a request.
    pub(super) fn rule(&self, list: &str, entries: &[String], host: &Host) -> String {
        match self.first(host, |_| false).and_then(|index| entries.get(index as usize)) {
            Some(entry) => format!("{list}: {entry}"),
            None => list.to_owned(),
        }
    }
}
