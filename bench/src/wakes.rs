//! The first call after a sleep never fails: many thousand wakes, by callers that come at any
//! moment, even while their sandbox is just falling asleep.

use crate::cloud::{Client, Cloud, IMAGE, with_cloud};
use crate::machine;
use crate::program;
use crate::report::{Goal, Report};
use crate::samples::Samples;
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

const WAKES: f64 = 10_000.0;
const SANDBOXES: usize = 100;
/// Callers of each sandbox, which know nothing of each other.
const CALLERS: usize = 3;
const STANDBY: Duration = Duration::from_millis(200);
/// The longest pause of a caller: several times the time until a sandbox sleeps.
const PAUSE_MS_MAX: u64 = 2500;
const COUNT_EVERY: Duration = Duration::from_secs(1);
const TIME_MAX: Duration = Duration::from_secs(900);
const COUNTED: &str = "holm_gateway_wake_seconds_count";

pub(crate) async fn run() -> anyhow::Result<()> {
    println!(
        "{SANDBOXES} sandboxes of {IMAGE} that sleep after {} ms, {CALLERS} callers for each, at random moments.",
        STANDBY.as_millis()
    );
    program::prepare(IMAGE)?;
    let report = machine::begin(&std::env::temp_dir()).await?;
    let mut report = with_cloud(STANDBY, async |cloud| measure(report, cloud).await).await?;
    report.set_goal("wakes", Goal::AtLeast(WAKES));
    report.set_goal("failures", Goal::AtMost(0.0));
    report.finish("wakes")
}

/// What all callers share.
#[derive(Default)]
struct Tally {
    over: Cell<bool>,
    times: RefCell<Samples>,
    failures: RefCell<Vec<String>>,
}

async fn measure(mut report: Report, cloud: &Cloud) -> anyhow::Result<Report> {
    let mut counter = cloud.client().await?;
    for number in 0..SANDBOXES {
        counter.make(&name(number)).await?;
    }
    let tally = Tally::default();
    let mut callers = cloud.clients(SANDBOXES * CALLERS).await?;
    let all = callers
        .iter_mut()
        .enumerate()
        .map(|(number, caller)| call(caller, name(number % SANDBOXES), &tally));
    let begun = Instant::now();
    let counted = async {
        let wakes = count(&mut counter).await;
        tally.over.set(true);
        wakes
    };
    let (wakes, _) = tokio::join!(counted, join_all(all));
    report.add("wakes", wakes?, "");
    report.add("requests", tally.times.borrow().count() as f64, "");
    report.add("failures", tally.failures.borrow().len() as f64, "");
    report.add("took_s", begun.elapsed().as_secs_f64(), "s");
    report.add_times("request", &tally.times.borrow())?;
    tally.failures.borrow().iter().take(10).for_each(|failure| report.note(failure.clone()));
    Ok(report)
}

fn name(number: usize) -> String {
    format!("woken-{number}")
}

/// Waits until the server has woken sandboxes often enough.
async fn count(counter: &mut Client) -> anyhow::Result<f64> {
    let deadline = Instant::now() + TIME_MAX;
    loop {
        let wakes = counter.metric(COUNTED).await?;
        if wakes >= WAKES || Instant::now() > deadline {
            return Ok(wakes);
        }
        tokio::time::sleep(COUNT_EVERY).await;
    }
}

/// Comes back after random pauses with commands, and checks their output.
async fn call(caller: &mut Client, name: String, tally: &Tally) {
    while !tally.over.get() {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..PAUSE_MS_MAX))).await;
        let word = fastrand::u64(..).to_string();
        let begun = Instant::now();
        match caller.run(&name, &format!("/bin/echo {word}")).await {
            Ok(output) if output.trim() == word => tally.times.borrow_mut().since(begun),
            Ok(output) => {
                tally.failures.borrow_mut().push(format!("{name}: {output:?} instead of {word}"))
            }
            Err(error) => tally.failures.borrow_mut().push(format!("{name}: {error:#}")),
        }
    }
}
