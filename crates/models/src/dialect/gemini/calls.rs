//! Ids of function calls, where nobody gave them one.

use crate::dialect::Unsayable;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The calls of a conversation, so that results find theirs.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Makes ids of one answer differ from those of the next.
    of_answer: String,
    count: usize,
    /// Id and name of each without a result.
    open: Vec<(String, String)>,
}

impl Calls {
    /// Ids are the same however often an answer is read. Without an id of its own, its first call
    /// tells it from others.
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

    /// A call of the conversation so far.
    pub(super) fn asked(&mut self, id: Option<&str>, name: &str) -> String {
        let id = match id {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => format!("call_{}", self.count),
        };
        self.count += 1;
        self.open.push((id.clone(), name.to_owned()));
        id
    }

    /// Which call a result is of: that with its id, or else the first of its name.
    pub(super) fn answered(&mut self, id: Option<&str>, name: &str) -> Result<String, Unsayable> {
        let of_name = || self.open.iter().position(|(_, open)| open == name);
        let at = match id {
            Some(id) if !id.is_empty() => {
                let of_id = self.open.iter().position(|(open, _)| open == id);
                match of_id {
                    Some(at) => Some(at),
                    None => return Ok(id.to_owned()),
                }
            }
            _ => of_name(),
        };
        match at {
            Some(at) => Ok(self.open.remove(at).0),
            None => Err(Unsayable::new(
                "contents",
                format!("`{name}` has a result, but was not called before it"),
            )),
        }
    }
}
