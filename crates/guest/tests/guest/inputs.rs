//! Writes to processes that take input.

use crate::common::{Guest, Response};
use serde_json::{Value, json};

fn start(guest: &Guest, name: &str, command: &str) -> Value {
    guest.post("/process", &json!({"command": command, "name": name, "stdin": true})).ok()
}

fn write(guest: &Guest, name: &str, bytes: &[u8]) -> Response {
    guest.send("POST", &format!("/process/{name}/stdin"), &[], bytes)
}

fn close(guest: &Guest, name: &str) -> Response {
    guest.delete(&format!("/process/{name}/stdin"))
}

fn ended(guest: &Guest, name: &str) -> Value {
    guest.until(&format!("/process/{name}"), |process| process["status"] != "running")
}

#[test]
fn what_is_written_is_read_in_order_up_to_the_end() {
    let guest = Guest::start();
    let process = start(&guest, "cat", "cat; echo over");
    assert_eq!(process["stdin"], true);
    write(&guest, "cat", b"one\n").ok();
    // By its number too, as of everything that names a process.
    write(&guest, process["pid"].as_str().unwrap(), b"\xFF two\n").ok();
    guest.until("/process/cat", |process| process["stdout"] == "one\n\u{FFFD} two\n");
    close(&guest, "cat").ok();
    assert_eq!(ended(&guest, "cat")["stdout"], "one\n\u{FFFD} two\nover\n");
    close(&guest, "cat").ok();
    assert_eq!(write(&guest, "cat", b"late").status, 409);
}

#[test]
fn more_than_the_pipe_holds_is_written_as_it_is_read() {
    let guest = Guest::start();
    start(&guest, "count", "wc -c");
    let most = vec![b'x'; 8 << 20];
    write(&guest, "count", &most).ok();
    let refused = write(&guest, "count", &[most.as_slice(), b"x"].concat());
    assert_eq!(refused.status, 413);
    close(&guest, "count").ok();
    assert_eq!(ended(&guest, "count")["stdout"], format!("{}\n", most.len()));
}

#[test]
fn what_cannot_be_written_is_refused() {
    let guest = Guest::start();
    guest.post("/process", &json!({"command": "sleep 100", "name": "deaf"})).ok();
    assert_eq!(guest.get("/process/deaf").ok()["stdin"], Value::Null);
    for refused in [write(&guest, "deaf", b"x"), close(&guest, "deaf")] {
        assert_eq!(refused.status, 409);
        assert!(refused.json()["error"].as_str().unwrap().contains("`stdin: true`"));
    }
    assert_eq!(write(&guest, "nobody", b"x").status, 404);
    assert_eq!(guest.get("/process/deaf/stdin").status, 405);
    // It closes its input itself, and goes on.
    start(&guest, "closes", "exec <&-; echo closed; sleep 100");
    guest.until("/process/closes", |process| process["stdout"] == "closed\n");
    assert_eq!(write(&guest, "closes", b"x").status, 409);
}

#[test]
fn each_restart_reads_an_input_of_its_own() {
    let guest = Guest::start();
    let process = json!({
        "command": "read line; echo got $line; exit 1", "name": "again", "stdin": true,
        "restartOnFailure": true, "maxRestarts": 1,
    });
    guest.post("/process", &process).ok();
    write(&guest, "again", b"first\n").ok();
    guest.until("/process/again", |process| process["restartCount"] == 1);
    write(&guest, "again", b"second\n").ok();
    assert_eq!(ended(&guest, "again")["stdout"], "got first\ngot second\n");
}
