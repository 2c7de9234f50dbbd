//! How many requests may go on at once.

use crate::error::{Code, Error};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) struct Gate {
    counts: Arc<Mutex<Counts>>,
    all_max: usize,
    per_key_max: usize,
}

#[derive(Default)]
struct Counts {
    all: usize,
    keys: HashMap<String, usize>,
}

/// A request that goes on, until it is dropped.
pub(crate) struct Entered {
    counts: Arc<Mutex<Counts>>,
    key: String,
}

impl Gate {
    pub(crate) fn new(all_max: usize, per_key_max: usize) -> Self {
        Self { counts: Arc::default(), all_max, per_key_max }
    }

    pub(crate) fn enter(&self, key: &str) -> Result<Entered, Error> {
        let mut counts = self.counts.lock();
        let of_key = counts.keys.get(key).copied().unwrap_or_default();
        if counts.all >= self.all_max || of_key >= self.per_key_max {
            let message = "Too many requests go on at the same time; ask again.";
            return Err(Error::new(Code::SlowDown, message));
        }
        counts.all += 1;
        counts.keys.insert(key.to_owned(), of_key + 1);
        Ok(Entered { counts: Arc::clone(&self.counts), key: key.to_owned() })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.all -= 1;
        if let Some(count) = counts.keys.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.keys.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_leaves_room_for_the_next() {
        let gate = Gate::new(3, 2);
        let first = gate.enter("a").unwrap();
        let _second = gate.enter("a").unwrap();
        assert!(gate.enter("a").is_err());
        let third = gate.enter("b").unwrap();
        assert!(gate.enter("c").is_err());
        drop((first, third));
        let _fourth = gate.enter("a").unwrap();
        assert_eq!(gate.counts.lock().keys.len(), 1);
    }
}
