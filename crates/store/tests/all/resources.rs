//! Objects: versions, places, lists and counts, the same on both databases.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::{Place, agent, object, on_both, workspace};
use proptest::prelude::*;
use std::collections::BTreeSet;
use store::resources::{self, Order, Position, Query, Stored};
use store::{Error, Store};
use types::KindName;
use types::ids::WorkspaceId;
use types::parts::Status;

on_both!(
    an_object_reads_back_as_written,
    a_taken_name_is_refused_and_nothing_is_left,
    of_two_writers_of_one_version_one_wins,
    what_lives_below_goes_with_its_parent,
    lists_keep_their_order,
    pages_show_each_object_once_while_others_come,
    lists_end_where_they_have_enough_bytes,
    filters_find_what_they_say,
    totals_follow_every_change_of_status,
    a_hidden_snapshot_is_counted_apart,
    a_deleted_workspace_leaves_nothing,
);

async fn insert(store: &Store, stored: Stored) -> Result<Stored, Error> {
    store.write(move |tx| resources::insert(tx, stored.clone())).await
}

async fn find(
    store: &Store,
    kind: KindName,
    parent: &'static str,
    name: &'static str,
) -> Option<Stored> {
    store.read(move |tx| resources::find(tx, &workspace(), kind, parent, name)).await.unwrap()
}

async fn names(
    store: &Store,
    change: impl Fn(&mut Query<'_>) + Send + 'static,
) -> (Vec<String>, i64) {
    let work = move |tx: &mut store::Tx<'_>| {
        let workspace = workspace();
        let mut query = Query::new(&workspace, KindName::Agent, Some(""));
        change(&mut query);
        let names = resources::list(tx, &query)?.into_iter().map(|stored| stored.name).collect();
        Ok::<_, Error>((names, resources::total(tx, &query)?))
    };
    store.read(work).await.unwrap()
}

async fn an_object_reads_back_as_written(place: Place) {
    let store = place.open().await;
    let stored = Stored {
        external_id: Some("theirs".into()),
        status: Some(Status::Deployed),
        seal_key: Some("abc".into()),
        wish: r#"{"a":"ü\u0000"}"#.into(),
        ..agent(store.world(), "a")
    };
    let made = insert(&store, stored.clone()).await.unwrap();
    let found = find(&store, KindName::Agent, "", "a").await.unwrap();
    assert_eq!(format!("{found:?}"), format!("{made:?}"));
    assert_eq!(found.version, 1);
    let by_id = store.read(move |tx| resources::find_by_id(tx, &found.id)).await.unwrap();
    assert_eq!(by_id.unwrap().name, "a");
    let stranger = |tx: &mut store::Tx<'_>| {
        resources::find(tx, &WorkspaceId::known("other"), KindName::Agent, "", "a")
    };
    assert!(store.read(stranger).await.unwrap().is_none());
}

async fn lists_end_where_they_have_enough_bytes(place: Place) {
    const BYTES: usize = 100_000;
    let store = place.open().await;
    for name in ["a", "b", "c", "d"] {
        let wish = format!("{:?}", "x".repeat(BYTES));
        insert(&store, Stored { wish, ..agent(store.world(), name) }).await.unwrap();
    }
    for (bytes_max, from_end, expected, is_cut) in [
        (5 * BYTES, false, "abcd", false),
        (3 * BYTES, false, "ab", true),
        (3 * BYTES, true, "cd", true),
        (BYTES, false, "a", true),
        (0, true, "d", true),
    ] {
        let work = move |tx: &mut store::Tx<'_>| {
            let (workspace, order) = (workspace(), Order::NameAsc);
            let all = Query::new(&workspace, KindName::Agent, Some(""));
            let query = Query { order, from_end, ..all };
            let found = resources::list_within(tx, &query, bytes_max)?;
            // The transaction goes on after rows that were not read.
            assert_eq!(resources::list(tx, &query)?.len(), 4);
            Ok::<_, Error>(found)
        };
        let found = store.read(work).await.unwrap();
        let names: String = found.rows.into_iter().map(|row| row.name).collect();
        assert_eq!((names.as_str(), found.is_cut), (expected, is_cut), "{bytes_max}");
    }
}

