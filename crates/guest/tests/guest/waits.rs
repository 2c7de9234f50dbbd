//! Waits for the ends of processes.

use crate::common::Guest;
use serde_json::json;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn a_wait_ends_with_the_process() {
    let guest = Guest::start();
    guest.post("/process", &json!({"command": "echo out; sleep 0.5; exit 3", "name": "a/b"})).ok();
    let waited = guest.get("/process/a%2Fb/wait?timeout=30").ok();
    assert_eq!((&waited["status"], &waited["exitCode"]), (&json!("failed"), &json!(3)));
    assert_eq!(waited["stdout"], "out\n");
    assert_eq!(waited, guest.get("/process/a%2Fb").ok());
    // What has ended already is answered at once, by name and by pid.
    let path = format!("/process/{}/wait", waited["pid"].as_str().unwrap());
    assert_eq!(guest.get(&path).ok(), waited);
}

#[test]
fn a_wait_that_is_over_shows_the_process_as_it_is() {
    let guest = Guest::start();
    guest.post("/process", &json!({"command": "sleep 100", "name": "slow"})).ok();
    let begun = Instant::now();
    for seconds in [0, 1] {
        let waited = guest.get(&format!("/process/slow/wait?timeout={seconds}")).ok();
        assert_eq!(waited["status"], "running");
    }
    assert!(begun.elapsed() >= Duration::from_secs(1), "it did not wait");
}

#[test]
fn a_wait_sees_a_kill_and_the_last_of_several_runs() {
    let guest = Guest::start();
    guest.post("/process", &json!({"command": "sleep 100", "name": "killed"})).ok();
    let again = json!({"command": "sleep 0.2; false", "name": "again", "restartOnFailure": true, "maxRestarts": 2});
    guest.post("/process", &again).ok();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| guest.get("/process/killed/wait?timeout=30").ok());
        guest.delete("/process/killed/kill").ok();
        assert_eq!(waits.join().unwrap()["status"], "killed");
    });
    let waited = guest.get("/process/again/wait?timeout=30").ok();
    assert_eq!((&waited["status"], &waited["restartCount"]), (&json!("failed"), &json!(2)));
}

#[test]
fn a_wait_has_bounds_and_a_process() {
    let guest = Guest::start();
    guest.post("/process", &json!({"command": "sleep 100", "name": "slow"})).ok();
    for wrong in ["-1", "601", "1.5", "soon", "1e3", "99999999999999999999", "%00"] {
        let why = guest.get(&format!("/process/slow/wait?timeout={wrong}")).refused(400);
        assert!(why.contains("from 0 to 600"), "{why}");
    }
    guest.get("/process/nobody/wait?timeout=1").refused(404);
    assert_eq!(guest.send("POST", "/process/slow/wait", &[], b"").status, 405);
}

#[test]
fn only_so_many_wait_and_those_who_hang_up_do_not() {
    let guest = Guest::start();
    guest.post("/process", &json!({"command": "sleep 100", "name": "slow"})).ok();
    guest
        .post("/process", &json!({"command": "true", "name": "done", "waitForCompletion": true}))
        .ok();
    let ask = "GET /process/slow/wait?timeout=600 HTTP/1.1\r\nHost: sandbox\r\n\r\n";
    let waiting: Vec<TcpStream> = (0..512)
        .map(|_| {
            let mut stream = TcpStream::connect(&guest.address).unwrap();
            stream.write_all(ask.as_bytes()).unwrap();
            stream
        })
        .collect();
    let one_more = "/process/slow/wait?timeout=0";
    let refused = guest.until(one_more, |answer| answer["status"].is_null());
    assert!(refused["error"].as_str().unwrap().contains("512"), "{refused}");
    assert_eq!(guest.get(one_more).status, 503);
    // Everything else is served, also the process that has ended.
    guest.get("/process/slow").ok();
    guest.get("/process/done/wait").ok();
    drop(waiting);
    guest.until(one_more, |answer| answer["status"] == "running");
}
