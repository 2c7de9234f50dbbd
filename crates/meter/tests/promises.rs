//! What people are promised about their bills, case by case.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::town::at;
use common::{HOUR, MONDAY, Place};
use meter::{Answer, Change, Filter, Owner, PriceBook, Question, UsageFact, Window};
use store::Error;
use types::ids::AccountId;
use types::instance::Stamp;
use types::usage::{Dimension, ResourceType};
use types::wire::{GroupBy, Resolution};

on_both!(
    an_entry_has_what_the_interface_says,
    what_runs_is_seen_within_the_second,
    a_dead_machine_costs_nothing_more,
    a_fact_counts_once_and_contradictions_are_told,
    a_late_fact_is_seen_as_a_correction,
    what_is_stored_changes_when_it_is_said_whatever_the_clock_says,
    what_was_billed_after_its_end_is_put_in_order,
    what_was_billed_ahead_of_time_is_taken_back,
    types_are_told_that_were_used,
    the_first_owner_stands,
    facts_that_belong_to_nobody_are_kept_for_a_day,
);

fn account() -> AccountId {
    AccountId::known("acc_1")
}

fn owner(workspace: &str, dimension: Dimension, name: &str, uuid: &str) -> Owner {
    let machine = (dimension == Dimension::SandboxRuntime).then(|| "machine".to_owned());
    Owner {
        account: account(),
        workspace: workspace.into(),
        dimension,
        name: name.into(),
        uuid: uuid.into(),
        machine,
    }
}

fn fact(subject: &str, ms: i64, change: Change) -> UsageFact {
    let id = format!("{subject}-{ms}-{change:?}");
    UsageFact { id, subject: subject.into(), number: 0, at: at(MONDAY + ms), stamp: None, change }
}

async fn register(place: &Place, subject: &str, owner: Owner) {
    let subject = subject.to_owned();
    place.store.write(move |tx| meter::register(tx, &subject, &owner)).await.unwrap();
}

async fn take_in(place: &Place, facts: Vec<UsageFact>) -> meter::Taken {
    place.store.write(move |tx| meter::take_in(tx, &facts)).await.unwrap()
}

fn question(group_by: &[GroupBy]) -> Question {
    Question {
        account: account(),
        window: Window { start: at(MONDAY), end: at(MONDAY + 48 * HOUR) },
        resolution: Resolution::Daily,
        group_by: group_by.to_vec(),
        filter: Filter::default(),
        limit: 100,
        after: None,
    }
}

async fn ask(place: &Place, question: &Question) -> Answer {
    let (question, now) = (question.clone(), place.now());
    let mut prices = PriceBook::new();
    prices.set(Dimension::SandboxRuntime, at(0), "0.5".parse().unwrap());
    place.store.read(move |tx| meter::answer(tx, &question, &prices, now)).await.unwrap()
}

/// Returns the GB-seconds of sandboxes.
async fn used(place: &Place) -> f64 {
    ask(place, &question(&[GroupBy::BillingDimension])).await.total.usage.units()
}

/// Sets up two sandboxes of 1 GB, each on for ten seconds, and a volume.
async fn small_town(place: &Place) {
    place.set(MONDAY + 30 * HOUR);
    register(place, "one", owner("main", Dimension::SandboxRuntime, "box", "res_1")).await;
    register(place, "two", owner("other", Dimension::SandboxRuntime, "box", "res_2")).await;
    register(place, "disk", owner("main", Dimension::VolumeStorage, "disk", "")).await;
    let on = |subject: &str| {
        let started = fact(subject, 0, Change::Started { memory_mb: 1024 });
        [started, fact(subject, 10_000, Change::Ended)]
    };
    let disk = [
        fact("disk", 0, Change::Stored { bytes: 1 << 30 }),
        fact("disk", 5000, Change::Stored { bytes: 0 }),
    ];
    take_in(place, [on("one"), on("two"), disk].concat()).await;
}

/// How to split, and what each entry has: workspace, type, name, uuid, dimension; then cost, and
/// usage if it is reported.
const ENTRIES: &[(&[GroupBy], &[&str])] = &[
    (&[], &["- - - - - 10 -"]),
    (&[GroupBy::Workspace], &["main - - - - 5 -", "other - - - - 5 -"]),
    (&[GroupBy::ResourceType], &["- sandbox - - - 10 -", "- volume - - - 0 -"]),
    (
        &[GroupBy::ResourceName],
        &["main sandbox box - - 5 -", "main volume disk - - 0 -", "other sandbox box - - 5 -"],
    ),
    (
        &[GroupBy::ResourceUuid],
        &[
            "main sandbox box res_1 - 5 -",
            "main volume disk - - 0 -",
            "other sandbox box res_2 - 5 -",
        ],
    ),
    (
        &[GroupBy::BillingDimension],
        &["- sandbox - - sandbox_compute_runtime_gbs 10 20", "- volume - - volume_storage_gbs 0 5"],
    ),
    (
        &[GroupBy::BillingDimension, GroupBy::Workspace],
        &[
            "main sandbox - - sandbox_compute_runtime_gbs 5 10",
            "main volume - - volume_storage_gbs 0 5",
            "other sandbox - - sandbox_compute_runtime_gbs 5 10",
        ],
    ),
];

