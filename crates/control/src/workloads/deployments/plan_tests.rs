//! Plans for many situations.

use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    extra_idle: Duration::from_secs(60),
    last_idle: Duration::from_secs(600),
    drain_max: Duration::from_secs(900),
    drain_min: Duration::from_secs(1),
    starting_max: 4,
    demand_life: Duration::from_secs(3),
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn replica(number: u32, revision: &str, phase: Phase) -> Replica {
    let instance = InstanceName::new(format!("replica-a-{revision}-{number}")).unwrap();
    let load = Load { requests: 0, idle: Some(Duration::ZERO) };
    Replica { instance, revision: revision.into(), phase, load }
}

fn idle(number: u32, revision: &str, since_s: u64) -> Replica {
    let load = Load { requests: 0, idle: Some(seconds(since_s)) };
    Replica { load, ..replica(number, revision, Phase::Ready) }
}

fn on(next: Option<&str>, canary: Option<&str>) -> Wish {
    Wish::On { next: next.map(str::to_owned), canary: canary.map(str::to_owned) }
}

/// The revision `a` serves, and nothing else is wished.
fn calm(replicas: Vec<Replica>) -> Situation {
    Situation {
        wish: on(None, None),
        serving: Some("a".into()),
        proven: None,
        failed: BTreeSet::new(),
        scale: Scale { min: 0, max: 10, concurrency: 10 },
        alone: false,
        replicas,
        demands: BTreeMap::new(),
        pauses: BTreeMap::new(),
        limits: LIMITS,
    }
}

fn names(instances: &[InstanceName]) -> Vec<String> {
    instances.iter().map(ToString::to_string).collect()
}

fn launch(plan: &Plan) -> Vec<(String, u32)> {
    plan.launch.clone()
}

fn one(revision: &str, count: u32) -> Vec<(String, u32)> {
    vec![(revision.to_owned(), count)]
}

#[test]
fn what_is_beyond_the_most_drains_at_once_but_never_the_only_one_that_is_ready() {
    let scale = Scale { min: 1, max: 1, concurrency: 10 };
    let mut busy = replica(1, "a", Phase::Ready);
    busy.load.requests = 1;
    let two = Situation { scale, ..calm(vec![busy, replica(2, "a", Phase::Ready)]) };
    let cut = plan(&two);
    assert_eq!((names(&cut.drain), cut.launch), (vec!["replica-a-a-2".to_owned()], vec![]));
    let replicas = vec![replica(1, "a", Phase::Starting), replica(2, "a", Phase::Ready)];
    let wait = plan(&Situation { scale, ..calm(replicas) });
    assert_eq!((wait.drain, wait.end, wait.launch), (vec![], vec![], vec![]));
}

#[test]
fn a_new_revision_is_proven_before_it_serves_and_the_old_one_serves_until_then() {
    let wish = on(Some("b"), None);
    let begin = Situation { wish: wish.clone(), ..calm(vec![replica(1, "a", Phase::Ready)]) };
    let begun = plan(&begin);
    assert_eq!((launch(&begun), begun.changes, begun.drain), (one("b", 1), vec![], vec![]));

    let replicas = vec![replica(1, "a", Phase::Ready), replica(2, "b", Phase::Starting)];
    let wait = plan(&Situation { wish: wish.clone(), ..calm(replicas) });
    assert_eq!((wait.launch, wait.changes, wait.drain), (vec![], vec![], vec![]));

    let replicas = vec![replica(1, "a", Phase::Ready), replica(2, "b", Phase::Ready)];
    let ready = plan(&Situation { wish: wish.clone(), ..calm(replicas) });
    assert_eq!(ready.changes, [Change::Switch("b".into())]);
    assert_eq!((names(&ready.drain), ready.end), (vec!["replica-a-a-1".to_owned()], vec![]));

    let failed = BTreeSet::from(["b".to_owned()]);
    let replicas = vec![replica(1, "a", Phase::Ready), replica(2, "b", Phase::Ending)];
    let stay = plan(&Situation { wish, failed, ..calm(replicas) });
    assert_eq!((stay.launch, stay.changes, stay.drain), (vec![], vec![], vec![]));
}

