//! What work prints, who gets it, and how often.

use crate::place::{PLAIN, Place, Running, SHELL, launch, shell};
use bytes::Bytes;
use control::machine::{Launch, Machine, Work};
use std::time::Duration;
use types::instance::Outcome;

#[tokio::test(flavor = "multi_thread")]
async fn all_of_a_long_output_arrives_and_may_be_read_again() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    let mut long = shell("long", "yes 0123456789 | head -c 5000000; printf 'no end' >&2");
    long.memory_mb = 256;
    let instance = machine.launch(long).await;
    let seen = machine.attend(&instance, 0).await.unwrap();
    assert_eq!(
        (seen.out.len(), seen.err.as_slice(), seen.last),
        (5_000_000, b"no end".as_slice(), 5_000_006)
    );
    let again = machine.attend(&instance, 0).await.unwrap();
    assert_eq!((again.out == seen.out, again.end), (true, seen.end.clone()));
    let tail = machine.attend(&instance, 4_999_995).await.unwrap();
    assert_eq!(tail.out.len() + tail.err.len(), 11);
    assert_eq!(machine.attend(&instance, seen.last).await.unwrap().end, seen.end);
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_run_of_the_program_goes_on_where_the_last_one_was() {
    let place = Place::new(&[SHELL, PLAIN]);
    let machine = place.start();
    let script = "echo one; until [ -e /tmp/go ]; do sleep 0.01; done; echo two; exit 5";
    let instance = machine.launch(shell("steady", script)).await;
    let serving = Launch { work: None, ..launch("serving", PLAIN, &[]) };
    machine.launch(serving).await;
    // The first line must have been printed before the interrupt, or it would be missing.
    let (pieces, mut printed) = tokio::sync::mpsc::channel(8);
    tokio::select! {
        ended = machine.control.attend(&instance, 0, pieces) => panic!("it ended: {ended:?}"),
        first = printed.recv() => assert!(first.is_some()),
    }
    drop(printed);
    drop(machine);

    let machine = place.start();
    // The standby knows instances that serve, but not those with work.
    assert!(machine.gateway.standby().look("serving").is_some());
    assert!(machine.gateway.standby().look(instance.as_str()).is_none());
    let interrupt = async { machine.control.interrupt(&instance).await.unwrap() };
    let (seen, ()) = tokio::join!(machine.attend(&instance, 0), interrupt);
    let seen = seen.unwrap();
    assert_eq!(
        (seen.end.outcome, seen.out.as_slice()),
        (Outcome::Interrupted, b"one\n".as_slice())
    );
    machine.clear().await;
}

fn with_data(launch: Launch, data: &str) -> Launch {
    let work = launch.work.map(|work| Work { data: Bytes::from(data.to_owned()), ..work });
    Launch { work, ..launch }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_work_fetches_its_data_without_credentials() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    let many = format!("{{\"tasks\":[{{\"text\":\"{}\"}},\n{{}}]}}", "x".repeat(3_000_000));
    let script =
        "wget -q -O - $BL_EXECUTION_DATA_URL | md5sum; wget -q -O - $BL_EXECUTION_DATA_URL | wc -c";
    let mut launch = with_data(shell("reader", script), &many);
    launch.memory_mb = 128;
    let seen = machine.outcome(launch).await;
    let out = String::from_utf8(seen.out).unwrap();
    assert!(out.ends_with(&format!("\n{}\n", many.len())), "{out}");
    let without = machine.outcome(shell("without", "echo ${BL_EXECUTION_DATA_URL-none}")).await;
    assert_eq!(without.out, b"none\n");
    machine.clear().await;
}

/// Runs a script that tries something forbidden and then goes on.
async fn attempt(machine: &Running, name: &str, script: &str) -> (Outcome, String) {
    let mut launch = with_data(shell(name, script), "[]");
    launch.work.as_mut().unwrap().timeout = Some(Duration::from_secs(20));
    let seen = machine.outcome(launch).await;
    (seen.end.outcome, String::from_utf8(seen.out).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inside_forges_nothing() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    let ask = "ask() { (printf \"$1 $2 HTTP/1.0\\r\\nHost: x\\r\\nx-holm-work: $3\\r\\n\\r\\n\"; sleep 0.3) | nc 127.0.0.1 8080 | head -1 | tr -d '\\r'; }; ";
    let requests = "ask GET /work x; ask POST /work/interrupt x; ask POST /work/interrupt; ask POST /process; ask GET /health; exit 3";
    let (how, out) = attempt(&machine, "asks", &format!("{ask}{requests}")).await;
    assert_eq!((how, out), (Outcome::Exited(3), "HTTP/1.0 404 Not Found\n".repeat(5)));
    // It can neither end nor stop the first process, nor read what that one knows.
    let signals =
        "for s in TERM INT HUP QUIT KILL STOP USR1; do kill -$s 1; done; sleep 0.1; exit 4";
    assert_eq!(attempt(&machine, "signals", signals).await.0, Outcome::Exited(4));
    let reads = "cat /proc/1/environ; cat /proc/1/maps; readlink /proc/1/fd/3; dd if=/proc/1/mem bs=1 count=1; exit 5";
    assert_eq!(attempt(&machine, "reads", reads).await, (Outcome::Exited(5), String::new()));
    machine.clear().await;
}
