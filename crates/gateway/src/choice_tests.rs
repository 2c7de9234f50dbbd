use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn to(revision: &str, weight: u32, replicas: &[&str]) -> Target {
    let replica = |name: &&str| Replica { machine: "here".into(), instance: (*name).to_owned() };
    Target { revision: revision.into(), weight, replicas: replicas.iter().map(replica).collect() }
}

fn chosen(targets: &[Target], stays_with: Option<&str>, point: u32) -> Option<String> {
    target(targets, stays_with, point).map(|target| target.revision.clone())
}

#[test]
fn a_canary_gets_its_share_to_the_last_request() {
    let targets = [to("new", 10, &[]), to("old", 90, &[])];
    // Wherever the turns begin, including where their number wraps around.
    for first in [0, 7, u32::MAX - 95] {
        let turns = (0..10_000).map(|turn: u32| point_of_turn(first.wrapping_add(turn)));
        let new = turns.filter(|point| chosen(&targets, None, *point).unwrap() == "new").count();
        assert!((990..=1010).contains(&new), "{new}");
    }
}

#[test]
fn a_canary_is_not_asked_in_bursts() {
    let targets = [to("new", 10, &[]), to("old", 90, &[])];
    let mut last = None;
    for turn in 0..1000 {
        if chosen(&targets, None, point_of_turn(turn)).unwrap() == "new" {
            assert!(last.is_none_or(|last| turn - last >= 5), "{last:?} and {turn}");
            last = Some(turn);
        }
    }
}

#[test]
fn a_caller_stays_only_with_a_revision_that_serves() {
    let targets = [to("new", 10, &[]), to("old", 90, &[]), to("out", 0, &[])];
    assert_eq!(chosen(&targets, Some("new"), 99).unwrap(), "new");
    for not_served in ["out", "", "strange"] {
        assert_eq!(chosen(&targets, Some(not_served), 99).unwrap(), "old", "{not_served}");
    }
}

#[test]
fn weights_that_do_not_add_up_leave_nobody_out() {
    assert_eq!(chosen(&[], None, 0), None);
    assert_eq!(chosen(&[to("a", 0, &[])], None, 50).unwrap(), "a");
    assert_eq!(chosen(&[to("a", 0, &[]), to("b", 5, &[])], None, 99).unwrap(), "b");
    assert_eq!(chosen(&[to("a", 100, &[]), to("b", 100, &[])], None, 99).unwrap(), "a");
}

#[test]
fn a_conversation_stays_where_it_is_and_workloads_share_no_pattern() {
    let (one, two) = (ResourceId::known("res_1"), ResourceId::known("res_2"));
    let points = |id: &ResourceId| -> Vec<u32> {
        (0..10_000).map(|n| point_of_thread(id, format!("thread-{n}").as_bytes())).collect()
    };
    assert_eq!(points(&one), points(&one));
    let same = points(&one).into_iter().zip(points(&two)).filter(|(a, b)| a == b).count();
    assert!(same < 300, "{same}");
    let low = points(&one).into_iter().filter(|point| *point < 10).count();
    assert!((800..1200).contains(&low), "{low}");
}

#[test]
fn another_replica_is_wanted_when_all_are_full_and_one_more_may_be() {
    let targets = [to("new", 10, &["a"]), to("old", 90, &["b", "c"])];
    let scale = Scale { max: 4, concurrency: 10 };
    assert!(!wants_more(scale, &targets, 9));
    assert!(wants_more(scale, &targets, 10));
    assert!(!wants_more(Scale { max: 3, ..scale }, &targets, 10));
}

proptest! {
    #[test]
    fn every_hundred_turns_are_split_as_the_weights_say(first: u32, cut in 0u32..=100) {
        let targets = [to("a", cut, &[]), to("b", 100 - cut, &[])];
        // Not across the wrap of the counter, which disturbs at most one hundred turns.
        let first = first.min(u32::MAX - 100);
        let a = (first..first + 100).filter(|turn| chosen(&targets, None, point_of_turn(*turn)).unwrap() == "a");
        prop_assert_eq!(a.count() as u32, cut);
    }

    #[test]
    fn nobody_has_fewer_requests_than_the_one_that_is_chosen(counts in proptest::collection::vec(0u32..20, 0..12)) {
        let names: Vec<String> = (0..counts.len()).map(|n| n.to_string()).collect();
        let held: HashMap<&str, u32> = names.iter().map(String::as_str).zip(counts.iter().copied()).collect();
        let all = to("a", 100, &names.iter().map(String::as_str).collect::<Vec<_>>());
        let found = least(all.replicas.iter(), |replica| held[replica.instance.as_str()]);
        match found {
            None => prop_assert!(counts.is_empty()),
            Some((replica, requests)) => {
                prop_assert_eq!(requests, *counts.iter().min().unwrap());
                prop_assert_eq!(held[replica.instance.as_str()], requests);
            }
        }
    }

    #[test]
    fn any_targets_and_any_wish_give_one_of_the_targets(weights in proptest::collection::vec(0u32..200, 0..5), wish in "[a-e]?", point in 0u32..100) {
        let targets: Vec<Target> = weights.iter().zip('a'..).map(|(weight, name)| to(&name.to_string(), *weight, &[])).collect();
        let found = target(&targets, Some(&wish), point);
        prop_assert_eq!(found.is_some(), !targets.is_empty());
        if let Some(found) = found {
            prop_assert!(found.weight > 0 || weights.iter().all(|weight| *weight == 0));
        }
    }
}