#[test]
fn what_mounts_a_volume_ends_before_the_next_revision_begins() {
    let wish = on(Some("b"), None);
    let scale = Scale { min: 0, max: 1, concurrency: 10 };
    let at = |replicas| Situation { wish: wish.clone(), scale, alone: true, ..calm(replicas) };
    let first = plan(&at(vec![replica(1, "a", Phase::Ready)]));
    assert_eq!((names(&first.drain), first.launch), (vec!["replica-a-a-1".to_owned()], vec![]));
    for phase in [Phase::Draining(Duration::ZERO), Phase::Ending] {
        let wait = plan(&at(vec![replica(1, "a", phase)]));
        assert_eq!((wait.launch, wait.changes), (vec![], vec![]), "{phase:?}");
        assert!(wait.again.is_some());
    }
    // Requests for the old revision meanwhile wait for the new one.
    let asked = Situation { demands: BTreeMap::from([("a".into(), 3)]), ..at(vec![]) };
    assert_eq!(launch(&plan(&asked)), one("b", 1));
    let ready = plan(&at(vec![replica(2, "b", Phase::Ready)]));
    assert_eq!((ready.changes, ready.drain), (vec![Change::Switch("b".into())], vec![]));
    // The revision that served before serves again.
    let failed = BTreeSet::from(["b".to_owned()]);
    let back = plan(&Situation { failed, ..asked });
    assert_eq!(launch(&back), one("a", 1));
}

#[test]
fn what_serves_already_needs_no_proof() {
    let same = plan(&Situation { wish: on(Some("a"), None), ..calm(vec![]) });
    assert_eq!((same.changes, same.launch), (vec![Change::Switch("a".into())], vec![]));
}

#[test]
fn a_canary_takes_requests_when_it_is_ready() {
    let wish = on(None, Some("c"));
    let begun = plan(&Situation { wish: wish.clone(), ..calm(vec![]) });
    assert_eq!((launch(&begun), begun.changes), (one("c", 1), vec![]));
    let ready = calm(vec![replica(1, "c", Phase::Ready)]);
    let ready = plan(&Situation { wish: wish.clone(), ..ready });
    assert_eq!((ready.changes, ready.drain), (vec![Change::Prove("c".into())], vec![]));
    let failed = BTreeSet::from(["c".to_owned()]);
    let proven = Some("c".to_owned());
    let asleep = plan(&Situation { wish: wish.clone(), proven: proven.clone(), ..calm(vec![]) });
    assert_eq!(asleep, Plan::default(), "it was ready once and nobody wants it");
    let out = plan(&Situation { wish, failed, ..calm(vec![replica(1, "c", Phase::Ready)]) });
    assert_eq!((names(&out.drain), out.launch), (vec!["replica-a-c-1".to_owned()], vec![]));
    let alone = Situation { serving: None, wish: on(None, Some("c")), ..calm(vec![]) };
    assert_eq!(plan(&alone), Plan::default(), "there is nothing for it to go beside");
}

#[test]
fn requests_want_replicas_within_the_scale() {
    let demands = |requests| BTreeMap::from([("a".to_owned(), requests)]);
    let asked = |requests, replicas| Situation { demands: demands(requests), ..calm(replicas) };
    assert_eq!(launch(&plan(&asked(1, vec![]))), one("a", 1));
    assert_eq!(launch(&plan(&asked(35, vec![replica(1, "a", Phase::Ready)]))), one("a", 3));
    assert_eq!(launch(&plan(&asked(999, vec![]))), one("a", 4), "not all at once");
    let mut small = asked(999, vec![replica(1, "a", Phase::Ready)]);
    small.scale.max = 2;
    assert_eq!(launch(&plan(&small)), one("a", 1));
    small.pauses.insert("a".into(), seconds(3));
    let paused = plan(&small);
    assert_eq!((paused.launch, paused.again), (vec![], Some(seconds(3))));
}

