//! Firings of schedules: which lists they are in, and what is counted of them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, object, on_both};
use store::firings::{self, Counts, Firing, Of, Outcome, Query, Submission};
use store::resources::{self, Order, position};
use store::{Error, Store, Tx};
use types::ids::{ResourceId, WorkspaceId};
use types::time::MINUTE_MS;
use types::{KindName, Timestamp};

on_both!(
    a_workspace_lists_its_own_firings_once_each,
    filters_select_firings,
    counts_outlive_the_firings_that_a_schedule_keeps,
    firings_that_a_stop_interrupted_count_as_refused,
    schedules_of_all_sandboxes_are_in_one_order,
);

const NOW: i64 = 1_800_000_000_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(NOW + ms)
}

async fn write<T: Send + 'static>(
    store: &Store,
    work: impl FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
) -> T {
    store.write(work).await.unwrap()
}

/// A sandbox with firings, as far as a list knows it.
#[derive(Clone)]
struct Sandbox {
    workspace: WorkspaceId,
    id: ResourceId,
    name: String,
}

impl Sandbox {
    async fn make(place: &Place, store: &Store, workspace: &str, name: &str) -> Self {
        let workspace = WorkspaceId::known(workspace);
        let mut row = object(&place.world(), KindName::Sandbox, "", name);
        row.workspace = workspace.clone();
        let id = row.id.clone();
        write(store, move |tx| resources::insert(tx, row.clone()).map(drop)).await;
        Self { workspace, id, name: name.to_owned() }
    }

    async fn fire(&self, store: &Store, id: &str, schedule: &str, ms: i64, keep: i64) {
        let firing = Firing {
            id: id.to_owned(),
            sandbox: self.name.clone(),
            schedule: schedule.to_owned(),
            created_at: at(ms),
            timeout_s: Some(600),
            outcome: None,
        };
        let of = self.clone();
        let begin = move |tx: &mut Tx<'_>| {
            firings::begin(tx, (&of.workspace, &of.id), "here", &firing, keep)
        };
        write(store, begin).await;
    }
}

async fn end(store: &Store, id: &str, status_code: i64) {
    let (id, executed_at) = (id.to_owned(), at(status_code));
    let process_name = Some(format!("Process-{id}"));
    let outcome = Outcome { executed_at, process_name, status_code, error: None };
    write(store, move |tx| firings::end(tx, &id, &outcome)).await;
}

async fn ids(store: &Store, workspace: &'static str, query: Query<'static>) -> Vec<String> {
    let work = move |tx: &mut Tx<'_>| {
        let workspace = WorkspaceId::known(workspace);
        let query = Query { of: Of::Workspace(&workspace), ..query.clone() };
        let found = firings::list(tx, &query)?;
        assert_eq!(firings::count(tx, &Query { after: None, ..query })?, found.len() as i64);
        Ok::<_, Error>(found.into_iter().map(|firing| firing.id).collect())
    };
    store.read(work).await.unwrap()
}

fn all() -> Query<'static> {
    static NOBODY: std::sync::LazyLock<WorkspaceId> =
        std::sync::LazyLock::new(|| WorkspaceId::known("nobody"));
    Query::new(Of::Workspace(&NOBODY))
}

