//! PostgreSQL itself is killed under load, and comes back.

use crate::client::Answer;
use crate::setup::{Chances, Database, Place, times};
use crate::writers::{self, Writer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WRITERS: usize = 6;
const LIFE_MS_MAX: u64 = 400;
/// Holm tries to reconnect at least every 2 s.
const BACK_WITHIN: Duration = Duration::from_secs(20);
const TRY_EVERY: Duration = Duration::from_millis(20);

#[test]
fn a_killed_database_is_answered_for_and_works_again_without_a_restart() {
    let (chances, mut place) = (Chances::new(), Place::new(Database::Postgres));
    let (_server, client, _) = place.start();
    writers::prepare(&client);
    let mut writers: Vec<_> = (0..WRITERS)
        .map(|number| Writer::new(number, &client, chances.of(number as u64)))
        .collect();
    let mut moments = chances.of(WRITERS as u64);
    for _ in 0..times(3, 30) {
        let stop = AtomicBool::new(false);
        let cluster = place.cluster.as_mut().expect("the place has one");
        thread::scope(|scope| {
            for writer in &mut writers {
                scope.spawn(|| write_through(writer, &stop));
            }
            thread::sleep(Duration::from_millis(moments.u64(..LIFE_MS_MAX)));
            cluster.kill();
            thread::sleep(Duration::from_millis(moments.u64(..LIFE_MS_MAX)));
            cluster.restart().expect("PostgreSQL starts again");
            // Every writer must succeed once more.
            stop.store(true, Ordering::Relaxed);
        });
        writers::check(&client, &mut writers);
    }
}

/// Keeps writing whatever happens until told to stop, then until one more write is acknowledged.
fn write_through(writer: &mut Writer, stop: &AtomicBool) {
    let mut stopped_at = None;
    loop {
        match writer.write_once() {
            Answer::Done { .. } if stopped_at.is_some() => return,
            Answer::Done { .. } => {}
            Answer::Refused { status, body } => {
                assert!(matches!(status, 500 | 503), "{status}: {body}");
                assert_eq!(body["code"], status, "not in the form of the contract: {body}");
                assert!(body["error"].is_string() && body["message"].is_string(), "{body}");
            }
            Answer::Lost => panic!("the server itself gave up"),
        }
        while writer.has_open_request() && !writer.resolve() {
            thread::sleep(TRY_EVERY);
            assert!(
                stopped_at.is_none_or(|at: Instant| at.elapsed() < BACK_WITHIN),
                "the server does not recover"
            );
            note_stop(stop, &mut stopped_at);
        }
        note_stop(stop, &mut stopped_at);
    }
}

fn note_stop(stop: &AtomicBool, stopped_at: &mut Option<Instant>) {
    if stopped_at.is_none() && stop.load(Ordering::Relaxed) {
        *stopped_at = Some(Instant::now());
    }
}
