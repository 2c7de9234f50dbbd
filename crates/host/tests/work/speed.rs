//! Measures how long work takes that does nothing. Prints a table; run it by its name, in a release
//! build.

use crate::place::{PLAIN, Place, Running, launch};
use control::machine::{Launch, Machine};
use std::time::{Duration, Instant};
use types::instance::Outcome;

const ROUNDS: usize = 200;

#[derive(Default)]
struct Times {
    launch: Vec<Duration>,
    attend: Vec<Duration>,
    retire: Vec<Duration>,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn from_launch_to_nothing_left() {
    let place = Place::new(&[PLAIN]);
    let machine = place.start();
    let warm = some(&machine, "warm".into(), 20).await;
    assert_eq!(warm.launch.len(), 20);
    for parallel in [1, 4, 8] {
        let begin = Instant::now();
        let each = ROUNDS / parallel;
        let all = (0..parallel).map(|number| some(&machine, format!("p{parallel}-{number}"), each));
        let mut times = Times::default();
        for some in futures_util::future::join_all(all.collect::<Vec<_>>()).await {
            times.launch.extend(some.launch);
            times.attend.extend(some.attend);
            times.retire.extend(some.retire);
        }
        let rate = (each * parallel) as f64 / begin.elapsed().as_secs_f64();
        let [launch, attend, retire] = [times.launch, times.attend, times.retire].map(row);
        println!(
            "{parallel} at once: {rate:4.0} per second; launch {launch}, attend {attend}, retire {retire}"
        );
    }
    machine.clear().await;
}

async fn some(machine: &Running, name: String, count: usize) -> Times {
    let mut times = Times::default();
    for number in 0..count {
        let begin = Instant::now();
        let work = Launch {
            memory_mb: 2048,
            ..launch(&format!("{name}-{number}"), PLAIN, &["/bin/true"])
        };
        let instance = machine.launch(work).await;
        times.launch.push(begin.elapsed());
        let begin = Instant::now();
        assert_eq!(machine.attend(&instance, 0).await.unwrap().end.outcome, Outcome::Exited(0));
        times.attend.push(begin.elapsed());
        let begin = Instant::now();
        machine.control.retire(&instance).await.unwrap();
        times.retire.push(begin.elapsed());
    }
    times
}

fn row(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1_000.0;
    format!("p50 {:.2} p99 {:.2} ms", at(50), at(99))
}