async fn a_workspace_lists_its_own_firings_once_each(place: Place) {
    let store = place.open().await;
    let (one, two) = (
        Sandbox::make(&place, &store, "mine", "one").await,
        Sandbox::make(&place, &store, "mine", "two").await,
    );
    let other = Sandbox::make(&place, &store, "theirs", "one").await;
    for (firing, of, ms) in
        [("a", &one, 1), ("b", &two, 2), ("c", &other, 3), ("e", &one, 4), ("d", &two, 4)]
    {
        of.fire(&store, firing, "nightly", ms, 100).await;
    }
    assert_eq!(ids(&store, "mine", all()).await, ["e", "d", "b", "a"]);
    let upwards = Query { oldest_first: true, ..all() };
    assert_eq!(ids(&store, "mine", upwards).await, ["a", "b", "d", "e"]);
    assert_eq!(ids(&store, "theirs", all()).await, ["c"]);
    for oldest_first in [false, true] {
        let walk = move |tx: &mut Tx<'_>| {
            let workspace = WorkspaceId::known("mine");
            let (mut seen, mut after) = (Vec::new(), None::<(Timestamp, String)>);
            loop {
                let position = after.as_ref().map(|(time, id)| (*time, id.as_str()));
                let query = Query {
                    oldest_first,
                    after: position,
                    limit: 1,
                    ..Query::new(Of::Workspace(&workspace))
                };
                let Some(firing) = firings::list(tx, &query)?.pop() else { break };
                after = Some((firing.created_at, firing.id.clone()));
                seen.push((firing.id, firing.sandbox));
            }
            Ok::<_, Error>(seen)
        };
        let seen = store.read(walk).await.unwrap();
        let mut expected = [("e", "one"), ("d", "two"), ("b", "two"), ("a", "one")]
            .map(|(id, name)| (id.to_owned(), name.to_owned()));
        if oldest_first {
            expected.reverse();
        }
        assert_eq!(seen, expected);
    }
    // What a sandbox did is gone with it.
    let delete = move |tx: &mut Tx<'_>| {
        let row = resources::find(tx, &one.workspace, KindName::Sandbox, "", "one")?;
        resources::delete(tx, &row.unwrap(), "usr_test")
    };
    write(&store, delete).await;
    assert_eq!(ids(&store, "mine", all()).await, ["d", "b"]);
}

async fn filters_select_firings(place: Place) {
    let store = place.open().await;
    let one = Sandbox::make(&place, &store, "mine", "one").await;
    for (id, schedule, ms) in
        [("a", "nightly", 1), ("b", "Hourly_1", 2), ("c", "nightly", 3), ("d", "x", 4)]
    {
        one.fire(&store, id, schedule, ms, 100).await;
    }
    for (id, status) in [("a", 200), ("b", 500), ("c", 0)] {
        end(&store, id, status).await;
    }
    let cases: [(Query<'static>, &[&str]); 9] = [
        (Query { schedule: Some("nightly"), ..all() }, &["c", "a"]),
        (Query { schedule: Some("night"), ..all() }, &[]),
        (Query { submission: Some(Submission::Accepted), ..all() }, &["a"]),
        (Query { submission: Some(Submission::Refused), ..all() }, &["c", "b"]),
        (Query { text: Some("HOURLY_"), ..all() }, &["b"]),
        (Query { text: Some("process-c"), ..all() }, &["c"]),
        (Query { since: Some(at(2)), ..all() }, &["d", "c", "b"]),
        (Query { until: Some(at(2)), ..all() }, &["b", "a"]),
        (Query { since: Some(at(2)), until: Some(at(3)), ..all() }, &["c", "b"]),
    ];
    for (query, expected) in cases {
        assert_eq!(ids(&store, "mine", query.clone()).await, expected, "{query:?}");
    }
}

async fn counts(store: &Store, workspace: &'static str, since: i64, until: i64) -> Counts {
    let work = move |tx: &mut Tx<'_>| {
        firings::counts(tx, &WorkspaceId::known(workspace), at(since), at(until))
    };
    store.read(work).await.unwrap()
}

