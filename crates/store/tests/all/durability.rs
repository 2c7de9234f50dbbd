//! Transactions: acknowledged writes stay, failed ones leave nothing, and database threads survive
//! whatever they run.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::{Place, agent, on_both, workspace};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::resources;
use store::{Error, Settings, Store, Target, Tx, idempotency, revisions, settings};
use types::KindName;
use types::ids::ResourceId;

on_both!(
    an_answered_write_survives_a_restart,
    a_failure_undoes_only_its_own_work,
    what_is_not_kept_is_told_outside_the_database,
    a_panic_fails_only_its_own_work,
    going_on_after_a_failed_statement_is_refused,
    two_servers_may_start_at_once,
    a_database_of_a_newer_program_is_refused,
    more_requests_than_may_wait_are_refused,
    an_answer_is_given_again_for_a_day,
    revisions_are_kept_newest_first,
    the_first_setting_wins,
);

async fn count(store: &Store) -> i64 {
    store.read(|tx| resources::count(tx, &workspace(), KindName::Agent)).await.unwrap()
}

async fn write_many(
    store: &Store,
    count: usize,
    fail: impl Fn(usize) -> bool + Copy + Send + 'static,
) -> usize {
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..count {
        let store = store.clone();
        writers.spawn(async move {
            let work = move |tx: &mut Tx<'_>| {
                resources::insert(tx, agent(&tx.world().clone(), &format!("a{number}")))?;
                if fail(number) { Err(Error::Busy { limit: 0 }) } else { Ok(()) }
            };
            store.write(work).await.is_ok()
        });
    }
    writers.join_all().await.into_iter().filter(|written| *written).count()
}

async fn an_answered_write_survives_a_restart(place: Place) {
    let store = place.open().await;
    assert_eq!(write_many(&store, 50, |_| false).await, 50);
    drop(store);
    assert_eq!(count(&place.open().await).await, 50);
}

async fn what_is_not_kept_is_told_outside_the_database(place: Place) {
    let (store, undone) = (place.open().await, Arc::new(Mutex::new(BTreeSet::new())));
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..30 {
        let (store, undone) = (store.clone(), undone.clone());
        writers.spawn(async move {
            let work = move |tx: &mut Tx<'_>| {
                let undone = undone.clone();
                tx.if_undone(move || assert!(undone.lock().insert(number)));
                resources::insert(tx, agent(&tx.world().clone(), &format!("a{number}")))?;
                match number % 3 {
                    0 => Err(Error::Busy { limit: 0 }),
                    1 => panic!("this one panics"),
                    _ => Ok(()),
                }
            };
            store.write(work).await.is_ok()
        });
    }
    assert_eq!(writers.join_all().await.into_iter().filter(|kept| *kept).count(), 10);
    let expected: BTreeSet<_> = (0..30).filter(|number| number % 3 != 2).collect();
    assert_eq!(*undone.lock(), expected);
}

async fn a_failure_undoes_only_its_own_work(place: Place) {
    let store = place.open().await;
    assert_eq!(write_many(&store, 60, |number| number % 3 == 0).await, 40);
    assert_eq!(count(&store).await, 40);
    let query = |tx: &mut Tx<'_>| {
        let workspace = workspace();
        resources::list(tx, &resources::Query::new(&workspace, KindName::Agent, Some("")))
    };
    assert_eq!(store.read(query).await.unwrap().len(), 40);
}

async fn a_panic_fails_only_its_own_work(place: Place) {
    let store = place.open().await;
    for _ in 0..20 {
        let work = |tx: &mut Tx<'_>| {
            resources::insert(tx, agent(&tx.world().clone(), "a"))?;
            if tx.world().now().ms() > 0 {
                panic!("on purpose");
            }
            Ok::<_, Error>(())
        };
        assert!(matches!(store.write(work).await, Err(Error::Unusable(_))));
        assert!(store.read(|_| -> Result<(), Error> { panic!("on purpose") }).await.is_err());
    }
    assert_eq!(write_many(&store, 5, |_| false).await, 5);
    assert_eq!(count(&store).await, 5);
}

