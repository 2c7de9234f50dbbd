//! Limits of models and what servers hold of them; usage of models by hour.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, on_both};
use store::models::{self, Question};
use store::{Error, Store};
use types::Timestamp;
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::model::ModelType;
use types::model_books::{Batch, LimitAccount, SUM_MAX, Standing, UsageKey, UsageSum, Want};
use types::models::LimitMeasure;
use types::wire::ModelUsageBy;

on_both!(
    grants_never_pass_the_amount,
    a_batch_counts_once,
    who_needs_more_is_seen_by_those_who_hold,
    usage_is_added_and_grouped,
    windows_and_hours_are_forgotten,
    sums_stop_growing,
    many_at_once_never_pass_the_amount,
);

fn account(limit: &str) -> LimitAccount {
    LimitAccount {
        limit: limit.into(),
        measure: LimitMeasure::Cost,
        subject: "model:m".into(),
        starts_at: Timestamp::from_ms(1_800_000_000_000),
        ends_at: Timestamp::from_ms(1_800_003_600_000),
    }
}

fn batch(ledger: &str, number: i64) -> Batch {
    Batch {
        ledger: ledger.into(),
        number,
        position: number * 10,
        used: Vec::new(),
        given_back: Vec::new(),
        wants: Vec::new(),
        usage: Vec::new(),
    }
}

fn want(limit: &str, hold: i64) -> Want {
    Want { account: account(limit), amount: 100, hold }
}

async fn keep(store: &Store, batch: Batch) -> Vec<Standing> {
    store.write(move |tx| models::keep(tx, &batch)).await.unwrap()
}

fn said(standings: &[Standing]) -> Vec<(i64, i64, i64)> {
    standings.iter().map(|standing| (standing.used, standing.held, standing.elsewhere)).collect()
}

async fn grants_never_pass_the_amount(place: Place) {
    let store = place.open().await;
    let got = keep(&store, Batch { wants: vec![want("l", 60)], ..batch("a", 1) }).await;
    assert_eq!(said(&got), [(0, 60, 0)]);
    let got = keep(&store, Batch { wants: vec![want("l", 60)], ..batch("b", 1) }).await;
    assert_eq!(said(&got), [(0, 40, 60)]);
    // Usage is deducted from what is held, and what is already held is not granted again.
    let used = vec![(account("l"), 50)];
    let got = keep(&store, Batch { used, wants: vec![want("l", 10)], ..batch("a", 2) }).await;
    assert_eq!(said(&got), [(50, 10, 40)]);
    let given_back = vec![(account("l"), 30)];
    let got = keep(&store, Batch { given_back, ..batch("b", 2) }).await;
    assert_eq!(said(&got), []);
    let got = keep(&store, Batch { wants: vec![want("l", 1000)], ..batch("a", 3) }).await;
    assert_eq!(said(&got), [(50, 40, 10)]);
    // A lowered amount takes nothing from those who hold it, and grants nothing more.
    let lowered = Want { amount: 20, ..want("l", 1000) };
    let got = keep(&store, Batch { wants: vec![lowered], ..batch("b", 3) }).await;
    assert_eq!(said(&got), [(50, 10, 40)]);
}

async fn a_batch_counts_once(place: Place) {
    let store = place.open().await;
    keep(&store, Batch { wants: vec![want("l", 50)], ..batch("a", 1) }).await;
    let second = Batch {
        used: vec![(account("l"), 30)],
        wants: vec![want("l", 40)],
        usage: vec![(usage_key(5, "u"), usage_sum(1))],
        ..batch("a", 2)
    };
    for _ in 0..3 {
        assert_eq!(said(&keep(&store, second.clone()).await), [(30, 40, 0)]);
    }
    let begun = store.write(|tx| models::begin(tx, "a")).await.unwrap();
    assert_eq!((begun.number, begun.position), (2, 20));
    assert_eq!(begun.held, [(account("l"), 40)]);
    let rows = store.read(|tx| models::usage(tx, &question(vec![], None))).await.unwrap();
    assert_eq!(rows[0].sum, usage_sum(1));
    // A batch without a position does not set the position back.
    keep(&store, Batch { position: 0, ..batch("a", 3) }).await;
    let begun = store.write(|tx| models::begin(tx, "a")).await.unwrap();
    assert_eq!((begun.number, begun.position), (3, 20));
}

