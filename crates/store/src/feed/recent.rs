//! The newest changes in memory, so that followers that keep up need not ask the database.
//!
//! This only works where one process makes all changes, one after another: on SQLite. There each
//! commit wakes several followers, each of which would read back what was just written.

use super::change::Change;
use parking_lot::Mutex;
use std::collections::VecDeque;
use types::ids::WorkspaceId;

pub(crate) struct Recent {
    kept: Mutex<Kept>,
    changes_max: usize,
}

struct Kept {
    /// All changes after this revision are in memory. `None` if nothing is known.
    floor: Option<i64>,
    changes: VecDeque<Change>,
}

/// What a follower is told: changes, oldest first, and the revision up to which it has now seen
/// everything.
pub(crate) type Seen = (Vec<Change>, i64);

impl Recent {
    pub(crate) fn new(changes_max: usize) -> Self {
        let kept = Kept { floor: None, changes: VecDeque::new() };
        Self { kept: Mutex::new(kept), changes_max }
    }

    /// Starts from scratch; `newest` is the revision of the last committed change.
    pub(crate) fn begin(&self, newest: i64) {
        *self.kept.lock() = Kept { floor: Some(newest), changes: VecDeque::new() };
    }

    /// Forgets everything, and answers nothing until [`Recent::begin`], because it is unknown what
    /// the database now contains.
    pub(crate) fn forget(&self) {
        *self.kept.lock() = Kept { floor: None, changes: VecDeque::new() };
    }

    /// Adds the changes of a commit, ordered by revision.
    pub(crate) fn publish(&self, changes: Vec<Change>) {
        let mut kept = self.kept.lock();
        if kept.floor.is_none() {
            return;
        }
        kept.changes.extend(changes);
        while kept.changes.len() > self.changes_max {
            kept.floor = kept.changes.pop_front().map(|change| change.revision);
        }
    }

    /// Drops changes that the database no longer keeps, so that followers from before them are sent
    /// to the database and get [`Error::Gone`](crate::Error::Gone).
    pub(crate) fn trim(&self, upto: i64) {
        let mut kept = self.kept.lock();
        while kept.changes.front().is_some_and(|change| change.revision <= upto) {
            kept.changes.pop_front();
        }
        kept.floor = kept.floor.map(|floor| floor.max(upto));
    }

    /// Returns changes after a revision, of one workspace or of all; `None` if the database must be
    /// asked.
    pub(crate) fn since(
        &self,
        workspace: Option<&WorkspaceId>,
        after: i64,
        limit: usize,
    ) -> Option<Seen> {
        let kept = self.kept.lock();
        let floor = kept.floor.filter(|floor| *floor <= after)?;
        let newest = kept.changes.back().map_or(floor, |change| change.revision);
        let first = kept.changes.partition_point(|change| change.revision <= after);
        let wanted = |change: &&Change| workspace.is_none_or(|wanted| *wanted == change.workspace);
        let found: Vec<_> =
            kept.changes.range(first..).filter(wanted).take(limit).cloned().collect();
        let seen = match found.last() {
            Some(last) if found.len() == limit => last.revision,
            // Otherwise a follower of a quiet workspace would fall behind what is kept.
            _ => newest.max(after),
        };
        Some((found, seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::Act;
    use types::Timestamp;

    fn change(revision: i64, workspace: &str) -> Change {
        Change {
            revision,
            workspace: WorkspaceId::known(workspace),
            kind: "sandbox".into(),
            resource_id: "r".into(),
            parent: String::new(),
            name: "n".into(),
            act: Act::Updated,
            version: 1,
            actor: "a".into(),
            at: Timestamp::from_ms(0),
        }
    }

    fn revisions(seen: Option<Seen>) -> Option<(Vec<i64>, i64)> {
        seen.map(|(changes, upto)| (changes.iter().map(|change| change.revision).collect(), upto))
    }

    #[test]
    fn a_follower_is_answered_from_memory_while_memory_has_all_of_it() {
        let recent = Recent::new(3);
        recent.publish(vec![change(1, "a")]);
        assert_eq!(recent.since(None, 0, 10), None, "before it knows where it begins");
        recent.begin(10);
        assert_eq!(recent.since(None, 9, 10), None);
        assert_eq!(revisions(recent.since(None, 10, 10)), Some((vec![], 10)));
        recent.publish(vec![change(11, "a"), change(12, "b")]);
        recent.publish(vec![change(13, "a"), change(14, "b")]);
        assert_eq!(recent.since(None, 10, 10), None, "11 was let go of");
        assert_eq!(revisions(recent.since(None, 11, 10)), Some((vec![12, 13, 14], 14)));
        assert_eq!(revisions(recent.since(None, 11, 2)), Some((vec![12, 13], 13)));
        assert_eq!(revisions(recent.since(None, 14, 2)), Some((vec![], 14)));
        recent.trim(12);
        assert_eq!(recent.since(None, 11, 10), None);
        assert_eq!(revisions(recent.since(None, 12, 10)), Some((vec![13, 14], 14)));
        recent.forget();
        assert_eq!(recent.since(None, 14, 2), None);
    }

    #[test]
    fn a_follower_of_one_workspace_passes_over_the_changes_of_others() {
        let (recent, mine) = (Recent::new(10), WorkspaceId::known("a"));
        recent.begin(0);
        recent.publish(vec![change(1, "b"), change(2, "a"), change(3, "b")]);
        assert_eq!(revisions(recent.since(Some(&mine), 0, 10)), Some((vec![2], 3)));
        assert_eq!(revisions(recent.since(Some(&mine), 2, 10)), Some((vec![], 3)));
    }
}