#[test]
fn idle_replicas_go_first_the_extra_ones_and_late_the_last() {
    let both = plan(&calm(vec![idle(1, "a", 70), idle(2, "a", 90)]));
    assert_eq!(names(&both.drain), ["replica-a-a-2"]);
    let last = plan(&calm(vec![idle(1, "a", 599)]));
    assert_eq!((last.drain, last.again), (vec![], Some(seconds(1))));
    assert_eq!(names(&plan(&calm(vec![idle(1, "a", 600)])).drain), ["replica-a-a-1"]);
    let mut kept = calm(vec![idle(1, "a", 9000)]);
    kept.scale.min = 1;
    assert_eq!(plan(&kept), Plan::default());
}

#[test]
fn what_drains_ends_without_requests_or_after_its_time() {
    let drains = |since_s, requests| {
        let load = Load { requests, idle: None };
        let phase = Phase::Draining(seconds(since_s));
        plan(&calm(vec![Replica { load, ..replica(1, "b", phase) }])).end.len()
    };
    assert_eq!([drains(0, 0), drains(1, 0), drains(10, 1), drains(900, 1)], [0, 1, 0, 1]);
}

#[test]
fn what_stands_for_a_sandbox_says_so_at_once_and_drains() {
    let bound = |replicas| plan(&Situation { wish: Wish::Bound, ..calm(replicas) });
    let begun = bound(vec![replica(1, "a", Phase::Ready), replica(2, "a", Phase::Starting)]);
    assert_eq!(names(&begun.drain), ["replica-a-a-1"]);
    assert_eq!(names(&begun.end), ["replica-a-a-2"]);
    assert_eq!((begun.launch, begun.changes), (vec![], vec![Change::SayBound]));
}

#[test]
fn what_is_disabled_drains_and_then_says_so() {
    let off = |replicas| plan(&Situation { wish: Wish::Off, ..calm(replicas) });
    let begun = off(vec![replica(1, "a", Phase::Ready), replica(2, "a", Phase::Starting)]);
    assert_eq!(names(&begun.drain), ["replica-a-a-1"]);
    assert_eq!((names(&begun.end), begun.changes), (vec!["replica-a-a-2".to_owned()], vec![]));
    assert_eq!(off(vec![replica(1, "a", Phase::Ending)]).changes, []);
    assert_eq!(off(vec![]).changes, [Change::SayOff]);
}

fn revision() -> impl Strategy<Value = String> {
    prop_oneof![Just("a"), Just("b"), Just("c"), Just("old")].prop_map(str::to_owned)
}

fn any_replica() -> impl Strategy<Value = (String, Phase, u32, Option<u64>)> {
    let phase = prop_oneof![
        Just(Phase::Starting),
        Just(Phase::Ready),
        (0..1000_u64).prop_map(|since| Phase::Draining(seconds(since))),
        Just(Phase::Ending),
    ];
    (revision(), phase, 0..3_u32, proptest::option::of(0..1000_u64))
}

fn any_situation() -> impl Strategy<Value = Situation> {
    let wish = prop_oneof![
        1 => Just(Wish::Off),
        1 => Just(Wish::Bound),
        5 => (proptest::option::of(revision()), proptest::option::of(revision()))
            .prop_map(|(next, canary)| Wish::On { next, canary }),
    ];
    let known = (proptest::option::of(revision()), proptest::option::of(revision()));
    let failed = proptest::collection::btree_set(revision(), 0..2);
    let replicas = proptest::collection::vec(any_replica(), 0..12);
    let demands = proptest::collection::btree_map(revision(), 0..200_u32, 0..4);
    let pauses = proptest::collection::btree_map(revision(), (0..5_u64).prop_map(seconds), 0..2);
    let scale = (0..4_u32, 0..6_u32, 1..20_u32);
    (wish, known, failed, replicas, demands, pauses, scale).prop_map(
        |(wish, (serving, proven), failed, replicas, demands, pauses, (min, more, concurrency))| {
            let replicas = replicas.into_iter().zip(1..).map(|((of, phase, requests, idle), n)| {
                let load = Load { requests, idle: idle.map(seconds) };
                Replica { load, ..replica(n, &of, phase) }
            });
            Situation {
                wish,
                serving,
                proven,
                failed,
                scale: Scale { min, max: (min + more).max(1), concurrency },
                alone: false,
                replicas: replicas.collect(),
                demands,
                pauses,
                limits: LIMITS,
            }
        },
    )
}

