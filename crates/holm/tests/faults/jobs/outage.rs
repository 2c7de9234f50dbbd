//! A task that ends while the database is away.

use super::process::Process;
use super::tasks::IMAGE;
use super::{Sweep, leave_nothing, make_image};
use crate::client::{Answer, Client};
use crate::setup::{Database, Place};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use testing::machine;

const PATIENCE: Duration = Duration::from_secs(60);
const EXECUTION: &str = "/jobs/patient/executions/one";

#[test]
fn a_task_that_ends_while_the_database_is_away_sleeps_until_it_is_back() {
    ends_meanwhile(false);
}

#[test]
fn a_task_that_sleeps_after_its_end_is_found_by_the_next_server() {
    ends_meanwhile(true);
}

fn ends_meanwhile(is_server_killed: bool) {
    let mut place = Place::new(Database::Postgres);
    make_image(&place);
    place.settings = machine::settings();
    let _sweep = Sweep(place.data().to_owned());
    let (mut server, mut client, _) = place.start();
    begin(&client);
    let group = until(|| machine::groups(place.data()).unwrap().pop());
    let task = until(|| waiting_in(&group));
    place.cluster.as_mut().unwrap().kill();
    kill_process(task, Signal::USR1).unwrap();
    until(|| machine::is_frozen(&group).then_some(()));
    if is_server_killed {
        server.kill();
    }
    place.cluster.as_mut().unwrap().restart().expect("PostgreSQL starts again");
    if is_server_killed {
        (server, client, _) = place.start();
    }
    let ended = until(|| ended(&client));
    assert_eq!(ended["status"], "succeeded", "{ended}");
    assert_eq!(ended["stats"]["retried"], 0, "{ended}");
    leave_nothing(server, &place);
}

fn begin(client: &Client) {
    let runtime = json!({"image": IMAGE, "memory": 128});
    client.post("/jobs", &json!({"metadata": {"name": "patient"}, "spec": {"runtime": runtime}}));
    let tasks = json!([{"act": "wait", "token": "done"}]);
    client.post("/jobs/patient/executions", &json!({"executionId": "one", "tasks": tasks}));
}

/// Returns the execution once it has ended. The server may not have found the database again yet.
fn ended(client: &Client) -> Option<Value> {
    let Answer::Done { body, .. } = client.ask("GET", EXECUTION, None, None) else { return None };
    ["succeeded", "failed"].iter().any(|end| body["status"] == *end).then_some(body)
}

/// Returns the process of the task once it waits for a signal.
fn waiting_in(group: &Path) -> Option<Pid> {
    let listed = std::fs::read_to_string(group.join("cgroup.procs")).ok()?;
    let waits = |process: &&str| {
        let line = std::fs::read(format!("/proc/{process}/cmdline"));
        line.is_ok_and(|line| line.starts_with(b"/bin/sh\0/act"))
            && Process::read(process).is_some_and(|process| process.heeds_usr1)
    };
    Pid::from_raw(listed.lines().find(waits)?.parse().ok()?)
}

#[track_caller]
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain");
        thread::sleep(Duration::from_millis(20));
    }
}