async fn a_taken_name_is_refused_and_nothing_is_left(place: Place) {
    let store = place.open().await;
    insert(&store, agent(store.world(), "a")).await.unwrap();
    let (fresh, taken) = (agent(store.world(), "b"), agent(store.world(), "a"));
    let both = move |tx: &mut store::Tx<'_>| {
        resources::insert(tx, fresh.clone())?;
        resources::insert(tx, taken.clone())
    };
    assert!(
        matches!(store.write(both).await, Err(Error::Duplicate { table }) if table == "resources")
    );
    assert!(find(&store, KindName::Agent, "", "b").await.is_none());
    assert_eq!(names(&store, |_| {}).await, (vec!["a".to_owned()], 1));
}

async fn of_two_writers_of_one_version_one_wins(place: Place) {
    let store = place.open().await;
    let first = insert(&store, agent(store.world(), "a")).await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..16 {
        let (store, mut mine) = (store.clone(), first.clone());
        mine.wish = number.to_string();
        writers
            .spawn(async move { store.write(move |tx| resources::update(tx, mine.clone())).await });
    }
    let results = writers.join_all().await;
    let won: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    assert_eq!(won.len(), 1);
    assert!(
        results.iter().all(|result| matches!(result, Ok(_) | Err(Error::Stale { .. }))),
        "{results:?}"
    );
    let found = find(&store, KindName::Agent, "", "a").await.unwrap();
    assert_eq!((found.version, &found.wish), (2, &won[0].wish));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_changed_while_its_parent_goes_goes_too() {
    let url = testing::postgres();
    let store = Place::postgres_at(url.clone()).open().await;
    let world = store.world().clone();
    let parent = insert(&store, object(&world, KindName::Sandbox, "", "s")).await.unwrap();
    let child = insert(&store, object(&world, KindName::Preview, "s", "p")).await.unwrap();
    let (deletion, to_delete) = tokio::sync::oneshot::channel();
    let (mut deletion, deleter) = (Some(deletion), store.clone());
    let deleted = tokio::spawn(async move {
        let parent = to_delete.await.unwrap();
        let work = move |tx: &mut store::Tx<'_>| resources::delete(tx, &parent, "usr_x");
        deleter.write(work).await
    });
    let change = move |tx: &mut store::Tx<'_>| {
        resources::update(tx, child.clone())?;
        if let Some(deletion) = deletion.take() {
            deletion.send(parent.clone()).unwrap();
        }
        // The deletion has come as far as it can before this change is over.
        Place::postgres_at(url.clone()).sql(
            "DO $$ BEGIN
                 WHILE NOT EXISTS (SELECT 1 FROM pg_locks
                     JOIN pg_stat_activity USING (pid)
                     WHERE NOT granted AND datname = current_database())
                 LOOP PERFORM pg_sleep(0.01); PERFORM pg_stat_clear_snapshot(); END LOOP; END $$",
        );
        Ok::<_, Error>(())
    };
    store.write(change).await.unwrap();
    deleted.await.unwrap().unwrap();
    assert!(find(&store, KindName::Preview, "s", "p").await.is_none());
}

async fn what_lives_below_goes_with_its_parent(place: Place) {
    let store = place.open().await;
    let world = store.world().clone();
    for (kind, parent, name) in [
        (KindName::Sandbox, "", "s"),
        (KindName::Preview, "s", "p"),
        (KindName::PreviewToken, "s/p", "t"),
        (KindName::Schedule, "s", "c"),
        (KindName::Sandbox, "", "s0"),
        (KindName::Preview, "s0", "p"),
        (KindName::PreviewToken, "s0/p", "t"),
        (KindName::Agent, "", "s"),
    ] {
        insert(&store, object(&world, kind, parent, name)).await.unwrap();
    }
    let sandbox = find(&store, KindName::Sandbox, "", "s").await.unwrap();
    let stale = Stored { version: 7, ..sandbox.clone() };
    let refused = store.write(move |tx| resources::delete(tx, &stale, "usr_x")).await;
    assert!(matches!(refused, Err(Error::Stale { .. })));
    store.write(move |tx| resources::delete(tx, &sandbox, "usr_x")).await.unwrap();
    let left = store.read(|tx| resources::counts(tx, &workspace())).await.unwrap();
    let one = |kind| (kind, 1);
    assert_eq!(
        left,
        [KindName::Agent, KindName::Preview, KindName::PreviewToken, KindName::Sandbox].map(one)
    );
    assert!(find(&store, KindName::PreviewToken, "s/p", "t").await.is_none());
    assert!(find(&store, KindName::PreviewToken, "s0/p", "t").await.is_some());
    let mut follower = store.follow(0, std::time::Duration::from_millis(20));
    let mut deleted = 0;
    while deleted < 4 {
        let changes = follower.next().await.unwrap();
        deleted += changes.iter().filter(|change| change.act == store::feed::Act::Deleted).count();
    }
    assert_eq!(deleted, 4);
}