async fn going_on_after_a_failed_statement_is_refused(place: Place) {
    let store = place.open().await;
    let work = |tx: &mut Tx<'_>| {
        let made = resources::insert(tx, agent(&tx.world().clone(), "a"))?;
        // The same id under another name, so the statement itself fails.
        let again = resources::insert(tx, resources::Stored { name: "b".into(), ..made });
        assert!(matches!(again, Err(Error::Duplicate { .. })), "{again:?}");
        Ok::<_, Error>(())
    };
    assert!(store.write(work).await.is_err());
    assert_eq!(count(&store).await, 0);
}

async fn two_servers_may_start_at_once(place: Place) {
    let starts: tokio::task::JoinSet<_> = (0..3).map(|_| place.open_result()).collect();
    let results = starts.join_all().await;
    let opened: Vec<_> = results.into_iter().filter_map(Result::ok).collect();
    match &place.settings.target {
        Target::Sqlite { .. } => {
            assert_eq!(opened.len(), 1, "one process at a time has a SQLite file")
        }
        Target::Postgres { .. } => assert_eq!(opened.len(), 3),
    }
    for (number, store) in opened.iter().enumerate() {
        let name = format!("of-{number}");
        store
            .write(move |tx| resources::insert(tx, agent(&tx.world().clone(), &name)))
            .await
            .unwrap();
    }
    assert_eq!(count(&opened[0]).await as usize, opened.len());
}

async fn a_database_of_a_newer_program_is_refused(place: Place) {
    drop(place.open().await);
    place.sql("INSERT INTO migrations (number, name, applied_at) VALUES (9999, 'later', 0)");
    let error = place.open_result().await.err().unwrap();
    assert!(error.to_string().contains("9999"), "{error}");
}

async fn more_requests_than_may_wait_are_refused(place: Place) {
    let settings = Settings { waiting_max: 2, connections: 1, ..place.settings.clone() };
    let store = Store::open(settings, place.world()).await.unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (began, begun) = tokio::sync::oneshot::channel::<()>();
    let mut began = Some(began);
    let blocked = {
        let store = store.clone();
        let work = move |_: &mut Tx<'_>| {
            began.take().map(|began| began.send(()));
            wait.recv().map_err(|_| Error::Busy { limit: 0 })
        };
        tokio::spawn(async move { store.write(work).await })
    };
    begun.await.unwrap();
    let mut others = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let store = store.clone();
        others.spawn(async move { store.write(|_| Ok::<_, Error>(())).await });
    }
    for _ in 0..18 {
        let refused = others.join_next().await.unwrap().unwrap();
        assert!(matches!(refused, Err(Error::Busy { limit: 2 })), "{refused:?}");
    }
    go.send(()).unwrap();
    blocked.await.unwrap().unwrap();
    assert!(others.join_all().await.iter().all(Result::is_ok));
}

async fn an_answer_is_given_again_for_a_day(place: Place) {
    let store = place.open().await;
    let claim = async |digest: &'static str| {
        store.write(move |tx| idempotency::claim(tx, &workspace(), "key", digest)).await.unwrap()
    };
    let first = |tx: &mut Tx<'_>| {
        assert_eq!(idempotency::claim(tx, &workspace(), "key", "d")?, idempotency::Claim::New);
        idempotency::record(tx, &workspace(), "key", 201, "sealed")
    };
    store.write(first).await.unwrap();
    assert_eq!(claim("d").await, idempotency::Claim::Done { status: 201, body: "sealed".into() });
    assert_eq!(claim("other").await, idempotency::Claim::Conflict);
    place.pass_ms(idempotency::KEPT_MS + 10);
    let now = store.world().now();
    assert_eq!(store.tidy(now).await.unwrap().answers, 1);
    let anew = |tx: &mut Tx<'_>| idempotency::claim(tx, &workspace(), "key", "other");
    assert_eq!(store.write(anew).await.unwrap(), idempotency::Claim::New);
}