/// Applies a plan to the situation, as far as that depends on nobody else.
fn carry_out(situation: &mut Situation, plan: &Plan) {
    for change in &plan.changes {
        match change {
            Change::Switch(revision) => situation.serving = Some(revision.clone()),
            Change::Prove(revision) => situation.proven = Some(revision.clone()),
            Change::SayOff | Change::SayBound => {}
        }
    }
    let mut number = 1000;
    for (revision, many) in &plan.launch {
        for _ in 0..*many {
            number += 1;
            situation.replicas.push(replica(number, revision, Phase::Starting));
        }
    }
    situation.replicas.retain(|replica| !plan.end.contains(&replica.instance));
    for replica in &mut situation.replicas {
        if plan.drain.contains(&replica.instance) {
            replica.phase = Phase::Draining(Duration::ZERO);
        }
    }
}

proptest! {
    #[test]
    fn nothing_serves_that_was_not_ready(situation in any_situation()) {
        for change in plan(&situation).changes {
            match change {
                Change::Switch(to) => {
                    prop_assert!(situation.serving.as_ref() == Some(&to) || situation.is_ready(&to));
                    prop_assert!(!situation.failed.contains(&to));
                }
                Change::Prove(canary) => prop_assert!(situation.is_ready(&canary)),
                Change::SayOff => prop_assert!(situation.replicas.is_empty()),
                Change::SayBound => prop_assert!(situation.wish == Wish::Bound),
            }
        }
    }

    #[test]
    fn what_mounts_volumes_never_has_two_replicas(situation in any_situation()) {
        let scale = Scale { min: situation.scale.min.min(1), max: 1, ..situation.scale };
        let mut situation = Situation { alone: true, scale, ..situation };
        situation.replicas.truncate(1);
        for _ in 0..8 {
            let plan = plan(&situation);
            carry_out(&mut situation, &plan);
            prop_assert!(situation.replicas.len() <= 1, "{situation:?}");
        }
    }

    #[test]
    fn replicas_stay_within_the_scale(situation in any_situation()) {
        let plan = plan(&situation);
        let starting =
            situation.replicas.iter().filter(|one| one.phase == Phase::Starting).count();
        let launched: u32 = plan.launch.iter().map(|(_, count)| count).sum();
        if launched > 0 {
            prop_assert!(count(starting) + launched <= LIMITS.starting_max);
        }
        for (revision, more) in &plan.launch {
            let live = situation.live(revision);
            let most = situation.scale.max.max(2);
            prop_assert!(live + more <= most, "{revision}: {live} and {more}");
            prop_assert!(situation.pauses.get(revision).is_none_or(|pause| pause.is_zero()));
            prop_assert!(!(situation.failed.contains(revision)
                && situation.serving.as_ref() != Some(revision)
                && situation.proven.as_ref() != Some(revision)));
        }
    }

    #[test]
    fn no_replica_ends_with_its_requests(situation in any_situation()) {
        for instance in plan(&situation).end {
            let ended = situation.replicas.iter().find(|one| one.instance == instance).unwrap();
            match ended.phase {
                Phase::Starting => {}
                Phase::Draining(since) => {
                    prop_assert!(ended.load.requests == 0 || since >= LIMITS.drain_max);
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }

    #[test]
    fn a_plan_that_was_carried_out_is_no_more_to_do(mut situation in any_situation()) {
        let (first, before) = (plan(&situation), situation.clone());
        carry_out(&mut situation, &first);
        let second = plan(&situation);
        let twice = |change: &Change| matches!(change, Change::Prove(_));
        prop_assert!(!second.changes.iter().any(twice), "{second:?}");
        prop_assert!(second.drain.is_empty(), "{second:?}");
        let starting = |replica: &&Replica| replica.phase == Phase::Starting;
        let starting = before.replicas.iter().filter(starting).count();
        let begun = count(starting) + first.launch.iter().map(|(_, count)| count).sum::<u32>();
        // Drained replicas make room, for the canary as well.
        let has_room = begun < LIMITS.starting_max && first.drain.is_empty();
        if has_room && first.changes.is_empty() {
            prop_assert!(second.launch.is_empty(), "{first:?} {second:?}");
        }
    }
}