async fn who_needs_more_is_seen_by_those_who_hold(place: Place) {
    let store = place.open().await;
    let asked = |ledger: &'static str| {
        let store = store.clone();
        async move { store.read(move |tx| models::asked_for(tx, ledger)).await.unwrap() }
    };
    keep(&store, Batch { wants: vec![want("l", 90), want("k", 100)], ..batch("a", 1) }).await;
    assert_eq!(asked("a").await, []);
    keep(&store, Batch { wants: vec![want("l", 20)], ..batch("b", 1) }).await;
    assert_eq!(asked("a").await, [(account("l"), "b".to_owned())]);
    assert_eq!(asked("b").await, []);
    keep(&store, Batch { wants: vec![want("l", 5)], ..batch("b", 2) }).await;
    assert_eq!(asked("a").await, [], "it got what it needs");
    keep(&store, Batch { wants: vec![want("l", 20)], ..batch("b", 3) }).await;
    assert_eq!(asked("a").await.len(), 1);
    place.pass_ms(10_000);
    assert_eq!(asked("a").await, []);
    let holds = |ledger: &'static str| {
        let store = store.clone();
        async move { store.write(move |tx| models::begin(tx, ledger)).await.unwrap().held }
    };
    assert_eq!(holds("a").await.len(), 2);
    // What was held of a window is gone when the window ends.
    keep(&store, Batch { wants: vec![want("l", 20)], ..batch("b", 4) }).await;
    place.pass_ms(3_600_000);
    assert_eq!((asked("a").await, holds("a").await), (vec![], vec![]));
}

fn usage_key(hour: i64, user: &str) -> UsageKey {
    UsageKey {
        hour,
        workspace: WorkspaceId::known("wsp_test"),
        model: "m".into(),
        model_id: ResourceId::known("res_m"),
        key: "key".into(),
        end_user: Some(user.to_owned()).filter(|user| !user.is_empty()),
        tag: None,
        provider: ModelType::AzureOpenaiService,
        provider_model: "gpt".into(),
    }
}

const fn usage_sum(times: i64) -> UsageSum {
    UsageSum {
        calls: times,
        failed: 0,
        estimated: 2 * times,
        input: 3 * times,
        output: 4 * times,
        cached: 5 * times,
        cache_written: 6 * times,
        reasoning: 7 * times,
        cost: 8 * times,
    }
}

fn question(group_by: Vec<ModelUsageBy>, step: Option<i64>) -> Question {
    Question {
        workspace: WorkspaceId::known("wsp_test"),
        model: None,
        first: 0,
        end: 1000,
        group_by,
        step,
        rows_max: 100,
    }
}

