//! What the change feed promises its followers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, agent, on_both, workspace};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::feed::{self, Act, Change, Follower, NewChange};
use store::resources::{self, Stored};
use store::{Error, Store, Tx, settings};
use types::KindName;
use types::ids::WorkspaceId;

on_both!(
    a_follower_sees_each_write_once_and_in_order,
    a_follower_of_a_workspace_sees_nothing_else,
    an_undone_write_leaves_no_change,
    an_undone_part_of_a_write_leaves_no_change,
    a_position_that_is_no_longer_kept_is_gone,
    revisions_grow_across_a_restart,
);

/// How often a test looks for commits of other servers.
const POLL: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);

async fn write_agent(store: &Store, name: String) -> Stored {
    store.write(move |tx| resources::insert(tx, agent(&tx.world().clone(), &name))).await.unwrap()
}

async fn all(store: &Store, after: i64) -> Result<Vec<Change>, Error> {
    store.read(move |tx| feed::since(tx, None, after, 1000)).await
}

/// Waits until `count` changes can be seen: on PostgreSQL, transactions of other tests on the same
/// server hold back changes newer than they are.
async fn first(store: &Store, count: usize, after: i64) -> Vec<Change> {
    let mut follower = store.follow(after, POLL);
    let mut seen = Vec::new();
    while seen.len() < count {
        seen.extend(tokio::time::timeout(PATIENCE, follower.next()).await.unwrap().unwrap());
    }
    seen
}

async fn a_follower_sees_each_write_once_and_in_order(place: Place) {
    let store = place.open().await;
    let mut follower = store.follow(0, POLL);
    let made = write_agent(&store, "a".into()).await;
    let seen = follower.next().await.unwrap();
    assert_eq!(
        (seen.len(), seen[0].act, seen[0].name.as_str(), seen[0].version),
        (1, Act::Created, "a", 1)
    );
    let writer = store.clone();
    let later = tokio::spawn(async move {
        let changed = writer.write(move |tx| resources::update(tx, made.clone())).await.unwrap();
        writer.write(move |tx| resources::delete(tx, &changed, "usr_other")).await.unwrap();
    });
    let mut acts = Vec::new();
    while acts.len() < 2 {
        let changes = tokio::time::timeout(PATIENCE, follower.next()).await.unwrap().unwrap();
        acts.extend(changes.into_iter().map(|change| (change.act, change.version, change.actor)));
    }
    later.await.unwrap();
    assert_eq!(
        acts,
        [(Act::Updated, 2, "usr_test".to_owned()), (Act::Deleted, 2, "usr_other".to_owned())]
    );
    assert_eq!(store.read(feed::latest).await.unwrap(), follower.position());
}

async fn a_follower_of_a_workspace_sees_nothing_else(place: Place) {
    let store = place.open().await;
    let other = WorkspaceId::known("wsp_other");
    let mut follower = store.follow(0, POLL).of(other.clone());
    for number in 0..10 {
        write_agent(&store, format!("a{number}")).await;
    }
    let record = move |tx: &mut Tx<'_>| {
        let change = NewChange {
            workspace: &other,
            kind: "api-key",
            resource_id: "key_1",
            parent: "",
            name: "ci",
            act: Act::Deleted,
            version: 1,
            actor: "usr_test",
        };
        feed::record(tx, change)
    };
    store.write(record).await.unwrap();
    let seen = tokio::time::timeout(PATIENCE, follower.next()).await.unwrap().unwrap();
    assert_eq!((seen.len(), seen[0].kind.as_str()), (1, "api-key"));
}

async fn an_undone_write_leaves_no_change(place: Place) {
    let store = place.open().await;
    let undone = |tx: &mut Tx<'_>| {
        resources::insert(tx, agent(&tx.world().clone(), "a"))?;
        Err::<(), _>(Error::Busy { limit: 0 })
    };
    assert!(matches!(store.write(undone).await, Err(Error::Busy { .. })));
    write_agent(&store, "b".into()).await;
    assert_eq!(
        first(&store, 1, 0).await.iter().map(|change| change.name.as_str()).collect::<Vec<_>>(),
        ["b"]
    );
}

