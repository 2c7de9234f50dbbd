//! The traffic of a deployment: which replica has how many requests, whose turn is next, and
//! statistics of past requests.

use crate::choice;
use crate::sessions::{SessionId, Sessions};
use crate::stats::Stats;
use crate::tool_lists::Lists;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use types::edge::{Replica, Target, WorkloadRoute};

/// Lasts as long as the workload has a route.
pub(crate) struct Traffic {
    turns: AtomicU32,
    /// Number of requests by instance. Instances without requests are not in the map.
    requests: Mutex<HashMap<Arc<str>, u32>>,
    pub(crate) sessions: Sessions,
    pub(crate) tool_lists: Lists,
    pub(crate) stats: Stats,
    following: Mutex<()>,
}

/// A request that was given to a replica. Counts until the exchange is over.
pub(crate) struct Turn {
    traffic: Arc<Traffic>,
    pub(crate) instance: Arc<str>,
    pub(crate) revision: String,
    /// The session whose tools this request may change.
    pub(crate) changes: Option<SessionId>,
}

impl Traffic {
    pub(crate) fn new(route: &WorkloadRoute) -> Self {
        Self {
            turns: AtomicU32::new(0),
            requests: Mutex::default(),
            sessions: Sessions::default(),
            tool_lists: Lists::default(),
            stats: Stats::new(route.kind),
            following: Mutex::default(),
        }
    }

    /// Forgets revisions and replicas that the route no longer has. The route is read under the
    /// lock, so that the last caller applies the latest route, in whatever order changes arrive.
    pub(crate) fn follow(&self, route: impl FnOnce() -> Option<Arc<WorkloadRoute>>) {
        let _following = self.following.lock();
        let Some(route) = route() else { return };
        let targets = route.serving.targets();
        self.stats.keep(targets.iter().map(|target| target.revision.as_str()));
        self.tool_lists.keep(targets.iter().map(|target| target.revision.as_str()));
        let replicas = targets.iter().flat_map(|target| &target.replicas);
        let instances: HashSet<&str> = replicas.map(|replica| &*replica.instance).collect();
        self.sessions.keep(|instance| instances.contains(instance));
    }

    /// Returns where the next request falls among the weights.
    pub(crate) fn next_point(&self) -> u32 {
        choice::point_of_turn(self.turns.fetch_add(1, Ordering::Relaxed))
    }

    /// Gives a request to the replica that has the fewest, and returns how many it had before.
    pub(crate) fn take<'t>(
        self: &Arc<Self>,
        revision: &str,
        replicas: impl Iterator<Item = &'t Replica>,
    ) -> Option<(Turn, u32)> {
        let mut requests = self.requests.lock();
        let held = |replica: &Replica| requests.get(&*replica.instance).copied().unwrap_or(0);
        let (replica, before) = choice::least(replicas, held)?;
        let instance = match requests.get_key_value(&*replica.instance) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(&*replica.instance),
        };
        *requests.entry(Arc::clone(&instance)).or_default() += 1;
        let (traffic, revision) = (Arc::clone(self), revision.to_owned());
        let turn = Turn { traffic, instance, revision, changes: None };
        Some((turn, before))
    }

    /// Returns how many requests all replicas of a target have.
    pub(crate) fn requests(&self, target: &Target) -> u32 {
        let requests = self.requests.lock();
        target.replicas.iter().filter_map(|replica| requests.get(&*replica.instance)).sum()
    }

    pub(crate) fn requests_of(&self, instance: &str) -> u32 {
        self.requests.lock().get(instance).copied().unwrap_or(0)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(session) = self.changes {
            self.traffic.tool_lists.forget_session(session);
        }
        let mut requests = self.traffic.requests.lock();
        match requests.get_mut(&self.instance) {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(requests.remove(&self.instance)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::KindName;
    use types::ids::{ResourceId, WorkspaceId};

    fn target(replicas: usize) -> Target {
        let replica = |n| Replica { machine: "here".into(), instance: format!("i{n}") };
        let replicas = (0..replicas).map(replica).collect();
        Target { revision: "r".into(), weight: 100, replicas }
    }

    fn traffic() -> Arc<Traffic> {
        let workspace = (WorkspaceId::known("w"), "w".to_owned());
        let id = ResourceId::known("res_1");
        let route = WorkloadRoute::new(KindName::Agent, id, workspace, "n");
        Arc::new(Traffic::new(&route))
    }

    proptest! {
        #[test]
        fn requests_are_spread_evenly_and_all_given_back(replicas in 1usize..6, requests in 0usize..40) {
            let (traffic, target) = (traffic(), target(replicas));
            let take = || traffic.take(&target.revision, target.replicas.iter()).unwrap();
            let mut turns = Vec::new();
            for number in 0..requests {
                let (turn, before) = take();
                prop_assert_eq!(before as usize, number / replicas);
                turns.push(turn);
            }
            prop_assert_eq!(traffic.requests(&target) as usize, requests);
            let held = turns.iter().filter(|turn| *turn.instance == *"i0").count();
            prop_assert_eq!(traffic.requests_of("i0") as usize, held);
            drop(turns);
            prop_assert_eq!(traffic.requests(&target), 0);
            prop_assert!(traffic.requests.lock().is_empty());
        }
    }

    #[test]
    fn there_is_no_turn_without_a_replica() {
        let (traffic, nothing) = (traffic(), target(0));
        assert!(traffic.take("r", nothing.replicas.iter()).is_none());
        assert!(traffic.requests.lock().is_empty());
    }
}
