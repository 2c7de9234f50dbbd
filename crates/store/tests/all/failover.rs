//! A standby replaces the database server, without the latest writes.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use crate::common::{Place, agent};
use std::time::Duration;
use store::feed::{self, Change};
use store::{Error, Replication, Store, resources};
use testing::Cluster;

const POLL: Duration = Duration::from_millis(20);
/// Longer than any test machine needs; it only ends a test that would otherwise hang.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of writes that only the old server has, so that the new one reuses their numbers.
const LOST: usize = 40;

async fn write_agent(store: &Store, name: String) -> Result<(), Error> {
    store.write(move |tx| resources::insert(tx, agent(&tx.world().clone(), &name))).await.map(drop)
}

/// Returns the next changes, however often the database is unreachable meanwhile.
async fn next(follower: &mut feed::Follower) -> Result<Vec<Change>, Error> {
    loop {
        match tokio::time::timeout(PATIENCE, follower.next())
            .await
            .expect("the follower hears something")
        {
            // The database is not back yet.
            Err(error) if error.is_away() => tokio::time::sleep(POLL).await,
            end => return end,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_learn_of_a_failover_that_lost_what_they_had_seen() {
    let parent = std::env::temp_dir();
    let mut primary = Cluster::start(&parent).unwrap();
    let mut standby = primary.standby(&parent).unwrap();
    let place = Place::postgres_at(primary.url_or(&standby));
    let store = place.open().await;
    write_agent(&store, "kept".into()).await.unwrap();
    primary.wait_for_standby().unwrap();
    assert_eq!(
        store::replication(place.settings.clone()).await.unwrap(),
        Some(Replication::Asynchronous { standbys: 1 })
    );
    let refused = Place::postgres_at(standby.url()).open_result().await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("leads to a standby"), "{refused}");
    standby.kill();
    for number in 0..LOST {
        write_agent(&store, format!("lost{number}")).await.unwrap();
    }
    let mut follower = store.follow(0, POLL);
    let mut seen = Vec::new();
    while seen.len() <= LOST {
        seen.extend(next(&mut follower).await.unwrap());
    }
    let ahead = follower.position();

    primary.kill();
    standby.restart().unwrap();
    standby.promote().unwrap();
    // Until the new server is found, writes are refused.
    while write_agent(&store, "after".into()).await.is_err() {
        tokio::time::sleep(POLL).await;
    }
    let told = next(&mut follower).await;
    assert!(matches!(told, Err(Error::Gone { .. })), "{told:?}");
    let begin = store.read(feed::latest).await.unwrap();
    assert!(begin > ahead, "a revision that was given out is given out again");
    let mut follower = store.follow(begin, POLL);
    write_agent(&store, "later".into()).await.unwrap();
    loop {
        let changes = next(&mut follower).await.unwrap();
        assert!(changes.iter().all(|change| change.revision > ahead));
        if changes.iter().any(|change| change.name == "later") {
            break;
        }
    }
    // The next start finds everything in order and changes nothing.
    drop(store);
    let store = place.open().await;
    assert!(store.read(move |tx| feed::since(tx, None, begin, 10)).await.is_ok());
}