async fn an_undone_part_of_a_write_leaves_no_change(place: Place) {
    let store = place.open().await;
    let undone = Arc::new(Mutex::new(Vec::new()));
    let (told, again) = (Arc::clone(&undone), Arc::clone(&undone));
    let part = move |tx: &mut Tx<'_>, name: &'static str| {
        let told = Arc::clone(&told);
        tx.if_undone(move || told.lock().unwrap().push(name));
        resources::insert(tx, agent(&tx.world().clone(), name)).map(drop)
    };
    let work = move |tx: &mut Tx<'_>| {
        // The database may have asked for a repetition.
        again.lock().unwrap().clear();
        part(tx, "a")?;
        let refused = tx.attempt(|tx| {
            part(tx, "b")?;
            Err::<(), _>(Error::Busy { limit: 0 })
        })?;
        assert!(matches!(refused, Err(Error::Busy { .. })));
        tx.attempt(|tx| part(tx, "c"))??;
        part(tx, "d")
    };
    store.write(work).await.unwrap();
    let seen = first(&store, 3, 0).await;
    let names: Vec<&str> = seen.iter().map(|change| change.name.as_str()).collect();
    assert_eq!(names, ["a", "c", "d"]);
    assert!(seen.is_sorted_by(|one, next| one.revision < next.revision));
    assert_eq!(*undone.lock().unwrap(), ["b"]);
}

async fn a_position_that_is_no_longer_kept_is_gone(place: Place) {
    let store = place.open().await;
    for number in 0..10 {
        write_agent(&store, format!("a{number}")).await;
    }
    let before = first(&store, 10, 0).await;
    place.pass_ms(1000);
    let now = store.world().now();
    assert_eq!(store.write(move |tx| feed::trim(tx, now, 4, 3)).await.unwrap(), 3);
    assert_eq!(store.write(move |tx| feed::trim(tx, now, 4, 100)).await.unwrap(), 3);
    assert_eq!(store.write(move |tx| feed::trim(tx, now, 4, 100)).await.unwrap(), 0);
    let oldest = before[5].revision;
    assert!(
        matches!(all(&store, before[4].revision).await, Err(Error::Gone { oldest: found }) if found == oldest)
    );
    assert_eq!(all(&store, oldest).await.unwrap(), before[6..]);
    let mut late = store.follow(0, POLL);
    assert!(matches!(late.next().await, Err(Error::Gone { .. })));
}

async fn revisions_grow_across_a_restart(place: Place) {
    let store = place.open().await;
    write_agent(&store, "a".into()).await;
    let latest = first(&store, 1, 0).await[0].revision;
    let now = store.world().now();
    store.write(move |tx| feed::trim(tx, now, 0, 100)).await.unwrap();
    drop(store);
    let store = place.open().await;
    write_agent(&store, "b".into()).await;
    assert_eq!(first(&store, 1, latest).await.len(), 1);
}

/// Writes the same few objects from many tasks, in transactions of one to three writes.
async fn write_for_a_while(stores: [Store; 2], rounds: usize) {
    let mut writers = tokio::task::JoinSet::new();
    for task in 0..8 {
        let store = stores[task % 2].clone();
        writers.spawn(async move {
            for round in 0..rounds {
                let names = [task * 7 + round, task * 3 + round * 5, round]
                    .map(|number| format!("a{}", number % 6));
                let mut names = names[..1 + round % 3].to_vec();
                // Always in the same order, or the test would spend its time waiting for locks.
                names.sort();
                // Losing against another writer is fine; only acknowledged writes matter.
                let _ =
                    store.write(move |tx| names.iter().try_for_each(|name| bump(tx, name))).await;
            }
        });
    }
    writers.join_all().await;
}

fn bump(tx: &mut Tx<'_>, name: &str) -> Result<(), Error> {
    let world = tx.world().clone();
    match resources::lock(tx, &workspace(), KindName::Agent, "", name)? {
        None => resources::insert(tx, agent(&world, name)).map(drop),
        Some(found) if found.version % 10 == 0 => resources::delete(tx, &found, "usr_test"),
        Some(found) => resources::update(tx, found).map(drop),
    }
}