async fn counts_outlive_the_firings_that_a_schedule_keeps(place: Place) {
    let store = place.open().await;
    let one = Sandbox::make(&place, &store, "mine", "one").await;
    let other = Sandbox::make(&place, &store, "theirs", "one").await;
    for number in 0..5 {
        one.fire(&store, &format!("firing-{number}"), "often", number * MINUTE_MS, 1).await;
        end(&store, &format!("firing-{number}"), if number == 3 { 503 } else { 200 }).await;
        // An outcome that comes twice counts once.
        end(&store, &format!("firing-{number}"), 200).await;
    }
    one.fire(&store, "open", "other", 0, 1).await;
    other.fire(&store, "foreign", "often", 0, 1).await;
    assert_eq!(ids(&store, "mine", all()).await, ["firing-4", "open"]);
    let whole = counts(&store, "mine", 0, 5 * MINUTE_MS).await;
    assert_eq!(whole, Counts { begun: 6, accepted: 4, refused: 1 });
    let part = counts(&store, "mine", MINUTE_MS, 4 * MINUTE_MS).await;
    assert_eq!(part, Counts { begun: 3, accepted: 2, refused: 1 });
    let none = counts(&store, "mine", 5 * MINUTE_MS, 9 * MINUTE_MS).await;
    assert_eq!(none, Counts::default());
    place.pass_ms(9 * 24 * 60 * MINUTE_MS);
    let tidied = store.tidy(place.world().now()).await.unwrap();
    assert!(tidied.schedule_counts >= 5, "{tidied:?}");
    assert_eq!(counts(&store, "mine", 0, 5 * MINUTE_MS).await, Counts::default());
}

async fn firings_that_a_stop_interrupted_count_as_refused(place: Place) {
    let store = place.open().await;
    let one = Sandbox::make(&place, &store, "mine", "one").await;
    one.fire(&store, "done", "nightly", 0, 100).await;
    end(&store, "done", 200).await;
    one.fire(&store, "cut", "nightly", 1, 100).await;
    write(&store, |tx| firings::close(tx, "elsewhere", at(9), "why")).await;
    assert_eq!(
        counts(&store, "mine", 0, MINUTE_MS).await,
        Counts { begun: 2, accepted: 1, refused: 0 }
    );
    for _ in 0..2 {
        write(&store, |tx| firings::close(tx, "here", at(9), "why")).await;
    }
    assert_eq!(
        counts(&store, "mine", 0, MINUTE_MS).await,
        Counts { begun: 2, accepted: 1, refused: 1 }
    );
    let refused = Query { submission: Some(Submission::Refused), ..all() };
    assert_eq!(ids(&store, "mine", refused).await, ["cut"]);
}

async fn schedules_of_all_sandboxes_are_in_one_order(place: Place) {
    let store = place.open().await;
    for (parent, name, kind) in
        [("one", "a", "cron"), ("two", "b", "at"), ("one", "c", "cron"), ("two", "a", "cron")]
    {
        let mut row = object(&place.world(), KindName::Schedule, parent, name);
        row.wish = format!(r#"{{"input":{{"command":"\"type\":\"at\""}},"type":"{kind}"}}"#);
        write(&store, move |tx| resources::insert(tx, row.clone()).map(drop)).await;
    }
    let mut other = object(&place.world(), KindName::Schedule, "one", "d");
    other.workspace = WorkspaceId::known("theirs");
    write(&store, move |tx| resources::insert(tx, other.clone()).map(drop)).await;
    for (wish, expected) in [
        (None, vec!["two/a", "one/c", "two/b", "one/a"]),
        (Some(r#""type":"cron""#), vec!["two/a", "one/c", "one/a"]),
        (Some(r#""type":"at""#), vec!["two/b"]),
    ] {
        let walk = move |tx: &mut Tx<'_>| {
            let workspace = crate::common::workspace();
            let mut query = resources::Query {
                wish,
                limit: 1,
                ..resources::Query::new(&workspace, KindName::Schedule, None)
            };
            let (mut seen, total) = (Vec::new(), resources::total(tx, &query)?);
            while let Some(row) = resources::list(tx, &query)?.pop() {
                query.after = Some(position(&row, Order::CreatedDesc));
                seen.push(row.path());
            }
            assert_eq!(total, seen.len() as i64);
            Ok::<_, Error>(seen)
        };
        assert_eq!(store.read(walk).await.unwrap(), expected);
    }
}