async fn lists_keep_their_order(place: Place) {
    let store = place.open().await;
    for name in ["b", "a", "Z", "é", "a-b", "ab"] {
        insert(&store, agent(store.world(), name)).await.unwrap();
    }
    let made = ["b", "a", "Z", "é", "a-b", "ab"];
    let named = ["Z", "a", "a-b", "ab", "b", "é"];
    let backwards = |names: [&'static str; 6]| names.into_iter().rev().collect::<Vec<_>>();
    for (order, expected) in [
        (Order::CreatedAsc, made.to_vec()),
        (Order::CreatedDesc, backwards(made)),
        (Order::NameAsc, named.to_vec()),
        (Order::NameDesc, backwards(named)),
    ] {
        assert_eq!(names(&store, move |query| query.order = order).await.0, expected, "{order:?}");
        let last = move |query: &mut Query<'_>| {
            (query.order, query.from_end, query.limit) = (order, true, 2)
        };
        assert_eq!(names(&store, last).await.0, expected[4..], "the end of {order:?}");
        let anywhere = move |query: &mut Query<'_>| (query.order, query.parent) = (order, None);
        assert_eq!(names(&store, anywhere).await.0, expected, "{order:?} at any place");
    }
}

async fn pages_show_each_object_once_while_others_come(place: Place) {
    let store = place.open().await;
    for order in [Order::CreatedDesc, Order::CreatedAsc, Order::NameAsc, Order::NameDesc] {
        let steady: BTreeSet<_> =
            (0..20).map(|number| format!("{order:?}-{number:02}").to_lowercase()).collect();
        for name in &steady {
            insert(&store, agent(store.world(), name)).await.unwrap();
        }
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let from = after.clone();
            let work = move |tx: &mut store::Tx<'_>| {
                let workspace = workspace();
                let query = Query {
                    order,
                    limit: 3,
                    after: from.clone(),
                    ..Query::new(&workspace, KindName::Agent, Some(""))
                };
                resources::list(tx, &query)
            };
            let page = store.read(work).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(resources::position(last, order).to_string().parse::<Position>().unwrap());
            seen.extend(page.into_iter().map(|stored| stored.name));
            let comes = agent(store.world(), &format!("new-{}", store.world().random_text(12)));
            insert(&store, comes).await.unwrap();
            if seen.len() > 500 {
                panic!("the list of {order:?} has no end");
            }
            if matches!(order, Order::CreatedAsc) && steady.iter().all(|name| seen.contains(name)) {
                break;
            }
        }
        let once: BTreeSet<_> = seen.iter().cloned().collect();
        assert_eq!(once.len(), seen.len(), "{order:?} showed one twice");
        assert!(once.is_superset(&steady), "{order:?} missed one");
    }
}

async fn filters_find_what_they_say(place: Place) {
    let store = place.open().await;
    for (name, search, status, external_id) in [
        ("a", "a 100% sure", Some(Status::Deployed), Some("x")),
        ("b", "b 1000 sure", Some(Status::Failed), None),
        ("c", r"c back\slash", Some(Status::Terminated), Some("x")),
        ("d", "d under_score ü", None, None),
    ] {
        let stored = Stored {
            search: search.into(),
            status,
            external_id: external_id.map(Into::into),
            ..agent(store.world(), name)
        };
        insert(&store, stored).await.unwrap();
    }
    let found = async |change: fn(&mut Query<'_>)| {
        let (mut names, total) = names(&store, change).await;
        assert_eq!(names.len() as i64, total);
        names.sort();
        names.concat()
    };
    assert_eq!(found(|query| query.text = Some("sure")).await, "ab");
    assert_eq!(found(|query| query.text = Some("0%")).await, "a");
    assert_eq!(found(|query| query.text = Some(r"k\s")).await, "c");
    assert_eq!(found(|query| query.text = Some("r_s")).await, "d");
    assert_eq!(found(|query| query.text = Some("_")).await, "d");
    assert_eq!(found(|query| query.text = Some("ü")).await, "d");
    assert_eq!(found(|query| query.text = Some("'; DROP TABLE resources; --")).await, "");
    assert_eq!(found(|query| query.text = Some("nul \0")).await, "");
    assert_eq!(found(|query| query.statuses = &[Status::Failed, Status::Deployed]).await, "ab");
    assert_eq!(found(|query| query.hidden_statuses = &[Status::Terminated]).await, "abd");
    assert_eq!(
        found(|query| (query.hidden_statuses, query.text) = (&[Status::Failed], Some("sure")))
            .await,
        "a"
    );
    assert_eq!(found(|query| query.external_id = Some("x")).await, "ac");
    let newest = |tx: &mut store::Tx<'_>| {
        resources::find_by_external_id(
            tx,
            &workspace(),
            KindName::Agent,
            "x",
            &[Status::Terminated],
        )
    };
    assert_eq!(store.read(newest).await.unwrap().unwrap().name, "a");
}

