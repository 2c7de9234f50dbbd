//! The plan for one deployment at one moment. Pure: no clock, no database, no machine.
//!
//! ```text
//! wished revision ── a replica of it ── it is ready ──▶ Switch ──▶ replicas of the others drain, then end
//!                                    └─ it fails ──▶ what served goes on serving
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::edge::Load;
use types::instance::InstanceName;

/// What the row asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    /// No replica.
    Off,
    /// No replica either: it stands for a sandbox.
    Bound,
    On {
        /// The revision that is to serve from now on, if it does not serve yet.
        next: Option<String>,
        canary: Option<String>,
    },
}

/// Everything that a plan depends on.
#[derive(Debug, Clone)]
pub(super) struct Situation {
    pub(super) wish: Wish,
    pub(super) serving: Option<String>,
    /// The canary, if it was ready once under this wish.
    pub(super) proven: Option<String>,
    pub(super) failed: BTreeSet<String>,
    pub(super) scale: Scale,
    /// There may be only one replica at a time, of any revision, because its volume has one writer.
    pub(super) alone: bool,
    pub(super) replicas: Vec<Replica>,
    /// Requests that wait or are in progress, by revision.
    pub(super) demands: BTreeMap<String, u32>,
    /// How long no replica of a revision may start, because earlier ones ended by themselves.
    pub(super) pauses: BTreeMap<String, Duration>,
    pub(super) limits: Limits,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) concurrency: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How long a replica may be without requests before it is taken away: `extra_idle` while there
    /// are others, `last_idle` for the last one.
    pub(super) extra_idle: Duration,
    pub(super) last_idle: Duration,
    /// How long a replica that gets no new requests may take to finish those that it has.
    pub(super) drain_max: Duration,
    /// How long a draining replica is left alone at first, since a request may be on its way to it.
    pub(super) drain_min: Duration,
    /// Most replicas that start at the same time.
    pub(super) starting_max: u32,
    /// How long requests that wanted replicas count, unless they ask again.
    pub(super) demand_life: Duration,
}

#[derive(Debug, Clone)]
pub(super) struct Replica {
    pub(super) instance: InstanceName,
    pub(super) revision: String,
    pub(super) phase: Phase,
    pub(super) load: Load,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Starting,
    Ready,
    /// How long it has got no new requests.
    Draining(Duration),
    Ending,
}

/// Changes of the row, made in order and before everything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// This revision serves from now on.
    Switch(String),
    /// The canary is ready.
    Prove(String),
    /// Nothing runs any more.
    SayOff,
    /// A sandbox answers in its place.
    SayBound,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    /// How many new replicas of each revision to launch.
    pub(super) launch: Vec<(String, u32)>,
    /// Replicas that get no new requests. The edge is told before anything ends.
    pub(super) drain: Vec<InstanceName>,
    pub(super) end: Vec<InstanceName>,
    /// When to look again if nothing happens.
    pub(super) again: Option<Duration>,
}

pub(super) fn plan(situation: &Situation) -> Plan {
    let mut plan = Plan::default();
    let kept = match &situation.wish {
        Wish::Off | Wish::Bound => BTreeSet::new(),
        Wish::On { next, canary } => {
            let next = next.as_deref();
            let serving = situation.switch(next, &mut plan);
            let canary = canary.as_deref().filter(|_| !situation.alone);
            let canary = situation.prove(serving, canary, &mut plan);
            let proof = |wished: Option<&str>, there: Option<&str>| {
                wished
                    .filter(|wished| there != Some(wished) && !situation.failed.contains(*wished))
                    .map(str::to_owned)
            };
            let proofs = [proof(next, serving), proof(canary.wished, canary.target)];
            match &proofs {
                [Some(next), _] if situation.alone => situation.take_turns(next, &mut plan),
                _ => situation.scale(serving, canary.target, proofs, &mut plan),
            }
        }
    };
    situation.put_away(&kept, &mut plan);
    if situation.wish == Wish::Off && situation.replicas.is_empty() {
        plan.changes.push(Change::SayOff);
    }
    if situation.wish == Wish::Bound {
        plan.changes.push(Change::SayBound);
    }
    plan
}

