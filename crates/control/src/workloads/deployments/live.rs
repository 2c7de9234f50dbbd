//! The replicas of all deployments on this machine, as this run of the program knows them.
//! Instances outlive the program, so each run begins with what the machine lists
//! ([`Deployments::adopt`]).

use super::plan::{self, Phase};
use crate::settings;
use admission::Turns;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::KindName;
use types::edge::Load;
use types::ids::ResourceId;
use types::instance::{InstanceName, ReplicaId};

/// How long requests that wanted replicas count, unless they ask again.
pub(super) const DEMAND_LIFE: Duration = Duration::from_secs(3);
pub(crate) struct Deployments {
    lives: Mutex<HashMap<ResourceId, Live>>,
    /// Deployments that somebody is about to look at.
    queued: Mutex<HashSet<ResourceId>>,
    pub(super) looks: Semaphore,
    /// Of which one workspace has a share, so that its launches never keep all others waiting.
    pub(super) launches: Turns,
    /// Cancelled when the program ends; replicas are left to the next run.
    pub(crate) ending: CancellationToken,
}

#[derive(Default)]
struct Live {
    kind: Option<KindName>,
    replicas: BTreeMap<InstanceName, Replica>,
    demands: HashMap<String, (u32, Instant)>,
    pauses: HashMap<String, Pause>,
    /// Numbers for new replicas that the row has already given out.
    numbers: Range<u32>,
    look_at: Option<Instant>,
    tokens: Tokens,
}

/// Access tokens of the connections that a deployment's launches need.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tokens {
    #[default]
    Unknown,
    /// Somebody waits for them, and asks for another look then.
    Awaited,
    /// They were waited for, so the next launch begins with what there is.
    Waited,
}

#[derive(Clone)]
pub(super) struct Replica {
    pub(super) id: ReplicaId,
    pub(super) state: State,
    /// Cancelled when the replica is to end.
    pub(super) end: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The machine lists it, but no task looks after it yet.
    Found,
    Starting,
    Ready {
        since: Instant,
    },
    Draining {
        since: Instant,
    },
    Ending,
}

/// The pause of a revision whose replicas end by themselves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pause {
    /// How many replicas have ended by themselves in a row.
    pub(super) ends: u32,
    until: Instant,
}

impl Deployments {
    pub(crate) fn new(settings: &settings::Deployments) -> Self {
        Self {
            lives: Mutex::default(),
            queued: Mutex::default(),
            looks: Semaphore::new(settings.looks_max),
            launches: Turns::new(settings.launches_max, settings.launches_share()),
            ending: CancellationToken::new(),
        }
    }

