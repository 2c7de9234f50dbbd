//! The duties of the first process of a machine: it reaps orphans, and ends when asked to.

use crate::common::Guest;
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Returns the children that `/proc` lists for a process, in the pid namespace of the test.
fn children(pid: u32) -> Vec<String> {
    let listed =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().map(str::to_owned).collect()
}

pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn check_orphans(guest: &Guest, guest_pid: u32) {
    // Orphans end while processes with other exit codes run, and must not change these.
    let command = "for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.0$i; exit 99) & (setsid sh -c 'exit 98' &) ; done; exit 42";
    for _ in 0..20 {
        assert_eq!(guest.run(command)["exitCode"], 42);
    }
    until("orphans are left", || children(guest_pid).is_empty());
}

#[track_caller]
fn check_left_behind(guest: &Guest) {
    let begun = Instant::now();
    let process = guest.run("setsid sleep 100 & echo $!; exit 3");
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!((&process["exitCode"], &process["status"]), (&json!(3), &json!("failed")));
    guest.run(&format!("kill {}", process["stdout"].as_str().unwrap().trim()));
}

#[test]
fn orphans_disturb_nobody_and_are_reaped() {
    let guest = Guest::start();
    check_orphans(&guest, guest.pid());
    check_left_behind(&guest);
}

#[test]
fn asked_to_end_it_lets_everything_end_first() {
    let mut guest = Guest::start();
    let polite = "trap 'echo bye > said; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    guest.post("/process", &json!({"command": polite, "name": "polite"})).ok();
    guest.until("/process/polite", |process| process["stdout"] == "ready\n");
    guest.run("kill -TERM $PPID");
    assert!(guest.wait().success());
    assert_eq!(std::fs::read_to_string(guest.path().join("said")).unwrap(), "bye\n");
}

#[test]
fn what_does_not_end_in_time_is_killed() {
    let mut guest = Guest::start();
    guest
        .post(
            "/process",
            &json!({"command": "trap '' TERM; echo $$; while :; do sleep 1; done", "name": "deaf"}),
        )
        .ok();
    let deaf =
        guest.until("/process/deaf", |process| process["stdout"].as_str().unwrap().ends_with('\n'));
    let begun = Instant::now();
    guest.run("kill -TERM $PPID");
    let status = guest.wait();
    assert!(status.success(), "{:?}", status.signal());
    assert!(begun.elapsed() < Duration::from_secs(15));
    let pid = deaf["stdout"].as_str().unwrap().trim().to_owned();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

/// As root of a pid namespace of its own.
#[test]
fn as_the_first_process_it_does_the_same() {
    if Command::new("unshare")
        .args(["--pid", "--fork", "true"])
        .status()
        .is_ok_and(|status| !status.success())
    {
        eprintln!("this needs the right to make a space of process numbers");
        return;
    }
    let mut guest =
        Guest::start_by(&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"], &[]);
    assert_eq!(guest.run("echo $PPID")["stdout"], "1\n");
    let pid = children(guest.pid())[0].parse().unwrap();
    check_orphans(&guest, pid);
    check_left_behind(&guest);
    guest.post("/process", &json!({"command": "sleep 1000"})).ok();
    guest.run("kill -TERM 1");
    assert!(guest.wait().success());
}
