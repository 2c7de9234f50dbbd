//! Makes up ids for function calls that have none.

use crate::dialect::Unsayable;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The calls of a conversation, so that each result finds its call.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Makes the ids of one answer differ from those of the next.
    of_answer: String,
    count: usize,
    /// The calls without a result: id and name by place, and the places by name and by id. Lookups
    /// must be fast, since a conversation can have as many calls as fit into a request.
    open: BTreeMap<usize, (String, String)>,
    by_name: HashMap<String, BTreeSet<usize>>,
    by_id: HashMap<String, BTreeSet<usize>>,
}

impl Calls {
    /// Starts an answer. The ids are the same however often the answer is read. If the answer has
    /// no id itself, its first call tells it from others.
    pub(super) fn of_answer(id: &str) -> Self {
        let letters = id.chars().filter(|c| c.is_ascii_alphanumeric()).take(24);
        Self { of_answer: letters.collect(), ..Self::default() }
    }

    pub(super) fn begin(&mut self, id: Option<&str>, name: &str, arguments: &str) -> String {
        let id = match id {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => self.made(name, arguments),
        };
        self.count += 1;
        id
    }

    fn made(&mut self, name: &str, arguments: &str) -> String {
        if self.of_answer.is_empty() {
            let mut hasher = DefaultHasher::new();
            (name, arguments).hash(&mut hasher);
            self.of_answer = format!("{:016x}", hasher.finish());
        }
        format!("call_{}_{}", self.of_answer, self.count)
    }

    /// Adds a call of the conversation and returns its id.
    pub(super) fn asked(&mut self, id: Option<&str>, name: &str) -> String {
        let id = match id {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => format!("call_{}", self.count),
        };
        self.by_name.entry(name.to_owned()).or_default().insert(self.count);
        self.by_id.entry(id.clone()).or_default().insert(self.count);
        self.open.insert(self.count, (id.clone(), name.to_owned()));
        self.count += 1;
        id
    }

    /// Finds the call of a result: the one with its id, or else the first with its name.
    pub(super) fn answered(&mut self, id: Option<&str>, name: &str) -> Result<String, Unsayable> {
        let at = match id {
            Some(id) if !id.is_empty() => match first(&self.by_id, id) {
                Some(at) => Some(at),
                None => return Ok(id.to_owned()),
            },
            _ => first(&self.by_name, name),
        };
        let found = at.and_then(|at| self.close(at));
        found.ok_or_else(|| {
            let why = format!("`{name}` has a result, but was not called before it");
            Unsayable::new("contents", why)
        })
    }

    fn close(&mut self, at: usize) -> Option<String> {
        let (id, name) = self.open.remove(&at)?;
        for (places, of) in [(&mut self.by_id, &id), (&mut self.by_name, &name)] {
            if let Some(places) = places.get_mut(of) {
                places.remove(&at);
            }
        }
        Some(id)
    }
}

fn first(places: &HashMap<String, BTreeSet<usize>>, of: &str) -> Option<usize> {
    places.get(of)?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_find_their_calls_by_id_or_in_the_order_of_the_name() {
        let mut calls = Calls::default();
        for (id, name) in [(None, "f"), (Some("x"), "f"), (None, "f"), (None, "g")] {
            calls.asked(id, name);
        }
        let mut answered = |id, name| calls.answered(id, name).ok();
        assert_eq!(answered(Some("x"), "f").as_deref(), Some("x"));
        assert_eq!(answered(None, "f").as_deref(), Some("call_0"));
        assert_eq!(answered(None, "f").as_deref(), Some("call_2"));
        assert_eq!(answered(None, "f"), None);
        assert_eq!(answered(Some("other"), "f").as_deref(), Some("other"));
        assert_eq!(answered(None, "g").as_deref(), Some("call_3"));
    }

    #[test]
    fn many_calls_and_results_take_no_time() {
        let mut calls = Calls::default();
        let count = 200_000;
        (0..count).for_each(|_| drop(calls.asked(None, "f")));
        for at in 0..count {
            assert_eq!(calls.answered(None, "f").ok(), Some(format!("call_{at}")));
        }
    }
}