    /// Takes over replicas of an earlier run.
    pub(crate) fn adopt<'r>(&self, found: impl Iterator<Item = &'r (InstanceName, ReplicaId)>) {
        let mut lives = self.lives.lock();
        for (instance, id) in found {
            let live = lives.entry(id.workload.clone()).or_default();
            live.replicas.entry(instance.clone()).or_insert_with(|| Replica {
                id: id.clone(),
                state: State::Found,
                end: CancellationToken::new(),
            });
        }
    }

    /// The ids of all deployments that anything is known about.
    pub(crate) fn ids(&self) -> Vec<ResourceId> {
        self.lives.lock().keys().cloned().collect()
    }

    /// Marks a deployment as about to be looked at. Returns whether it was not marked yet.
    pub(super) fn queue(&self, id: &ResourceId) -> bool {
        self.queued.lock().insert(id.clone())
    }

    /// Notes that a look at a deployment begins. Whatever happens from here on needs another look.
    pub(super) fn begin(&self, id: &ResourceId, kind: KindName) {
        self.queued.lock().remove(id);
        let mut lives = self.lives.lock();
        let live = lives.entry(id.clone()).or_default();
        (live.kind, live.look_at) = (Some(kind), None);
    }

    pub(super) fn replicas(&self, id: &ResourceId) -> Vec<(InstanceName, Replica)> {
        let lives = self.lives.lock();
        let replicas = lives.get(id).into_iter().flat_map(|live| &live.replicas);
        replicas.map(|(name, replica)| (name.clone(), replica.clone())).collect()
    }

    /// Returns the replicas of a deployment that no task looks after yet.
    pub(super) fn found(&self, id: &ResourceId) -> Vec<(InstanceName, Replica)> {
        let mut replicas = self.replicas(id);
        replicas.retain(|(_, replica)| replica.state == State::Found);
        replicas
    }

    /// Takes a replica that was found. From now on the caller looks after it.
    pub(super) fn take_found(&self, id: &ResourceId, instance: &InstanceName) {
        self.step(id, instance, |state| match state {
            State::Found => State::Starting,
            other => other,
        });
    }

    /// Adds a replica that is about to be launched.
    pub(super) fn add(&self, id: ReplicaId) -> (InstanceName, Replica) {
        let instance = InstanceName::of_replica(&id);
        let end = CancellationToken::new();
        let replica = Replica { id, state: State::Starting, end };
        let mut lives = self.lives.lock();
        let live = lives.entry(replica.id.workload.clone()).or_default();
        live.replicas.insert(instance.clone(), replica.clone());
        (instance, replica)
    }

    /// Notes that the program of a replica listens, unless the replica is to end already.
    pub(super) fn ready(&self, id: &ResourceId, instance: &InstanceName, now: Instant) {
        self.step(id, instance, |state| match state {
            State::Starting => State::Ready { since: now },
            other => other,
        });
    }

    pub(super) fn drain(&self, id: &ResourceId, instance: &InstanceName, now: Instant) {
        self.step(id, instance, |_| State::Draining { since: now });
    }

    /// Asks the task that looks after a replica to end it.
    pub(super) fn end(&self, id: &ResourceId, instance: &InstanceName) {
        self.step(id, instance, |_| State::Ending);
        let lives = self.lives.lock();
        if let Some(replica) = lives.get(id).and_then(|live| live.replicas.get(instance)) {
            replica.end.cancel();
        }
    }

    fn step(&self, id: &ResourceId, instance: &InstanceName, to: impl FnOnce(State) -> State) {
        let mut lives = self.lives.lock();
        if let Some(replica) = lives.get_mut(id).and_then(|live| live.replicas.get_mut(instance)) {
            replica.state = to(replica.state);
        }
    }

    /// Removes a replica that has ended. Returns how far it had come.
    pub(super) fn remove(&self, id: &ResourceId, instance: &InstanceName) -> Option<State> {
        let mut lives = self.lives.lock();
        Some(lives.get_mut(id)?.replicas.remove(instance)?.state)
    }

    /// Forgets a deployment that is gone, once nothing of it is left.
    pub(super) fn forget(&self, id: &ResourceId) {
        let mut lives = self.lives.lock();
        if lives.get(id).is_some_and(|live| live.replicas.is_empty()) {
            lives.remove(id);
        }
    }

    /// Notes that requests want replicas. Returns the deployment's kind if it is known here.
    pub(super) fn demand(
        &self,
        id: &ResourceId,
        revision: String,
        requests: u32,
        now: Instant,
    ) -> Option<KindName> {
        let mut lives = self.lives.lock();
        let live = lives.get_mut(id)?;
        let kind = live.kind?;
        live.demands.insert(revision, (requests, now));
        Some(kind)
    }

    /// Returns the requests that want each revision, and how long each revision is still paused.
    pub(super) fn wants(
        &self,
        id: &ResourceId,
        now: Instant,
    ) -> (BTreeMap<String, u32>, BTreeMap<String, Duration>) {
        let mut lives = self.lives.lock();
        let Some(live) = lives.get_mut(id) else { return Default::default() };
        live.demands.retain(|_, (_, at)| now.duration_since(*at) < DEMAND_LIFE);
        let demands = live.demands.iter();
        let demands = demands.map(|(revision, (requests, _))| (revision.clone(), *requests));
        let left = |pause: &Pause| pause.until.saturating_duration_since(now);
        let pauses = live.pauses.iter().map(|(revision, pause)| (revision.clone(), left(pause)));
        (demands.collect(), pauses.collect())
    }

    /// Lets no replica of a revision start for a while, longer each time in a row. If the replica
    /// was `lasting`, the row begins anew.
    pub(super) fn pause(
        &self,
        id: &ResourceId,
        revision: &str,
        lasting: bool,
        (first, longest): (Duration, Duration),
    ) -> (u32, Duration) {
        let mut lives = self.lives.lock();
        let live = lives.entry(id.clone()).or_default();
        let before = live.pauses.get(revision).filter(|_| !lasting).map_or(0, |pause| pause.ends);
        let ends = before.saturating_add(1);
        let pause = first.saturating_mul(1 << before.min(20)).min(longest);
        let until = Instant::now() + pause;
        live.pauses.insert(revision.to_owned(), Pause { ends, until });
        (ends, pause)
    }

    /// Forgets the pauses of revisions that are no longer wished.
    pub(super) fn keep_pauses(&self, id: &ResourceId, wished: impl Fn(&str) -> bool) {
        if let Some(live) = self.lives.lock().get_mut(id) {
            live.pauses.retain(|revision, _| wished(revision));
        }
    }

    /// Returns the next number for a replica, if one is left.
    pub(super) fn number(&self, id: &ResourceId) -> Option<u32> {
        self.lives.lock().get_mut(id)?.numbers.next()
    }

    pub(super) fn give_numbers(&self, id: &ResourceId, numbers: Range<u32>) {
        self.lives.lock().entry(id.clone()).or_default().numbers = numbers;
    }

    pub(super) fn look_in(&self, id: &ResourceId, time: Option<Duration>) {
        if let Some(live) = self.lives.lock().get_mut(id) {
            live.look_at = time.map(|time| Instant::now() + time);
        }
    }

    /// Notes how far waiting for the tokens of a deployment is. Returns how far it was.
    pub(super) fn set_tokens(&self, id: &ResourceId, tokens: Tokens) -> Tokens {
        let mut lives = self.lives.lock();
        lives
            .get_mut(id)
            .map(|live| std::mem::replace(&mut live.tokens, tokens))
            .unwrap_or_default()
    }

    pub(super) fn tokens(&self, id: &ResourceId) -> Tokens {
        self.lives.lock().get(id).map(|live| live.tokens).unwrap_or_default()
    }

    /// Returns the deployments whose time to be looked at has come, and clears these times.
    pub(super) fn due(&self, now: Instant) -> Vec<(ResourceId, KindName)> {
        let mut lives = self.lives.lock();
        let due = lives.iter_mut().filter(|(_, live)| live.look_at.is_some_and(|at| at <= now));
        due.filter_map(|(id, live)| {
            live.look_at = None;
            Some((id.clone(), live.kind?))
        })
        .collect()
    }
}