async fn totals_follow_every_change_of_status(place: Place) {
    let store = place.open().await;
    let made =
        insert(&store, Stored { status: Some(Status::Building), ..agent(store.world(), "a") })
            .await
            .unwrap();
    insert(&store, agent(store.world(), "b")).await.unwrap();
    let building = |query: &mut Query<'_>| query.statuses = &[Status::Building];
    assert_eq!(names(&store, building).await.1, 1);
    let built = Stored { status: Some(Status::Built), ..made };
    let built = store.write(move |tx| resources::update(tx, built.clone())).await.unwrap();
    assert_eq!(names(&store, building).await.1, 0);
    assert_eq!(names(&store, |query| query.hidden_statuses = &[Status::Built]).await.1, 1);
    store.write(move |tx| resources::delete(tx, &built, "usr_test")).await.unwrap();
    assert_eq!(
        store.read(|tx| resources::count(tx, &workspace(), KindName::Agent)).await.unwrap(),
        1
    );
}

async fn a_hidden_snapshot_is_counted_apart(place: Place) {
    let store = place.open().await;
    let snapshot = |name: &str| Stored {
        status: Some(Status::Deployed),
        ..object(store.world(), KindName::Snapshot, "", name)
    };
    let made = insert(&store, snapshot("a")).await.unwrap();
    insert(&store, snapshot("b")).await.unwrap();
    let counted = |tx: &mut store::Tx<'_>| {
        let (workspace, kind) = (workspace(), KindName::Snapshot);
        let one = resources::count(tx, &workspace, kind)?;
        assert_eq!(resources::counts(tx, &workspace)?, [(kind, one)]);
        Ok::<_, Error>((one, resources::hidden_snapshots(tx, &workspace)?))
    };
    assert_eq!(store.read(counted).await.unwrap(), (2, 0));
    let hidden = Stored { status: Some(Status::Deleting), ..made };
    store.write(move |tx| resources::update(tx, hidden.clone())).await.unwrap();
    assert_eq!(store.read(counted).await.unwrap(), (1, 1));
}

async fn a_deleted_workspace_leaves_nothing(place: Place) {
    let store = place.open().await;
    for number in 0..30 {
        insert(&store, agent(store.world(), &format!("a{number}"))).await.unwrap();
    }
    let mut other = agent(store.world(), "other");
    other.workspace = WorkspaceId::known("wsp_other");
    insert(&store, other).await.unwrap();
    let step = |tx: &mut store::Tx<'_>| {
        let some = resources::lock_some(tx, &workspace(), KindName::Agent, 20)?;
        some.iter().try_for_each(|agent| resources::delete(tx, agent, "usr_test"))?;
        Ok::<_, Error>((some.len(), resources::clear_workspace(tx, &workspace(), 20)?))
    };
    assert_eq!(store.write(step).await.unwrap().0, 20);
    assert_eq!(store.write(step).await.unwrap().0, 10);
    assert_eq!(store.write(step).await.unwrap(), (0, 0));
    assert_eq!(names(&store, |_| {}).await, (Vec::new(), 0));
    let other = |tx: &mut store::Tx<'_>| {
        resources::count(tx, &WorkspaceId::known("wsp_other"), KindName::Agent)
    };
    assert_eq!(store.read(other).await.unwrap(), 1);
}

proptest! {
    #[test]
    fn any_text_is_a_position_or_refused(text in "([an]:)?([0-9]{1,3}:)?.{0,20}") {
        if let Ok(position) = text.parse::<Position>() {
            prop_assert_eq!(position.to_string().parse::<Position>().unwrap(), position);
        }
    }

    #[test]
    fn a_position_reads_back_as_written(name in ".{0,20}", parent in ".{0,20}") {
        let position = Position::Name { name, parent };
        prop_assert_eq!(position.to_string().parse::<Position>().unwrap(), position);
    }
}
