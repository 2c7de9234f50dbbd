//! Sums by group, and series for the groups of one page.
//!
//! There may be very many groups, and a page shows the first hundred by their keys. So only groups
//! that may be on the page have a series: a group that is met gets one if its key is small enough,
//! and the group with the largest key then loses its own. A group that has lost its series never
//! needs it again, since the keys on the page only become smaller.

use crate::money::{Quantity, Tariff};
use crate::question::{Answer, Entry, Key, Question, Sums};
use std::collections::BTreeMap;
use std::collections::hash_map::{Entry as Slot, HashMap};
use types::Timestamp;
use types::wire::GroupBy;

pub(crate) struct Groups {
    limit: usize,
    after: Option<Key>,
    steps: usize,
    counts_usage: bool,
    numbers: HashMap<Key, usize>,
    sums: Vec<Sums>,
    /// The series of a group, if it may be on the page.
    series: Vec<Option<Vec<Sums>>>,
    page: BTreeMap<Key, usize>,
    more: bool,
}

impl Groups {
    pub(crate) fn new(question: &Question, steps: usize) -> Self {
        let mut groups = Self {
            limit: question.limit.max(1),
            after: question.after.clone(),
            steps,
            counts_usage: question.group_by.contains(&GroupBy::BillingDimension),
            numbers: HashMap::new(),
            sums: Vec::new(),
            series: Vec::new(),
            page: BTreeMap::new(),
            more: false,
        };
        if question.group_by.is_empty() {
            // There is one entry even if there is no usage.
            groups.number(Key::default());
        }
        groups
    }

    /// Returns the number of a group. The caller is about to add to it.
    pub(crate) fn number(&mut self, key: Key) -> usize {
        let vacant = match self.numbers.entry(key) {
            Slot::Occupied(known) => return *known.get(),
            Slot::Vacant(vacant) => vacant,
        };
        let number = self.sums.len();
        self.sums.push(Sums::default());
        let full = self.page.len() >= self.limit;
        let beyond =
            full && self.page.last_key_value().is_some_and(|(last, _)| vacant.key() > last);
        let on_page = !beyond && self.after.as_ref().is_none_or(|after| vacant.key() > after);
        self.more |= beyond;
        if on_page {
            self.page.insert(vacant.key().clone(), number);
        }
        vacant.insert(number);
        self.series.push(on_page.then(|| vec![Sums::default(); self.steps]));
        if self.page.len() > self.limit {
            self.more = true;
            if let Some((_, last)) = self.page.pop_last() {
                self.series[last] = None;
            }
        }
        number
    }

    pub(crate) fn add(&mut self, number: usize, step: usize, raw: i128, tariff: Tariff) {
        let usage = if self.counts_usage { tariff.quantity(raw) } else { Quantity::ZERO };
        let part = Sums { cost: tariff.cost(raw), usage };
        if let Some(sums) = self.sums.get_mut(number) {
            *sums += part;
        }
        if let Some(point) = self
            .series
            .get_mut(number)
            .and_then(Option::as_mut)
            .and_then(|series| series.get_mut(step))
        {
            *point += part;
        }
    }

    pub(crate) fn finish(mut self, steps: Vec<Timestamp>) -> Answer {
        let mut total = Sums::default();
        self.sums.iter().for_each(|sums| total += *sums);
        let next = self.page.last_key_value().filter(|_| self.more).map(|(key, _)| key.clone());
        let entry = |(key, number): (Key, usize)| Entry {
            key,
            sums: self.sums.get(number).copied().unwrap_or_default(),
            series: self.series.get_mut(number).and_then(Option::take).unwrap_or_default(),
        };
        let entries = self.page.into_iter().map(entry).collect();
        Answer { total, entries, steps, next }
    }
}
