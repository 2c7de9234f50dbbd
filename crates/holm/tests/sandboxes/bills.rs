//! Sandboxes are billed for the time they ran, even when everything is killed.

use crate::setup::{Client, Place, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

const GIGABYTES: f64 = 0.5;
/// Error of a clock with whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

/// Returns the seconds for which a sandbox is billed.
fn billed(client: &Client, name: &str) -> f64 {
    let account = client.done("GET", "/v0/accounts", None)[0]["id"].as_str().unwrap().to_owned();
    let window = "startTime=2020-01-01T00:00:00Z&endTime=2100-01-01T00:00:00Z";
    let path = format!(
        "/v0/accounts/{account}/metrics?{window}&groupBy=billing_dimension&resourceName={name}"
    );
    let answer = client.done("GET", &path, None);
    let Some(entry) = answer["data"].get(0) else { return 0.0 };
    assert_eq!(entry["billingDimension"], "sandbox_compute_runtime_gbs", "{answer}");
    assert_eq!(answer["data"].as_array().map(Vec::len), Some(1), "{answer}");
    entry["summary"]["usage"].as_f64().unwrap() / GIGABYTES
}

fn make(client: &Client, name: &str) -> (Instant, Instant) {
    let before = Instant::now();
    client.create(name, &json!({"runtime": {"image": crate::setup::IMAGE, "memory": 512}}));
    (before, Instant::now())
}

#[test]
fn a_sandbox_is_billed_for_the_time_in_which_it_ran() {
    let mut place = Place::new("15s");
    let (mut server, client) = place.start();
    let (asked, made) = make(&client, "one");
    eventually("what runs is billed while it runs", || billed(&client, "one") > 1.0);
    let least = made.elapsed();
    client.delete("one");
    let most = asked.elapsed();
    eventually("its end is known", || place.groups().is_empty());
    let mut seconds = 0.0;
    eventually("the bill stands still", || {
        let before = std::mem::replace(&mut seconds, billed(&client, "one"));
        seconds >= (least - ROUNDING).as_secs_f64() && before == seconds
    });
    assert!(
        seconds <= (most + ROUNDING).as_secs_f64(),
        "{seconds} s are billed of at most {most:?}"
    );

    server.kill();
    let (server, client) = place.start();
    assert_eq!(billed(&client, "one"), seconds, "a restart changes no bill");
    place.clear(server, &client);
}

#[test]
fn nothing_is_billed_after_the_last_proof_of_life() {
    let mut place = Place::new("15s");
    let (mut server, client) = place.start();
    let (asked, _) = make(&client, "lost");
    eventually("it is billed", || billed(&client, "lost") > 0.5);
    server.kill();
    let first = asked.elapsed();
    for group in place.groups() {
        for pid in fs::read_to_string(group.join("cgroup.procs")).unwrap().lines() {
            // It is fine if the process died together with the one before it.
            let _ = kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL);
        }
    }
    // Time in which nothing ran, and which must not be billed.
    std::thread::sleep(Duration::from_secs(2));
    let again = Instant::now();
    let (server, client) = place.start();
    eventually("it has been started anew", || {
        client.ask("GET", "/main/sandboxes/lost/health", None).is_some_and(|it| it.0 == 200)
    });
    client.delete("lost");
    let most = first + again.elapsed();
    eventually("its end is known", || place.groups().is_empty());
    let mut seconds = 0.0;
    eventually("the bill stands still", || {
        let before = std::mem::replace(&mut seconds, billed(&client, "lost"));
        before > 0.5 && before == seconds
    });
    assert!(
        seconds <= (most + ROUNDING * 2).as_secs_f64(),
        "{seconds} s are billed of at most {most:?}"
    );
    place.clear(server, &client);
}