async fn revisions_are_kept_newest_first(place: Place) {
    let store = place.open().await;
    let resource = ResourceId::known("res_1");
    let work = move |tx: &mut Tx<'_>| {
        for number in 0..5 {
            let revision = revisions::Revision {
                id: format!("r{number}"),
                resource_id: resource.clone(),
                wish: number.to_string(),
                seal_key: None,
                created_at: tx.world().now(),
                created_by: "usr_test".into(),
                activated_at: None,
            };
            revisions::insert(tx, &revision)?;
        }
        let now = tx.world().now();
        revisions::activate(tx, &resource, "r0", now)?;
        assert_eq!(revisions::trim(tx, &resource, 3, [Some("r0"), None, None])?, 1);
        assert_eq!(
            revisions::find(tx, &resource, "r0")?.and_then(|found| found.activated_at),
            Some(now)
        );
        assert!(revisions::find(tx, &resource, "r1")?.is_none());
        revisions::list(tx, &resource, 2)
    };
    let found = store.write(work).await.unwrap();
    assert_eq!(found.iter().map(|revision| revision.id.as_str()).collect::<Vec<_>>(), ["r4", "r3"]);
}

async fn the_first_setting_wins(place: Place) {
    let store = place.open().await;
    let work = |tx: &mut Tx<'_>| {
        assert_eq!(settings::get(tx, "a")?, None);
        assert_eq!(settings::get_or_insert(tx, "a", "1")?, "1");
        assert_eq!(settings::get_or_insert(tx, "a", "2")?, "1");
        settings::set(tx, "a", "3")?;
        settings::get(tx, "a")
    };
    assert_eq!(store.write(work).await.unwrap().as_deref(), Some("3"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_after_a_lost_connection_succeed() {
    let place = Place::postgres();
    let store = place.open().await;
    assert_eq!(write_many(&store, 20, |_| false).await, 20);
    place.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'holm'",
    );
    // A request in progress may fail; acknowledged writes are there, and the next requests are
    // served.
    let later = |tx: &mut Tx<'_>| resources::insert(tx, agent(&tx.world().clone(), "later"));
    while store.write(later).await.is_err() {}
    assert_eq!(count(&store).await, 21);
}

#[tokio::test]
async fn a_row_that_nobody_can_have_written_is_an_error() {
    let place = Place::sqlite();
    let store = place.open().await;
    store.write(|tx| resources::insert(tx, agent(&tx.world().clone(), "a"))).await.unwrap();
    for damage in
        ["status = 'SLEEPY'", "version = 'x'", "wish = x'ff'", "wish = CAST(x'ff' AS TEXT)"]
    {
        place.sql(&format!("UPDATE resources SET {damage}"));
        let found =
            store.read(|tx| resources::find(tx, &workspace(), KindName::Agent, "", "a")).await;
        assert!(matches!(found, Err(Error::Corrupt { .. })), "{damage}: {found:?}");
    }
}

#[tokio::test]
async fn lists_and_finds_go_by_an_index() {
    let place = Place::sqlite();
    drop(place.open().await);
    for (order, index) in [
        ("created_at DESC, id DESC", "resources_by_age"),
        ("created_at ASC, id ASC", "resources_by_age"),
        ("name ASC, parent ASC", "resources_by_name"),
        ("name DESC, parent DESC", "resources_by_name"),
    ] {
        let columns = order.split(' ').collect::<Vec<_>>();
        let operator = if order.contains("DESC") { '<' } else { '>' };
        let plan = place.sql(&format!(
            "EXPLAIN QUERY PLAN SELECT wish FROM resources WHERE workspace_id = 'w' AND kind = 'agent' AND parent = ''
             AND ({}, {}) {operator} ('1', 'x') ORDER BY {order} LIMIT 50",
            columns[0], columns[2]
        ));
        assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{order}: {plan}");
    }
    let plan = place.sql(
        "EXPLAIN QUERY PLAN SELECT wish FROM resources WHERE kind = 'agent' AND id > 'x' ORDER BY id LIMIT 50",
    );
    assert!(plan.contains("resources_by_kind (kind=? AND id>?)"), "{plan}");
}
