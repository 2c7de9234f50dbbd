//! Remembers which replica has a session of an MCP server. A session lives in the memory of the
//! replica that opened it, so its later requests have to go there. A session whose replica is gone
//! is lost, and its client has to open another.
//!
//! How many sessions a workspace may bind is its share of what the server can remember. When the
//! share is used up, a workload forgets its own least recently used session, and never another
//! workload's.

use admission::{Permit, Pool};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The name of a session, as a digest: names are secrets of their clients, and of any length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SessionId([u8; 32]);

impl SessionId {
    pub(crate) fn of(name: &[u8]) -> Self {
        Self(Sha256::digest(name).into())
    }
}

/// The sessions of one workload.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    bound: HashMap<SessionId, Bound>,
    /// By last use, as a number that only rises.
    used: BTreeMap<u64, SessionId>,
    next: u64,
}

struct Bound {
    /// `None` means the replica is gone.
    instance: Option<Arc<str>>,
    used: u64,
    _permit: Permit<String>,
}

/// Where a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    At(Arc<str>),
    Lost,
}

impl Sessions {
    /// Returns where a session is. `None` means it is not known here, though a replica may have it.
    pub(crate) fn find(&self, id: SessionId) -> Option<Found> {
        let mut inner = self.0.lock();
        inner.touch(id)?;
        inner.bound.get(&id).map(|bound| match &bound.instance {
            Some(instance) => Found::At(Arc::clone(instance)),
            None => Found::Lost,
        })
    }

    /// Remembers a session, if there is room or something older to forget.
    pub(crate) fn bind(&self, pool: &Pool<String>, owner: &String, id: SessionId, to: &Arc<str>) {
        let mut inner = self.0.lock();
        if inner.touch(id).is_some() {
            if let Some(bound) = inner.bound.get_mut(&id) {
                bound.instance = Some(Arc::clone(to));
            }
            return;
        }
        let permit = match pool.take(owner, 1) {
            Ok(permit) => permit,
            Err(_) if inner.forget_oldest() => match pool.take(owner, 1) {
                Ok(permit) => permit,
                Err(_) => return,
            },
            Err(_) => return,
        };
        let used = inner.next;
        inner.next += 1;
        inner.used.insert(used, id);
        let instance = Some(Arc::clone(to));
        inner.bound.insert(id, Bound { instance, used, _permit: permit });
    }

    pub(crate) fn unbind(&self, id: SessionId) {
        self.0.lock().remove(id);
    }

    /// Marks the sessions of all other replicas as lost.
    pub(crate) fn keep(&self, is_there: impl Fn(&str) -> bool) {
        for bound in self.0.lock().bound.values_mut() {
            if bound.instance.as_ref().is_some_and(|instance| !is_there(instance)) {
                bound.instance = None;
            }
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let inner = self.0.lock();
        assert_eq!(inner.bound.len(), inner.used.len());
        inner.bound.len()
    }
}

impl Inner {
    fn touch(&mut self, id: SessionId) -> Option<()> {
        let bound = self.bound.get_mut(&id)?;
        self.used.remove(&bound.used);
        bound.used = self.next;
        self.used.insert(self.next, id);
        self.next += 1;
        Some(())
    }

    fn remove(&mut self, id: SessionId) {
        if let Some(bound) = self.bound.remove(&id) {
            self.used.remove(&bound.used);
        }
    }

    fn forget_oldest(&mut self) -> bool {
        let Some((_, id)) = self.used.pop_first() else { return false };
        self.bound.remove(&id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admission::Limits;
    use proptest::prelude::*;

    fn pool(total: u64, share: u64) -> Pool<String> {
        Pool::new("bound sessions", Limits { total, share })
    }

    fn id(number: u32) -> SessionId {
        SessionId::of(&number.to_be_bytes())
    }

    #[test]
    fn a_workspace_that_binds_too_much_pushes_out_its_own() {
        let (pool, mine, other) = (pool(5, 3), Sessions::default(), Sessions::default());
        let (me, them) = ("me".to_owned(), "them".to_owned());
        let replica: Arc<str> = "a".into();
        other.bind(&pool, &them, id(1), &replica);
        for number in 0..3 {
            mine.bind(&pool, &me, id(number), &replica);
        }
        // The first was used since, so the second is the oldest.
        assert!(mine.find(id(0)).is_some());
        mine.bind(&pool, &me, id(9), &replica);
        let left: Vec<bool> = [0, 1, 2, 9].map(|number| mine.find(id(number)).is_some()).into();
        assert_eq!(left, [true, false, true, true]);
        assert!(other.find(id(1)).is_some());
        // Another workload of the same workspace has nothing to forget, and takes nothing from this
        // one.
        let second = Sessions::default();
        second.bind(&pool, &me, id(7), &replica);
        assert_eq!((second.len(), mine.len(), pool.held()), (0, 3, 4));
        drop(mine);
        assert_eq!(pool.held(), 1);
    }

    #[test]
    fn sessions_are_lost_with_their_replica_and_go_when_they_end() {
        let (pool, sessions, me) = (pool(9, 9), Sessions::default(), "me".to_owned());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        sessions.bind(&pool, &me, id(1), &a);
        sessions.bind(&pool, &me, id(2), &b);
        sessions.bind(&pool, &me, id(3), &b);
        sessions.bind(&pool, &me, id(3), &a);
        let at_a = Some(Found::At(Arc::clone(&a)));
        assert_eq!(sessions.find(id(3)), at_a);
        sessions.keep(|instance| instance == "a");
        assert_eq!((sessions.find(id(2)), sessions.find(id(3))), (Some(Found::Lost), at_a.clone()));
        // A replica that answers with the session's name has the session.
        sessions.bind(&pool, &me, id(2), &a);
        assert_eq!(sessions.find(id(2)), at_a);
        sessions.unbind(id(1));
        assert_eq!((sessions.find(id(1)), sessions.len(), pool.held()), (None, 2, 2));
    }

    proptest! {
        #[test]
        fn no_order_of_events_exceeds_the_share_or_loses_count(steps in proptest::collection::vec((0u8..4, 0u32..12), 0..80)) {
            let (pool, sessions, me) = (pool(50, 5), Sessions::default(), "me".to_owned());
            let replica: Arc<str> = "a".into();
            for (step, number) in steps {
                match step {
                    0 => { sessions.find(id(number)); }
                    1 => sessions.unbind(id(number)),
                    _ => {
                        sessions.bind(&pool, &me, id(number), &replica);
                        prop_assert!(sessions.find(id(number)).is_some());
                    }
                }
                prop_assert!(sessions.len() <= 5);
                prop_assert_eq!(sessions.len() as u64, pool.held());
            }
        }
    }
}
