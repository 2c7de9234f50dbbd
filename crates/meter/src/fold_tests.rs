use super::*;
use crate::hours::{Hours, each_hour};
use proptest::prelude::*;
use std::convert::Infallible;
use store::usage::Phase;

const H: i64 = 3_600_000;

fn life() -> Life {
    Life {
        subject: "s".into(),
        id: 1,
        owner: None,
        series: None,
        phase: Phase::Off,
        level: 0,
        began_at: None,
        through: 0,
        last: None,
        anchor: None,
        cut: None,
    }
}

fn fact(id: usize, at: i64, change: (i64, i64), stamp: Option<(i64, i64)>) -> FactRow {
    let stamp = stamp.map(|(boot, uptime_ms)| Stamp { boot, uptime_ms });
    FactRow {
        id: format!("f{id}"),
        life: 1,
        number: 0,
        at,
        kind: change.0,
        amount: change.1,
        stamp,
    }
}

/// Takes facts in as the intake does, with proofs made up by the test.
fn take(
    life: &mut Life,
    measure: Measure,
    known: &mut Vec<FactRow>,
    fresh: &[FactRow],
    hours: &mut Hours,
) {
    known.extend_from_slice(fresh);
    let uses = go_on(life, measure, fresh).unwrap_or_else(|| {
        let ids = fresh.iter().map(|fact| fact.id.as_str()).collect();
        let proof = |boot| Ok::<_, Infallible>(Some(Proof { at: 0, uptime_ms: boot * 1000 }));
        begin_again(life, measure, known, &ids, proof).unwrap()
    });
    hours.add((1, 1), &uses);
}

fn total(uses: &[Use]) -> i64 {
    let mut sum = 0;
    uses.iter().for_each(|one| each_hour(*one, |_, amount| sum += amount));
    sum
}

/// Time, kind and amount, boot and steady time.
type Told = (i64, (i64, i64), Option<(i64, i64)>);

#[track_caller]
fn check(measure: Measure, facts: &[Told], expect: i64) {
    let facts: Vec<_> = facts
        .iter()
        .enumerate()
        .map(|(id, (at, change, stamp))| fact(id, *at, *change, *stamp))
        .collect();
    assert_eq!(total(&whole(&life(), measure, &facts)), expect);
}

const STARTED: (i64, i64) = (1, 10);
const PAUSED: (i64, i64) = (3, 0);
const RESUMED: (i64, i64) = (4, 0);
const ALIVE: (i64, i64) = (5, 0);
const STOPPED: (i64, i64) = (6, 0);

#[test]
fn a_life_counts_while_it_runs() {
    let runtime = Measure::Runtime;
    check(runtime, &[(100, STARTED, None), (350, STOPPED, None)], 2500);
    check(
        runtime,
        &[(100, STARTED, None), (200, PAUSED, None), (300, RESUMED, None), (350, STOPPED, None)],
        1500,
    );
    check(runtime, &[(100, STARTED, None), (200, (2, 20), None), (300, STOPPED, None)], 3000);
    check(runtime, &[(100, STARTED, None), (200, ALIVE, None)], 1000);
    check(
        runtime,
        &[(100, STARTED, None), (200, STOPPED, None), (300, ALIVE, None), (400, RESUMED, None)],
        1000,
    );
    check(runtime, &[(100, RESUMED, None), (200, STOPPED, None)], 0);
    check(runtime, &[(200, STARTED, None), (100, STOPPED, None)], 0);
    check(runtime, &[(100, (7, 4096), None), (200, STOPPED, None), (300, (99, 1), None)], 0);
}

#[test]
fn what_is_stored_counts_until_it_is_gone() {
    check(
        Measure::Storage,
        &[(100, (7, 1025), None), (200, (7, 1024), None), (300, (7, 0), None)],
        300,
    );
    check(Measure::Storage, &[(100, (7, i64::MAX), None), (101, (7, 0), None)], LEVEL_MAX);
    check(
        Measure::Time,
        &[(100, (9, 0), None), (300, (10, 0), None), (500, (9, 0), None), (501, (10, 0), None)],
        201,
    );
    check(Measure::Events, &[(100, (8, 3), None), (100, (8, 4), None)], 7);
}