impl Replica {
    /// Returns the replica as a plan sees it. `load` is what the edge knows; without it the replica
    /// has had no request yet.
    pub(super) fn seen(
        &self,
        instance: &InstanceName,
        load: Option<Load>,
        now: Instant,
    ) -> plan::Replica {
        let (phase, since) = match self.state {
            State::Found | State::Starting => (Phase::Starting, now),
            State::Ready { since } => (Phase::Ready, since),
            State::Draining { since } => (Phase::Draining(now.duration_since(since)), since),
            State::Ending => (Phase::Ending, now),
        };
        let load = load.unwrap_or(Load { requests: 0, idle: Some(now.duration_since(since)) });
        let revision = self.id.revision.clone();
        plan::Replica { instance: instance.clone(), revision, phase, load }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

    fn id() -> ResourceId {
        ResourceId::known("res_a")
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_until_a_replica_lasts() {
        let all = Deployments::new(&settings::Deployments::default());
        let pause = |lasting| all.pause(&id(), "r", lasting, PAUSES).1.as_secs();
        let pauses = [false, false, false, false, true, false].map(pause);
        assert_eq!(pauses, [1, 2, 4, 5, 1, 2]);
        let left = |all: &Deployments| all.wants(&id(), Instant::now()).1["r"];
        assert_eq!(left(&all), Duration::from_secs(2));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(left(&all), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn demands_end_unless_they_are_made_again() {
        let all = Deployments::new(&settings::Deployments::default());
        assert_eq!(all.demand(&id(), "r".into(), 1, Instant::now()), None, "unknown here");
        all.begin(&id(), KindName::Agent);
        let known = all.demand(&id(), "r".into(), 7, Instant::now());
        assert_eq!(known, Some(KindName::Agent));
        assert_eq!(all.wants(&id(), Instant::now()).0["r"], 7);
        tokio::time::advance(DEMAND_LIFE).await;
        assert!(all.wants(&id(), Instant::now()).0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_is_taken_over_once_and_does_not_come_back_from_its_end() {
        let all = Deployments::new(&settings::Deployments::default());
        let replica = ReplicaId { workload: id(), revision: "r".into(), number: 1 };
        let found = [(InstanceName::of_replica(&replica), replica)];
        all.adopt(found.iter());
        let name = &found[0].0;
        assert_eq!(all.found(&id()).len(), 1);
        assert_eq!(all.found(&id()).len(), 1, "whoever fails to take it finds it again");
        all.take_found(&id(), name);
        all.adopt(found.iter());
        assert_eq!(all.found(&id()).len(), 0);
        let end = all.replicas(&id())[0].1.end.clone();
        all.end(&id(), name);
        assert!(end.is_cancelled());
        all.ready(&id(), name, Instant::now());
        all.forget(&id());
        assert_eq!(all.remove(&id(), name), Some(State::Ending));
        all.forget(&id());
        assert!(all.ids().is_empty());
    }
}