async fn an_entry_has_what_the_interface_says(place: Place) {
    small_town(&place).await;
    for (group_by, expect) in ENTRIES {
        let question = question(group_by);
        let wire = ask(&place, &question).await.wire(&question, None);
        let shown = |entry: &types::wire::AccountMetricsDataEntry| {
            let text = |member: &Option<String>| member.clone().unwrap_or("-".into());
            let usage = entry.summary.usage.map_or("-".into(), |usage| usage.to_string());
            let members = [
                &entry.workspace,
                &entry.resource_type,
                &entry.resource_name,
                &entry.resource_uuid,
                &entry.billing_dimension,
            ];
            format!("{} {} {usage}", members.map(text).join(" "), entry.summary.cost)
        };
        assert_eq!(wire.data.iter().map(shown).collect::<Vec<_>>(), *expect, "{group_by:?}");
        let told = group_by.contains(&GroupBy::BillingDimension);
        assert_eq!(wire.summary.total_usage, told.then_some(25.0));
        assert_eq!(wire.summary.total_cost, 10.0);
        let total: f64 = wire.data.iter().map(|entry| entry.summary.cost).sum();
        assert_eq!(total, wire.summary.total_cost);
        for entry in &wire.data {
            assert_eq!(entry.timeseries.len(), 2);
            assert!(entry.timeseries.iter().all(|point| point.usage.is_some() == told));
            assert_eq!(
                (entry.timeseries[0].cost, entry.timeseries[1].cost),
                (entry.summary.cost, 0.0)
            );
        }
        assert_eq!((wire.meta.has_more, wire.meta.next_cursor.as_str()), (false, ""));
    }
}

async fn what_runs_is_seen_within_the_second(place: Place) {
    register(&place, "one", owner("main", Dimension::SandboxRuntime, "box", "res_1")).await;
    take_in(&place, vec![fact("one", 0, Change::Started { memory_mb: 1024 })]).await;
    assert_eq!(used(&place).await, 0.0);
    for seconds in [1, 2, 3599, 3600, 7201] {
        place.set(MONDAY + seconds * 1000);
        let now = place.now();
        place.store.write(move |tx| meter::alive(tx, "machine", now, None)).await.unwrap();
        assert_eq!(used(&place).await, seconds as f64);
        meter::roll(&place.store, now).await.unwrap();
        assert_eq!(used(&place).await, seconds as f64);
    }
}

async fn a_dead_machine_costs_nothing_more(place: Place) {
    let stamp = |boot, uptime_ms| Some(Stamp { boot, uptime_ms });
    place.set(MONDAY + 20 * HOUR);
    register(&place, "one", owner("main", Dimension::SandboxRuntime, "box", "res_1")).await;
    let started =
        UsageFact { stamp: stamp(1, 500), ..fact("one", 0, Change::Started { memory_mb: 1024 }) };
    take_in(&place, vec![started]).await;
    place
        .store
        .write(move |tx| meter::alive(tx, "machine", at(MONDAY + 9000), stamp(1, 9500)))
        .await
        .unwrap();
    // The machine is gone. Hours later its next start does not find the instance, and says so.
    meter::roll(&place.store, place.now()).await.unwrap();
    place
        .store
        .write(move |tx| meter::alive(tx, "machine", at(MONDAY + 15 * HOUR), stamp(2, 100)))
        .await
        .unwrap();
    meter::roll(&place.store, place.now()).await.unwrap();
    assert_eq!(used(&place).await, 9.0);
    let stopped = UsageFact { stamp: stamp(2, 150), ..fact("one", 15 * HOUR, Change::Ended) };
    take_in(&place, vec![stopped]).await;
    assert_eq!(used(&place).await, 9.0);
    // A fact that was delayed for very long: the instance had ended even earlier.
    take_in(&place, vec![UsageFact { stamp: stamp(1, 4500), ..fact("one", 4000, Change::Ended) }])
        .await;
    assert_eq!(used(&place).await, 4.0);
}

