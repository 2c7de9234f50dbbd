//! Connections that break during a transaction, and connections that cannot be had.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, agent, workspace};
use std::sync::Arc;
use store::{Error, Settings, Store, Target, Tx, resources};
use testing::{Cut, Way};
use types::KindName;

/// Ends all other connections to the database, and waits until they have ended.
const END_OTHERS: &str = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()";

async fn open(place: &Place, url: &str) -> Store {
    let target = Target::Postgres { url: url.to_owned() };
    let settings = Settings { target, ..place.settings.clone() };
    Store::open(settings, place.world()).await.unwrap()
}

fn url_of(place: &Place) -> String {
    let Target::Postgres { url } = &place.settings.target else { unreachable!() };
    url.clone()
}

async fn write(
    store: &Store,
    name: String,
    meanwhile: impl Fn() + Send + 'static,
) -> Result<(), Error> {
    let work = move |tx: &mut Tx<'_>| {
        resources::insert(tx, agent(&tx.world().clone(), &name))?;
        meanwhile();
        resources::count(tx, &workspace(), KindName::Agent).map(drop)
    };
    store.write(work).await
}

async fn count(store: &Store) -> i64 {
    store.read(|tx| resources::count(tx, &workspace(), KindName::Agent)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_without_an_answer_may_be_done_or_not() {
    let place = Place::postgres();
    let way = Way::to(&url_of(&place));
    let store = open(&place, way.url()).await;
    for (name, cut, kept) in [("lost", Cut::Before, 0), ("done", Cut::After, 1)] {
        way.cut_commit_of(name, cut);
        let written = write(&store, name.to_owned(), || {}).await;
        assert!(matches!(written, Err(Error::Uncertain(_))), "{written:?}");
        assert_eq!(count(&store).await, kept, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_the_database_ends_is_not_taken_for_a_failure() {
    let place = Arc::new(Place::postgres());
    let store = place.open().await;
    let ended = Arc::clone(&place);
    let cut = write(&store, "cut".to_owned(), move || drop(ended.sql(END_OTHERS))).await;
    assert!(matches!(cut, Err(Error::Interrupted(_))), "{cut:?}");
    for number in 0..8 {
        write(&store, format!("before{number}"), || {}).await.unwrap();
    }
    // What has not begun is done on other connections.
    place.sql(END_OTHERS);
    for number in 0..8 {
        write(&store, format!("after{number}"), || {}).await.unwrap();
    }
    assert_eq!(count(&store).await, 16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connections_that_can_be_had_do_all_the_work() {
    let place = Place::postgres();
    let url = url_of(&place);
    let (name, _) = url.trim_start_matches("postgres:///").split_once('?').unwrap();
    place.sql(&format!(
        "CREATE ROLE {name} LOGIN CONNECTION LIMIT 2; ALTER DATABASE {name} OWNER TO {name}"
    ));
    let store = open(&place, &url.replace("user=postgres", &format!("user={name}"))).await;
    for number in 0..100 {
        let (one, other) = (format!("one{number}"), format!("other{number}"));
        let (one, other) = tokio::join!(write(&store, one, || {}), write(&store, other, || {}));
        one.and(other).unwrap();
    }
    assert_eq!(count(&store).await, 200);
}