/// Commits without a change of their own may be what a change had to wait for. The timer never comes
/// here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_held_back_is_read_after_a_commit_without_one() {
    let place = Place::postgres();
    let store = place.open().await;
    let mut follower = store.follow(0, Duration::MAX);
    let (began, older) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let holding = store.clone();
    let holder = tokio::spawn(async move {
        let hold = move |tx: &mut Tx<'_>| {
            settings::set(tx, "held", "1")?;
            began.send(()).unwrap();
            ended.recv().unwrap();
            Ok::<_, Error>(())
        };
        holding.write(hold).await.unwrap();
    });
    tokio::task::spawn_blocking(move || older.recv().unwrap()).await.unwrap();
    write_agent(&store, "a".into()).await;
    let mut next = Box::pin(async move { follower.next().await });
    // It asks for changes now, before the other read does.
    tokio::select! {
        biased;
        _ = &mut next => panic!("a change was read before a lower revision could be"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(store.read(|tx| feed::since(tx, None, 0, 10)).await.unwrap(), []);
    let following = tokio::spawn(next);
    end.send(()).unwrap();
    holder.await.unwrap();
    // A transaction of another test may hold it back for longer.
    let committing = async {
        while !following.is_finished() {
            store.write(|tx| settings::set(tx, "later", "1")).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, committing).await.unwrap();
    assert_eq!(following.await.unwrap().unwrap()[0].name, "a");
}

/// Transaction numbers belong to the whole cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_in_another_database_does_not_hold_changes_back() {
    let (place, other) = (Place::postgres(), Place::postgres());
    let (store, elsewhere) = (place.open().await, other.open().await);
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let (began, older) = std::sync::mpsc::channel();
    let holder = tokio::spawn(async move {
        let hold = move |tx: &mut Tx<'_>| {
            settings::set(tx, "held", "1")?;
            began.send(()).unwrap();
            ended.recv().unwrap();
            Ok::<_, Error>(())
        };
        elsewhere.write(hold).await.unwrap();
    });
    tokio::task::spawn_blocking(move || older.recv().unwrap()).await.unwrap();
    for name in ["a", "b"] {
        write_agent(&store, name.into()).await;
    }
    let seen = first(&store, 2, 0).await;
    assert!(!holder.is_finished());
    end.send(()).unwrap();
    holder.await.unwrap();
    assert_eq!(seen, all(&store, 0).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_two_servers_a_follower_misses_nothing_and_sees_versions_in_order() {
    let place = Place::postgres();
    let stores = [place.open().await, place.open().await];
    let mut follower = stores[0].follow(0, POLL);
    let last = "written when all others have ended";
    let writing = tokio::spawn(async move {
        write_for_a_while(stores.clone(), 40).await;
        write_agent(&stores[1], last.into()).await;
        stores
    });
    let until_last = async |follower: &mut Follower| {
        let mut seen: Vec<Change> = Vec::new();
        while seen.last().is_none_or(|change| change.name != last) {
            seen.extend(tokio::time::timeout(PATIENCE, follower.next()).await.unwrap().unwrap());
        }
        seen
    };
    let seen = until_last(&mut follower).await;
    let stores = writing.await.unwrap();
    // The other server may find out later that only a transaction of another test holds it back.
    assert_eq!(seen, until_last(&mut stores[1].follow(0, POLL)).await);
    assert!(seen.is_sorted_by(|one, next| one.revision < next.revision));
    assert!(seen.len() > 100, "only {} changes", seen.len());
    let mut versions = BTreeMap::new();
    for change in &seen {
        let before = versions.insert(change.resource_id.clone(), (change.version, change.act));
        match (before, change.act) {
            (None, Act::Created) => assert_eq!(change.version, 1),
            (Some((version, Act::Created | Act::Updated)), Act::Updated) => {
                assert_eq!(change.version, version + 1)
            }
            (Some((version, Act::Created | Act::Updated)), Act::Deleted) => {
                assert_eq!(change.version, version)
            }
            other => panic!("{change:?} after {other:?}"),
        }
    }
    let left =
        stores[0].read(|tx| resources::count(tx, &workspace(), KindName::Agent)).await.unwrap();
    let alive = versions.values().filter(|(_, act)| *act != Act::Deleted).count();
    assert_eq!(left, alive as i64);
}
