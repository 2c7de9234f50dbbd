//! How the end of work is reported to `control`.

use crate::place::{HUMBLE, PATIENCE, PLAIN, Place, SHELL, launch, name, shell};
use control::machine::{Launch, Machine, Work};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use types::instance::{Medium, Outcome, Scratch};

fn within(launch: Launch, timeout: Duration) -> Launch {
    let work = launch.work.map(|work| Work { timeout: Some(timeout), ..work });
    Launch { work, ..launch }
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_told_apart() {
    let place = Place::new(&[SHELL, PLAIN]);
    let machine = place.start();
    let how = async |launch: Launch| machine.outcome(launch).await.end.outcome;
    assert_eq!(how(shell("zero", "exit 0")).await, Outcome::Exited(0));
    assert_eq!(how(shell("three", "exit 3")).await, Outcome::Exited(3));
    assert_eq!(how(launch("bare", PLAIN, &["true"])).await, Outcome::Exited(0));
    assert_eq!(how(shell("segment", "kill -SEGV $$")).await, Outcome::Killed(11));
    assert_eq!(how(shell("killed", "kill -KILL $$")).await, Outcome::Killed(9));
    assert_eq!(how(shell("code", "exit 137")).await, Outcome::Exited(137));
    let reason =
        |how| if let Outcome::NotStarted(reason) = how { reason } else { panic!("{how:?}") };
    assert!(
        reason(how(launch("none", PLAIN, &["no-such-program"])).await).contains("no-such-program")
    );
    assert!(reason(how(launch("entry", PLAIN, &[])).await).contains("nothing to start"));
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn want_of_memory_is_told_from_other_ends() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    let hungry = machine.outcome(shell("direct", "exec tail -c 200m /dev/zero")).await;
    assert_eq!(hungry.end.outcome, Outcome::OutOfMemory);
    let below = machine.outcome(shell("below", "tail -c 200m /dev/zero")).await;
    assert_eq!(below.end.outcome, Outcome::OutOfMemory);
    let recovered = machine.outcome(shell("recovered", "tail -c 200m /dev/zero; exit 4")).await;
    assert_eq!(recovered.end.outcome, Outcome::Exited(4));
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_runs_out_for_who_listens_and_for_who_does_not() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    // The shell has to listen before its time is up, and to print within the grace.
    let polite = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.02; done";
    let polite = Launch { grace: Duration::from_secs(5), ..shell("polite", polite) };
    let polite = machine.outcome(within(polite, Duration::from_secs(3))).await;
    assert_eq!(
        (polite.end.outcome, polite.out.as_slice()),
        (Outcome::TimedOut, b"bye\n".as_slice())
    );
    let deaf =
        "trap '' TERM; setsid sh -c \"trap '' TERM; sleep 1000\" & while :; do sleep 0.02; done";
    let deaf = machine.outcome(within(shell("deaf", deaf), Duration::from_millis(300))).await;
    assert_eq!(deaf.end.outcome, Outcome::TimedOut);
    let took = deaf.end.ended_at.since(deaf.end.started_at.unwrap());
    assert!((800..10_000).contains(&took), "the time and the grace: {took} ms");
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_work_ends() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    let instance = machine.launch(shell("long", "echo on; while :; do sleep 0.02; done")).await;
    let interrupt = async { machine.control.interrupt(&instance).await.unwrap() };
    let (seen, ()) = tokio::join!(machine.attend(&instance, 0), interrupt);
    assert_eq!(seen.unwrap().end.outcome, Outcome::Interrupted);
    machine.control.retire(&instance).await.unwrap();
    assert!(machine.control.interrupt(&instance).await.is_err());
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_ended_before_the_start_is_not_waited_for() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    let replica = Launch { serves: Some(80), ..shell("replica", "sleep 1000") };
    let instance = machine.launch(replica).await;
    drop(machine);
    place.kill(&instance);
    let machine = place.start();
    assert!(!machine.control.runs(&instance));
    let interrupted = timeout(PATIENCE, machine.control.interrupt(&instance)).await;
    assert!(interrupted.expect("it can never wake").is_err());
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_attends_hears_when_the_instance_is_gone() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    assert!(machine.attend(&name("nobody"), 0).await.is_err());
    let instance = machine.launch(shell("doomed", "sleep 1000")).await;
    let (seen, retired) =
        tokio::join!(machine.attend(&instance, 0), machine.control.retire(&instance));
    retired.unwrap();
    // The attending call may have been faster, or not.
    assert!(seen.map_or(true, |seen| matches!(seen.end.outcome, Outcome::Lost(_))));
    assert!(machine.attend(&instance, 0).await.is_err());
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_sleeps_after_its_end_tells_it_once_more() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    let instance = machine.launch(shell("tired", "echo done; exit 3")).await;
    let first = machine.attend(&instance, 0).await.unwrap();
    machine.control.rest(&instance).await.unwrap();
    machine.control.rest(&instance).await.unwrap();
    drop(machine);
    let machine = place.start();
    let again = machine.attend(&instance, 0).await.unwrap();
    assert_eq!((again.end, again.out), (first.end, first.out));
    machine.control.rest(&instance).await.unwrap();
    machine.control.retire(&instance).await.unwrap();
    assert!(machine.control.rest(&instance).await.is_err());
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_behind_ends_with_the_work() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    let begun = Instant::now();
    let script = "setsid sleep 1000 & (trap '' TERM HUP; sleep 1000) & echo done; exit 7";
    let seen = machine.outcome(shell("parent", script)).await;
    assert_eq!((seen.end.outcome, seen.out.as_slice()), (Outcome::Exited(7), b"done\n".as_slice()));
    assert!(begun.elapsed() < Duration::from_secs(30));
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_runs_as_the_user_of_its_image_with_its_variables_and_folders() {
    let place = Place::new(&[HUMBLE]);
    let machine = place.start();
    let script = "id -u; id -G; echo $GREETING $HOME; echo x > /data/x && cat /data/x";
    let mut launch = launch("humble", HUMBLE, &[script]);
    launch.scratch =
        vec![Scratch { path: "/data".into(), size_mb: 8, read_only: false, medium: Medium::Disk }];
    let seen = machine.outcome(launch).await;
    assert_eq!(String::from_utf8(seen.out).unwrap(), "1000\n1000 50\nhello /\nx\n");
    assert_eq!(seen.end.outcome, Outcome::Exited(0));
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_at_once() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    let names: Vec<String> = (0..50).map(|number| format!("one-{number}")).collect();
    let all = names.iter().enumerate().map(|(number, name)| {
        let machine = &machine;
        async move {
            let seen =
                machine.outcome(shell(name, &format!("echo {number}; exit {}", number % 7))).await;
            assert_eq!(seen.end.outcome, Outcome::Exited(i32::try_from(number % 7).unwrap()));
            assert_eq!(seen.out, format!("{number}\n").into_bytes());
        }
    });
    futures_util::future::join_all(all).await;
    assert_eq!(machine.control.instances(), []);
    machine.clear().await;
}