struct Canary<'s> {
    wished: Option<&'s str>,
    /// The wished canary, if it is ready.
    target: Option<&'s str>,
}

impl Situation {
    /// Switches to the `next` revision if it is ready. Returns the revision that serves then.
    fn switch<'s>(&'s self, next: Option<&'s str>, plan: &mut Plan) -> Option<&'s str> {
        let before = self.serving.as_deref();
        let Some(next) = next.filter(|next| !self.failed.contains(*next)) else { return before };
        if before == Some(next) || self.is_ready(next) {
            plan.changes.push(Change::Switch(next.to_owned()));
            return Some(next);
        }
        before
    }

    fn prove<'s>(
        &'s self,
        serving: Option<&str>,
        canary: Option<&'s str>,
        plan: &mut Plan,
    ) -> Canary<'s> {
        // A canary needs a serving revision beside it.
        let beside = |canary: &&str| serving.is_some_and(|serving| serving != *canary);
        let wished = canary.filter(beside).filter(|canary| !self.failed.contains(*canary));
        let Some(canary) = wished else { return Canary { wished: None, target: None } };
        if self.proven.as_deref() == Some(canary) {
            return Canary { wished, target: wished };
        }
        if self.is_ready(canary) {
            plan.changes.push(Change::Prove(canary.to_owned()));
            return Canary { wished, target: wished };
        }
        Canary { wished, target: None }
    }

    fn is_ready(&self, revision: &str) -> bool {
        self.replicas
            .iter()
            .any(|replica| replica.revision == revision && replica.phase == Phase::Ready)
    }

    /// Counts the replicas that start or take requests.
    fn live(&self, revision: &str) -> u32 {
        let live = |replica: &&Replica| {
            replica.revision == revision && matches!(replica.phase, Phase::Starting | Phase::Ready)
        };
        count(self.replicas.iter().filter(live).count())
    }

    /// Plans as many replicas as are wanted of each target, and one of each revision that is to
    /// become a target. Returns the revisions that may have replicas.
    fn scale(
        &self,
        serving: Option<&str>,
        canary: Option<&str>,
        proofs: [Option<String>; 2],
        plan: &mut Plan,
    ) -> BTreeSet<String> {
        let starting = |replica: &&Replica| replica.phase == Phase::Starting;
        let begun = count(self.replicas.iter().filter(starting).count());
        let mut budget = self.limits.starting_max.saturating_sub(begun);
        let proofs: Vec<String> = proofs.into_iter().flatten().collect();
        for proof in &proofs {
            let missing = 1_u32.saturating_sub(self.live(proof));
            self.launch(proof, missing, &mut budget, plan);
        }
        let targets: Vec<&str> = serving.into_iter().chain(canary).collect();
        let total: u32 = targets.iter().map(|target| self.live(target)).sum();
        // Each target may have one replica, however few are allowed in all.
        let mut room = self.scale.max.max(count(targets.len())).saturating_sub(total);
        for target in &targets {
            let least =
                if Some(*target) == serving { self.scale.min } else { self.scale.min.min(1) };
            let (live, wanted) = (self.live(target), self.wanted(target, least));
            let first = u32::from(live == 0 && wanted > 0);
            let missing = wanted.saturating_sub(live).min(room.max(first));
            room = room.saturating_sub(missing);
            self.launch(target, missing, &mut budget, plan);
            if self.demands.contains_key(*target) {
                plan.look_in(self.limits.demand_life);
            }
            self.cut(target, plan);
            self.shrink(target, wanted, plan);
        }
        targets.into_iter().map(str::to_owned).chain(proofs).collect()
    }

    /// Plans the switch of a revision with volumes: the new one begins only when the old one has
    /// ended. Requests wait.
    fn take_turns(&self, next: &str, plan: &mut Plan) -> BTreeSet<String> {
        let missing = 1_u32.saturating_sub(self.live(next));
        self.launch(next, missing, &mut 1, plan);
        BTreeSet::from([next.to_owned()])
    }

    fn wanted(&self, revision: &str, least: u32) -> u32 {
        let requests = self.demands.get(revision).copied().unwrap_or(0);
        requests.div_ceil(self.scale.concurrency.max(1)).max(least)
    }

    fn launch(&self, revision: &str, missing: u32, budget: &mut u32, plan: &mut Plan) {
        if missing == 0 {
            return;
        }
        if self.alone && !self.replicas.is_empty() {
            plan.look_in(self.limits.drain_min);
            return;
        }
        if let Some(pause) = self.pauses.get(revision).filter(|pause| !pause.is_zero()) {
            plan.look_in(*pause);
            return;
        }
        let launched = missing.min(*budget);
        *budget -= launched;
        if launched > 0 {
            plan.launch.push((revision.to_owned(), launched));
        }
    }

    /// Drains at once the replicas beyond the maximum, those with the least to do first. There are
    /// such after a kill during a drain, or when the limit was lowered.
    fn cut(&self, revision: &str, plan: &mut Plan) {
        let ready =
            |replica: &&Replica| replica.revision == revision && replica.phase == Phase::Ready;
        let mut ready: Vec<&Replica> = self.replicas.iter().filter(ready).collect();
        let surplus = self.live(revision).saturating_sub(self.scale.max.max(1));
        // A replica that only starts takes nobody's place.
        let surplus = surplus.min(count(ready.len()).saturating_sub(1));
        ready.sort_by_key(|replica| (replica.load.requests, Reverse(replica.load.idle)));
        let cut = ready.into_iter().zip(0..surplus).map(|(replica, _)| replica.instance.clone());
        plan.drain.extend(cut);
    }

    /// Drains replicas that have been idle for long, the longest idle first.
    fn shrink(&self, revision: &str, wanted: u32, plan: &mut Plan) {
        let ready =
            |replica: &&Replica| replica.revision == revision && replica.phase == Phase::Ready;
        let mut idle: Vec<(Duration, &InstanceName)> = self
            .replicas
            .iter()
            .filter(ready)
            .filter(|replica| replica.load.requests == 0)
            .filter(|replica| !plan.drain.contains(&replica.instance))
            .filter_map(|replica| Some((replica.load.idle?, &replica.instance)))
            .collect();
        idle.sort_by(|one, other| other.cmp(one));
        let cut = |replica: &&Replica| {
            replica.revision == revision && plan.drain.contains(&replica.instance)
        };
        let cut = count(self.replicas.iter().filter(cut).count());
        let mut live = self.live(revision).saturating_sub(cut);
        for (since, instance) in idle {
            if live <= wanted {
                return;
            }
            let patience = if live == 1 { self.limits.last_idle } else { self.limits.extra_idle };
            if since < patience {
                plan.look_in(patience - since);
                return;
            }
            plan.drain.push(instance.clone());
            live -= 1;
        }
        if live > wanted {
            // The others are busy, so look again later.
            plan.look_in(self.limits.extra_idle);
        }
    }

    /// Ends replicas that nobody wants. Those that take requests are drained first.
    fn put_away(&self, kept: &BTreeSet<String>, plan: &mut Plan) {
        for replica in &self.replicas {
            let instance = || replica.instance.clone();
            match replica.phase {
                Phase::Starting if !kept.contains(&replica.revision) => plan.end.push(instance()),
                Phase::Ready if !kept.contains(&replica.revision) => plan.drain.push(instance()),
                Phase::Draining(since) if self.is_drained(replica, since) => {
                    plan.end.push(instance());
                }
                Phase::Draining(_) => plan.look_in(self.limits.drain_min),
                Phase::Starting | Phase::Ready | Phase::Ending => {}
            }
        }
        if !plan.drain.is_empty() {
            plan.look_in(self.limits.drain_min);
        }
    }

    fn is_drained(&self, replica: &Replica, since: Duration) -> bool {
        let idle = replica.load.requests == 0 && since >= self.limits.drain_min;
        idle || since >= self.limits.drain_max
    }
}

impl Plan {
    fn look_in(&mut self, time: Duration) {
        self.again = Some(self.again.map_or(time, |again| again.min(time)));
    }
}

/// Converts a number of replicas, which always fits.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
