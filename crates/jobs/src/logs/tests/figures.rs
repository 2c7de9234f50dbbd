//! Measures the speed: `cargo test -p jobs --release figures -- --ignored --nocapture`.

use super::writing::all;
use super::{open, piece, source};
use crate::logs::find::find;
use crate::logs::{Logs, Question, Settings};
use std::time::Instant;
use tokio::sync::mpsc;
use types::instance::{Printed, Stream};

const ATTEMPTS: u32 = 20_000;
const AT_ONCE: u32 = 64;
const FLOOD_BYTES: usize = 32 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures and checks nothing"]
async fn figures() {
    for postgres in [false, true] {
        let (store, _folder) = open(postgres).await;
        let settings = Settings { task_bytes_max: 1 << 30, ..Settings::default() };
        let logs = Logs::start(store.clone(), settings);
        println!("-- {}", if postgres { "PostgreSQL" } else { "SQLite" });

        let started = Instant::now();
        let workers: Vec<_> =
            (0..AT_ONCE).map(|first| tokio::spawn(one_line_each(logs.clone(), first))).collect();
        for worker in workers {
            worker.await.unwrap();
        }
        println!(
            "{:.0} attempts/s with a line each",
            f64::from(ATTEMPTS) / started.elapsed().as_secs_f64()
        );

        for (what, question) in [
            ("newest 1000", all()),
            ("newest 1000 of one task", Question { task: Some(7), ..all() }),
            ("search that finds nothing", Question { search: Some("nothing".into()), ..all() }),
        ] {
            let started = Instant::now();
            let found = find(&store, &question).await.unwrap();
            println!(
                "{what}: {} of {} lines in {:?}",
                found.lines.len(),
                found.total,
                started.elapsed()
            );
        }

        let started = Instant::now();
        let (printed, pieces) = mpsc::channel(4);
        let flood = async move {
            let text = "a line of some fifty bytes, as programs print them\n".repeat(600);
            for next in 1..=FLOOD_BYTES / text.len() {
                printed.send(piece(next as u64, 1, Stream::Stdout, text.as_bytes())).await.unwrap();
            }
        };
        let (recorded, ()) =
            tokio::join!(logs.record(logs.begin(source(u32::MAX - 1)), pieces), flood);
        recorded.unwrap();
        let mib = FLOOD_BYTES as f64 / f64::from(1 << 20);
        println!("{:.1} MiB/s of one attempt", mib / started.elapsed().as_secs_f64());
    }
}

async fn one_line_each(logs: Logs, first: u32) {
    for task in (first..ATTEMPTS).step_by(AT_ONCE as usize) {
        let (printed, pieces) = mpsc::channel::<Printed>(1);
        printed
            .send(piece(1, i64::from(task), Stream::Stdout, b"hello from a task\n"))
            .await
            .unwrap();
        drop(printed);
        logs.record(logs.begin(source(task)), pieces).await.unwrap();
    }
}
