//! The server is killed at random moments under load.

use crate::client::Client;
use crate::setup::{Chances, Database, Place, is_long, times};
use crate::watcher::{Mark, Watcher};
use crate::writers::{self, Writer};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use testing::Holm;

const WRITERS: usize = 6;
/// Latest time for the kill.
const LIFE_MS_MAX: u64 = 400;
/// Most further lives, if hardly anything was written in those that there must be. Together they last
/// a few minutes.
const FURTHER_MAX: usize = 36;
/// The promise for a program with the machine to itself; the short form runs beside other tests.
const START_MAX: Duration = Duration::from_secs(1);
const START_MAX_CROWDED: Duration = Duration::from_secs(20);

#[test]
fn whatever_was_acknowledged_outlives_a_kill_on_sqlite() {
    survive(Database::Sqlite);
}

#[test]
fn whatever_was_acknowledged_outlives_a_kill_on_postgres() {
    survive(Database::Postgres);
}

fn survive(database: Database) {
    let chances = Chances::new();
    let mut place = Place::new(database);
    let (mut server, mut client, _) = place.start();
    writers::prepare(&client);
    let mut writers: Vec<_> = (0..WRITERS)
        .map(|number| Writer::new(number, &client, chances.of(number as u64)))
        .collect();
    let mut moments = chances.of(WRITERS as u64);
    let (mut acknowledged, mut slowest) = (0, Duration::ZERO);
    let (kills, mut lives) = (times(6, 200), 0);
    while let Some(ms_max) = next_life_ms(lives, kills, acknowledged) {
        lives += 1;
        let life = Duration::from_millis(moments.u64(..ms_max));
        acknowledged += write_and_kill(&mut server, &mut writers, life);
        if let Some(cluster) = &place.cluster {
            cluster.wait_for_orphans();
        }
        let (next, to_next, start) = place.start();
        slowest = slowest.max(start);
        (server, client) = (next, to_next);
        writers.iter_mut().for_each(|writer| writer.turn_to(&client));
        writers::check(&client, &mut writers);
    }
    println!(
        "{database:?}: {lives} kills, {acknowledged} acknowledged writes, slowest start {slowest:?}"
    );
    assert!(acknowledged > kills, "hardly anything was written: {acknowledged}");
    assert!(
        slowest < if is_long() { START_MAX } else { START_MAX_CROWDED },
        "a start took {slowest:?}"
    );
    the_feed_tells_the_same(&client);
}

/// Returns the longest time for the next life of the server, if there is to be one. There is one for
/// each kill, and where a slow disk keeps much from being written, there are further, ever longer
/// ones until it is enough.
fn next_life_ms(lives: usize, kills: usize, acknowledged: usize) -> Option<u64> {
    let further = (lives + 1).saturating_sub(kills);
    let is_next = further == 0 || (acknowledged <= kills && further <= FURTHER_MAX);
    is_next.then_some(LIFE_MS_MAX * (1 + further as u64))
}

/// Lets the writers write for a while and then kills the server. Returns how many writes were
/// acknowledged.
fn write_and_kill(server: &mut Holm, writers: &mut [Writer], life: Duration) -> usize {
    let (never, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for writer in writers {
            scope.spawn(|| writer.write_until(&never, &acknowledged));
        }
        thread::sleep(life);
        server.kill();
    });
    acknowledged.load(Ordering::Relaxed)
}

/// Checks that each object's changes are complete and end in its present state.
fn the_feed_tells_the_same(client: &Client) {
    let mark = Mark::set(client, "feed-is-read");
    let seen = Watcher::start(client.clone(), 0, fastrand::Rng::with_seed(0), &mark).finish();
    let (listed, _) = client.list("agents");
    let listed: Vec<_> =
        listed.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(seen.present("agent"), listed, "the feed ends otherwise than the objects");
}