#[test]
fn the_steady_clock_counts() {
    let runtime = Measure::Runtime;
    // The calendar was set back by an hour, and ahead by an hour, while it ran for 50 ms.
    check(runtime, &[(H, STARTED, Some((1, 500))), (0, STOPPED, Some((1, 550)))], 500);
    check(runtime, &[(H, STARTED, Some((1, 500))), (2 * H, STOPPED, Some((1, 550)))], 500);
}

#[test]
fn nothing_outlives_its_machine() {
    let facts = [fact(0, 10_000, STARTED, Some((1, 100))), fact(1, 90_000, STOPPED, Some((2, 5)))];
    for reversed in [false, true] {
        let (mut life, mut known, mut hours) = (life(), Vec::new(), Hours::default());
        let mut facts = facts.to_vec();
        if reversed {
            facts.reverse();
        }
        for fact in &facts {
            let fresh = std::slice::from_ref(fact);
            take(&mut life, Measure::Runtime, &mut known, fresh, &mut hours);
        }
        // The last proof of boot 1 is 1000 on its steady clock, 900 ms after the start.
        assert_eq!(hours.added().iter().map(|added| added.amount).sum::<i64>(), 9000);
    }
}

#[test]
fn a_late_request_is_counted_without_looking_at_the_others() {
    let mut life = life();
    for (id, at) in [500, 500, 100, 300].into_iter().enumerate() {
        let uses = go_on(&mut life, Measure::Events, &[fact(id, at, (8, 1), None)]);
        assert_eq!(uses, Some(vec![Use::Point { at, count: 1 }]));
    }
    assert_eq!((life.began_at, life.through), (Some(100), 500));
    assert_eq!(life.last.map(|last| (last.at, last.id)), Some((500, "f1".into())));
}

fn any_fact() -> impl Strategy<Value = Told> {
    let change = (1_i64..11, 0_i64..50);
    (0_i64..5 * H, change, proptest::option::of((1_i64..3, 0_i64..3 * H)))
}

proptest! {
    /// Whatever the facts are and in whatever order they come, and even if what goes on is counted
    /// in between, the hours equal those of going through all facts once.
    #[test]
    fn the_order_of_arrival_does_not_matter(
        measure in proptest::sample::select(vec![Measure::Runtime, Measure::Events, Measure::Storage]),
        facts in proptest::collection::vec(any_fact(), 1..14),
        order in proptest::collection::vec(any::<u64>(), 14),
        pieces in proptest::collection::vec((1_usize..4, 0_i64..6 * H), 14),
    ) {
        let mut facts: Vec<_> =
            facts.into_iter().enumerate().map(|(id, (at, change, stamp))| fact(id, at, change, stamp)).collect();
        let mut keyed: Vec<_> = order.into_iter().zip(facts.drain(..)).collect();
        keyed.sort_by_key(|(key, _)| *key);
        let mut facts: Vec<_> = keyed.into_iter().map(|(_, fact)| fact).collect();
        let (mut life, mut known, mut hours) = (life(), Vec::new(), Hours::default());
        for (length, roll_to) in pieces {
            let fresh: Vec<_> = facts.drain(..length.min(facts.len())).collect();
            if !fresh.is_empty() {
                take(&mut life, measure, &mut known, &fresh, &mut hours);
            }
            if life.phase == Phase::On && life.through < roll_to {
                hours.add((1, 1), &[Use::Span { from: life.through, to: roll_to, level: life.level }]);
                life.through = roll_to;
            }
        }
        prop_assert!(facts.is_empty() || known.len() >= 14);
        let mut expect = Hours::default();
        expect.add((1, 1), &whole(&life, measure, &known));
        prop_assert_eq!(hours.added(), expect.added());
        prop_assert!(hours.added().iter().all(|added| (0..=50 * H).contains(&added.amount)));
    }
}