async fn a_fact_counts_once_and_contradictions_are_told(place: Place) {
    small_town(&place).await;
    let mut again = fact("one", 0, Change::Started { memory_mb: 1024 });
    let taken = take_in(&place, vec![again.clone(), again.clone()]).await;
    assert_eq!((taken.new, taken.duplicates, taken.conflicts.len()), (0, 2, 0));
    again.change = Change::Started { memory_mb: 9999 };
    let fresh = fact("two", 20_000, Change::Alive);
    let future = fact("two", 90 * HOUR, Change::Alive);
    let taken = take_in(&place, vec![again.clone(), fresh, future.clone()]).await;
    assert_eq!((taken.new, taken.conflicts, taken.refused), (1, vec![again.id], vec![future.id]));
    assert_eq!(used(&place).await, 25.0);
}

async fn a_late_fact_is_seen_as_a_correction(place: Place) {
    small_town(&place).await;
    place.set(MONDAY + 80 * HOUR);
    meter::pack(&place.store, place.now()).await.unwrap();
    take_in(&place, vec![fact("one", 4000, Change::Ended)]).await;
    assert_eq!(used(&place).await, 19.0);
    let window = Window { start: at(MONDAY), end: at(MONDAY + HOUR) };
    let corrections =
        place.store.read(move |tx| meter::corrections(tx, &account(), window)).await.unwrap();
    let told: Vec<_> = corrections
        .iter()
        .map(|(class, correction)| (class.dimension, correction.noted_at, correction.amount))
        .collect();
    assert_eq!(told, [(Dimension::SandboxRuntime, place.now(), -6000 * 1024)]);
}

async fn what_is_stored_changes_when_it_is_said_whatever_the_clock_says(place: Place) {
    register(&place, "disk", owner("main", Dimension::VolumeStorage, "disk", "")).await;
    register(&place, "name", owner("main", Dimension::CustomDomainTime, "name", "")).await;
    let say = async |ms: i64, number: u64, change: Change| {
        place.set(MONDAY + ms);
        let subject = if number == 0 { "name" } else { "disk" };
        let fact = UsageFact { number, ..fact(subject, ms, change) };
        place.store.write(move |tx| meter::take_next(tx, fact.clone())).await.unwrap();
    };
    // The clock is set back by two seconds in between, and by three days at the end.
    say(10_000, 1, Change::Stored { bytes: 1 << 30 }).await;
    say(8000, 2, Change::Stored { bytes: 2 << 30 }).await;
    say(20_000, 3, Change::Stored { bytes: 1 << 30 }).await;
    say(19_700, 4, Change::Stored { bytes: 0 }).await;
    say(10_000, 0, Change::Activated).await;
    say(9000, 0, Change::Deactivated).await;
    place.set(MONDAY + 40 * HOUR);
    assert_eq!(used(&place).await, 20.0);
    say(80 * HOUR, 5, Change::Stored { bytes: 1 << 30 }).await;
    say(8 * HOUR, 6, Change::Stored { bytes: 0 }).await;
    place.set(MONDAY + 100 * HOUR);
    let days = Window { start: at(MONDAY), end: at(MONDAY + 96 * HOUR) };
    let all = Question { window: days, ..question(&[GroupBy::BillingDimension]) };
    assert_eq!(ask(&place, &all).await.total.usage.units(), 20.0);
    assert_eq!(meter::verify(&place.store, days).await.unwrap().differences, []);
}

async fn what_was_billed_after_its_end_is_put_in_order(place: Place) {
    place.set(MONDAY + 30 * HOUR);
    let stored = |subject: &str, ms: i64, number: u64, bytes: u64| UsageFact {
        number,
        ..fact(subject, ms, Change::Stored { bytes })
    };
    for subject in ["deleted", "resized", "kept"] {
        register(&place, subject, owner("main", Dimension::VolumeStorage, subject, "")).await;
    }
    let deleted = [stored("deleted", 12_000, 1, 9 << 30), stored("deleted", 11_000, 2, 0)];
    let resized = [
        stored("resized", 12_000, 1, 9 << 30),
        stored("resized", 11_000, 2, 1 << 30),
        stored("kept", 12_000, 1, 1 << 30),
        stored("kept", 13_000, 2, 0),
    ];
    take_in(&place, [&deleted[..], &resized[..]].concat()).await;
    meter::roll(&place.store, place.now()).await.unwrap();
    assert!(used(&place).await > 1e6);
    assert_eq!(meter::put_in_order(&place.store).await.unwrap(), 2);
    assert_eq!(used(&place).await, 1.0 + (30 * HOUR - 11_000) as f64 / 1000.0);
    assert_eq!(meter::put_in_order(&place.store).await.unwrap(), 0);
    let window = question(&[]).window;
    assert_eq!(meter::verify(&place.store, window).await.unwrap().differences, []);
}

