//! Which rows the background is working on at present.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;
use types::ids::ResourceId;

/// The rows that the background looks at, or is about to look at. There is one task for each, so
/// that many changes to one row take up no more than one slot.
#[derive(Default)]
pub(super) struct Looks(Mutex<HashMap<ResourceId, Asked>>);

#[derive(Default)]
struct Asked {
    /// Whether it was asked for again since the last look began.
    again: bool,
    news: Arc<Notify>,
}

/// The task that looks at a row. Until it is dropped there is no other.
pub(super) struct Turn<'l> {
    looks: &'l Looks,
    id: &'l ResourceId,
    pub(super) news: Arc<Notify>,
    is_over: bool,
}

impl Looks {
    /// Asks for a look at a row. Returns whether the caller has to begin the task for it.
    pub(super) fn ask(&self, id: &ResourceId) -> bool {
        let mut all = self.0.lock();
        if let Some(asked) = all.get_mut(id) {
            asked.again = true;
            asked.news.notify_one();
            return false;
        }
        all.insert(id.clone(), Asked::default());
        true
    }

    /// Returns the turn of the task that [`Looks::ask`] had its caller begin.
    pub(super) fn turn<'l>(&'l self, id: &'l ResourceId) -> Turn<'l> {
        let news = self.0.lock().get(id).map(|asked| Arc::clone(&asked.news)).unwrap_or_default();
        Turn { looks: self, id, news, is_over: false }
    }
}

impl Turn<'_> {
    /// Notes that a look begins. Whatever happens from here on needs another one.
    pub(super) fn begin(&self) {
        if let Some(asked) = self.looks.0.lock().get_mut(self.id) {
            asked.again = false;
        }
    }

    /// Ends the turn, unless another look was asked for. Returns whether it has ended.
    pub(super) fn end(&mut self) -> bool {
        let mut all = self.looks.0.lock();
        if all.get(self.id).is_some_and(|asked| asked.again) {
            return false;
        }
        all.remove(self.id);
        self.is_over = true;
        true
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.looks.0.lock().remove(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_changes_to_a_row_ask_for_one_task_that_misses_none() {
        let (looks, id) = (Looks::default(), ResourceId::known("res_a"));
        assert!(looks.ask(&id));
        assert!((0..40).all(|_| !looks.ask(&id)), "one is about to look already");
        let mut turn = looks.turn(&id);
        turn.begin();
        assert!(!looks.ask(&id));
        assert!(!turn.end(), "it was asked for since the look began");
        turn.begin();
        assert!(turn.end());
        assert!(looks.ask(&id), "the next one needs a task again");
        drop(turn);
        assert!(!looks.ask(&id), "the task that is over takes nothing from the next one");
        drop(looks.turn(&id));
        assert!(looks.ask(&id), "a task that broke off is followed by another");
    }
}