async fn usage_is_added_and_grouped(place: Place) {
    let store = place.open().await;
    let usage = |hours: &[(i64, &str)]| -> Vec<_> {
        hours.iter().map(|(hour, user)| (usage_key(*hour, user), usage_sum(1))).collect()
    };
    let all = usage(&[(1, "u"), (2, "u"), (25, "v"), (25, "")]);
    keep(&store, Batch { usage: all, ..batch("a", 1) }).await;
    keep(&store, Batch { usage: usage(&[(2, "u"), (1001, "u")]), ..batch("b", 1) }).await;
    let ask = async |question: Question| -> Vec<(i64, Vec<String>, i64)> {
        let rows = store.read(move |tx| models::usage(tx, &question)).await.unwrap();
        rows.into_iter()
            .map(|row| {
                assert_eq!(row.sum, usage_sum(row.sum.calls));
                (row.hour, row.group, row.sum.calls)
            })
            .collect()
    };
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(ask(question(vec![], None)).await, [(0, vec![], 5)]);
    assert_eq!(
        ask(question(vec![ModelUsageBy::EndUser, ModelUsageBy::Provider], Some(24))).await,
        [
            (0, named(&["u", "azure-openai-service"]), 3),
            (24, named(&["", "azure-openai-service"]), 1),
            (24, named(&["v", "azure-openai-service"]), 1),
        ]
    );
    let hourly = Question { first: 2, ..question(vec![ModelUsageBy::Model], Some(1)) };
    assert_eq!(ask(hourly).await, [(2, named(&["m"]), 2), (25, named(&["m"]), 2)]);
    let other = Question { model: Some("other".into()), ..question(vec![], None) };
    assert_eq!(ask(other).await, []);
    let stranger = WorkspaceId::known("wsp_other");
    assert_eq!(ask(Question { workspace: stranger, ..question(vec![], None) }).await, []);
    assert_eq!(ask(Question { rows_max: 1, ..question(vec![], Some(1)) }).await.len(), 1);
}

async fn windows_and_hours_are_forgotten(place: Place) {
    let store = place.open().await;
    let usage = vec![(usage_key(5, "u"), usage_sum(1))];
    let wants = vec![want("l", 10), want("k", 10)];
    keep(&store, Batch { wants, usage, ..batch("a", 1) }).await;
    let now = account("l").ends_at;
    let limits = |before: Timestamp| {
        let store = store.clone();
        async move { store.write(move |tx| models::trim_limits(tx, before, 1)).await.unwrap() }
    };
    assert_eq!(limits(now).await, 0);
    assert_eq!(limits(now.plus_ms(1)).await, 2);
    assert_eq!(limits(now.plus_ms(1)).await, 2);
    assert_eq!(limits(now.plus_ms(1)).await, 0);
    let later = now.plus_s(3600);
    let forgotten = store.write(move |tx| models::trim_usage(tx, later, 10)).await.unwrap();
    assert_eq!(forgotten, 2, "an hour and a ledger");
    assert_eq!(store.write(|tx| models::begin(tx, "a")).await.unwrap().number, 0);
    assert!(store.tidy(later).await.is_ok());
}

async fn sums_stop_growing(place: Place) {
    let store = place.open().await;
    for number in 1..8 {
        let used = vec![(account("l"), i64::MAX)];
        let most = UsageSum { cost: SUM_MAX, ..usage_sum(1) };
        let usage = vec![(usage_key(5, "u"), most)];
        keep(&store, Batch { used, usage, ..batch("a", number) }).await;
    }
    let got = keep(&store, Batch { wants: vec![want("l", 1)], ..batch("a", 9) }).await;
    assert!(got[0].used > SUM_MAX && got[0].held == 0);
    let rows = store.read(|tx| models::usage(tx, &question(vec![], None))).await.unwrap();
    assert!(rows[0].sum.cost > SUM_MAX);
}

async fn many_at_once_never_pass_the_amount(place: Place) {
    let store = place.open().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20 {
        let store = store.clone();
        tasks.spawn(async move {
            // Half of them name the two accounts in the opposite order.
            let mut wants = vec![want("l", 7), want("k", 9)];
            if number % 2 == 0 {
                wants.reverse();
            }
            let batch = Batch { wants, ..batch(&format!("ledger-{number}"), 1) };
            Ok::<_, Error>(store.write(move |tx| models::keep(tx, &batch)).await.unwrap())
        });
    }
    let got: Vec<Standing> = tasks.join_all().await.into_iter().flat_map(Result::unwrap).collect();
    for (limit, amount) in [("l", 100), ("k", 100)] {
        let of = got.iter().filter(|standing| standing.account.limit == limit);
        assert_eq!(of.map(|standing| standing.held).sum::<i64>(), amount);
    }
}