/// A machine may start with a calendar that is days ahead, until somebody sets it.
async fn what_was_billed_ahead_of_time_is_taken_back(place: Place) {
    register(&place, "disk", owner("main", Dimension::VolumeStorage, "disk", "")).await;
    take_in(&place, vec![fact("disk", 0, Change::Stored { bytes: 1 << 30 })]).await;
    let days = Window { start: at(MONDAY), end: at(MONDAY + 96 * HOUR) };
    let all = Question { window: days, ..question(&[GroupBy::BillingDimension]) };
    let keep_up = async |hours: i64| {
        place.set(MONDAY + hours * HOUR);
        meter::roll(&place.store, place.now()).await.unwrap();
        meter::pack(&place.store, place.now()).await.unwrap();
        ask(&place, &all).await.total.usage.units()
    };
    assert_eq!(keep_up(480).await, 96.0 * 3600.0);
    for hours in [1, 2, 50] {
        assert_eq!(keep_up(hours).await, (hours * 3600) as f64);
        assert_eq!(meter::verify(&place.store, days).await.unwrap().differences, []);
    }
}

async fn types_are_told_that_were_used(place: Place) {
    small_town(&place).await;
    let types = async |from: i64, to: i64| {
        let (window, now) =
            (Window { start: at(MONDAY + from), end: at(MONDAY + to) }, place.now());
        place
            .store
            .read(move |tx| meter::resource_types(tx, &account(), window, Filter::default(), now))
            .await
            .unwrap()
    };
    assert_eq!(types(0, HOUR).await, [ResourceType::Sandbox, ResourceType::Volume]);
    assert_eq!(types(5000, 6000).await, [ResourceType::Sandbox]);
    assert_eq!(types(HOUR, 2 * HOUR).await, []);
}

async fn the_first_owner_stands(place: Place) {
    small_town(&place).await;
    register(&place, "one", owner("other", Dimension::SandboxRuntime, "thief", "res_3")).await;
    let spent = async |workspace: Option<&'static str>| {
        let (window, now) = (question(&[]).window, place.now());
        let mut prices = PriceBook::new();
        prices.set(Dimension::SandboxRuntime, at(0), "1".parse().unwrap());
        let ask = move |tx: &mut store::Tx<'_>| {
            meter::spent(tx, &account(), workspace, window, &prices, now)
        };
        place
            .store
            .read(ask)
            .await
            .map(meter::Money::dollars)
            .map_err(|error: Error| error.to_string())
    };
    assert_eq!(spent(Some("other")).await, Ok(10.0));
    assert_eq!(spent(None).await, Ok(20.0));
}

async fn facts_that_belong_to_nobody_are_kept_for_a_day(place: Place) {
    small_town(&place).await;
    assert_eq!(used(&place).await, 25.0);
    let on = |subject: &str| {
        let started = fact(subject, 0, Change::Started { memory_mb: 1024 });
        vec![started, fact(subject, 10_000, Change::Ended)]
    };
    for subject in ["late", "nobody", "nobody-2"] {
        take_in(&place, on(subject)).await;
    }
    let kept = async || {
        let lives = |tx: &mut store::Tx<'_>| store::usage::lives_after(tx, "", 100);
        let lives = place.store.read(lives).await.unwrap();
        lives.into_iter().map(|life| life.subject).collect::<Vec<_>>()
    };
    let remove = async || meter::remove_unowned(&place.store, place.now()).await.unwrap();
    place.set(MONDAY + (30 + 23) * HOUR);
    assert_eq!(remove().await, 0);
    register(&place, "late", owner("main", Dimension::SandboxRuntime, "late", "res_3")).await;
    assert_eq!(used(&place).await, 35.0, "an owner may come later than the facts");
    place.set(MONDAY + (30 + 25) * HOUR);
    assert_eq!((remove().await, remove().await), (2, 0));
    assert_eq!(kept().await, ["disk", "late", "one", "two"]);
    let verified = meter::verify(&place.store, question(&[]).window).await.unwrap();
    assert_eq!((verified.differ, used(&place).await), (0, 35.0));
    // Nothing is left of it, so that all of it may come again.
    register(&place, "nobody", owner("main", Dimension::SandboxRuntime, "again", "res_4")).await;
    assert_eq!(used(&place).await, 35.0);
    assert_eq!(take_in(&place, on("nobody")).await.new, 2);
    assert_eq!(used(&place).await, 45.0);
}
