//! Replaces the running program with another version, while everything keeps running.

use crate::common::{Guest, Response};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;
use types::guest::{PROGRAM_PATH, SECRET_HEADER, START_PATH, WANTS_HEADER, WANTS_PROGRAM};

/// Gives a fixed answer to one request; returns what was requested.
fn serve_once(status: &'static str, body: Vec<u8>) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/releases/", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut first = String::new();
        reader.read_line(&mut first).unwrap();
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        // A client that has seen enough may hang up.
        let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(&body);
        first
    });
    (address, serving)
}

fn program() -> Vec<u8> {
    std::fs::read(env!("CARGO_BIN_EXE_holm-guest")).unwrap()
}

/// Waits for the end of the last upgrade.
fn outcome(guest: &Guest) -> Value {
    let ended = |health: &Value| {
        ["completed", "failed"].iter().any(|end| health["lastUpgrade"]["status"] == *end)
    };
    guest.until_reached("/health", ended)
}

#[test]
fn what_runs_goes_on_through_an_upgrade() {
    let guest = Guest::start_with(&[("COLOUR", "red")]);
    let counting =
        "i=0; until [ -e go ]; do echo $i; i=$((i+1)); sleep 0.01; done; echo $i >&2; exit 7";
    guest.post("/process", &json!({"command": counting, "name": "counting"})).ok();
    guest.run("echo done before");
    guest
        .post(
            "/process",
            &json!({"command": "head -c 100000 /dev/zero | tr '\\0' x; sleep 100", "name": "long"}),
        )
        .ok();
    guest.until("/process/long", |process| process["stdout"].as_str().unwrap().len() == 65536);
    guest.post("/process", &json!({"command": "sleep 0.7; exit 5", "name": "between"})).ok();
    guest
        .post(
            "/process",
            &json!({"command": "sleep 1000", "name": "bounded", "keepAlive": true, "timeout": 9}),
        )
        .ok();
    let pid = guest.get("/process/counting").ok()["pid"].clone();
    guest.post("/process", &json!({"command": "cat", "name": "cat", "stdin": true})).ok();
    guest.send("POST", "/process/cat/stdin", &[], b"before, ").ok();

    let (base, serving) = serve_once("200 OK", program());
    let begun = guest.post("/upgrade", &json!({"baseUrl": base})).ok();
    assert_eq!((&begun["version"], &begun["baseUrl"]), (&json!("latest"), &json!(base)));
    let health = outcome(&guest);
    assert_eq!(
        (&health["lastUpgrade"]["status"], &health["upgradeCount"]),
        (&json!("completed"), &json!(1)),
        "{health}"
    );
    assert_eq!(health["lastUpgrade"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(health["lastUpgrade"]["bytesDownloaded"], program().len());
    assert_eq!(health["keepAliveProcesses"], 1);
    let asked = serving.join().unwrap();
    assert_eq!(
        asked,
        format!("GET /releases/latest/holm-guest-{} HTTP/1.1\r\n", std::env::consts::ARCH)
    );

    guest.send("POST", "/process/cat/stdin", &[], b"after").ok();
    guest.delete("/process/cat/stdin").ok();
    let cat = guest.until("/process/cat", |process| process["status"] != "running");
    assert_eq!(cat["stdout"], "before, after");

    std::fs::write(guest.path().join("go"), "").unwrap();
    let counted = guest.until("/process/counting", |process| process["status"] != "running");
    assert_eq!((&counted["exitCode"], &counted["pid"]), (&json!(7), &pid));
    let last: usize = counted["stderr"].as_str().unwrap().trim().parse().unwrap();
    assert_eq!(counted["stdout"], (0..last).map(|i| format!("{i}\n")).collect::<String>());
    let between = guest.until("/process/between", |process| process["status"] != "running");
    assert_eq!(between["exitCode"], 5);
    guest.until("/process/bounded", |process| process["status"] == "killed");
    assert_eq!(guest.get("/process/long/logs").ok()["stdout"], "x".repeat(100_000));
    let before = guest.get("/process").ok();
    assert_eq!(before[1]["stdout"], "done before\n");
    assert_eq!(
        guest.run("echo $COLOUR; pwd")["stdout"],
        format!("red\n{}\n", guest.path().display())
    );
    // Once more, starting from the program that the first upgrade installed.
    let (base, serving) = serve_once("200 OK", program());
    guest.post("/upgrade", &json!({"baseUrl": base, "version": env!("CARGO_PKG_VERSION")})).ok();
    guest.until_reached("/health", |health| health["upgradeCount"] == 2);
    serving.join().unwrap();
    assert_eq!(guest.run("echo still here")["stdout"], "still here\n");
}

#[test]
fn an_upgrade_that_fails_changes_nothing() {
    let guest = Guest::start();
    guest.post("/process", &json!({"command": "sleep 100", "name": "running"})).ok();
    let other = format!("#!/bin/sh\necho holm-guest {} state 999\n", env!("CARGO_PKG_VERSION"))
        .into_bytes();
    let cases = [
        ("404 Not Found", Vec::new(), "404"),
        ("200 OK", b"no program".to_vec(), "cannot be run"),
        ("200 OK", b"#!/bin/sh\nexit 1\n".to_vec(), "fails to tell"),
        ("200 OK", b"#!/bin/sh\necho something else\n".to_vec(), "something else"),
        ("200 OK", other, "another kind of state"),
    ];
    for (status, body, why) in cases {
        let (base, serving) = serve_once(status, body);
        guest.post("/upgrade", &json!({"baseUrl": base})).ok();
        let last = outcome(&guest)["lastUpgrade"].clone();
        assert_eq!(last["status"], "failed");
        assert!(last["error"].as_str().unwrap().contains(why), "{last}");
        serving.join().unwrap();
    }
    let (base, serving) = serve_once("200 OK", program());
    guest.post("/upgrade", &json!({"baseUrl": base, "version": "9.9.9"})).ok();
    let last = outcome(&guest)["lastUpgrade"].clone();
    assert!(last["error"].as_str().unwrap().contains("it is version"), "{last}");
    serving.join().unwrap();
    guest.send("POST", "/upgrade", &[], b"").ok();
    assert!(outcome(&guest)["lastUpgrade"]["error"].as_str().unwrap().contains("no address"));
    let configured = Guest::start_with(&[("HOLM_GUEST_UPGRADE_URL", "http://127.0.0.1:1")]);
    configured.send("POST", "/upgrade", &[], b"").ok();
    assert!(
        outcome(&configured)["lastUpgrade"]["error"]
            .as_str()
            .unwrap()
            .contains("cannot be reached")
    );
    guest.post("/upgrade", &json!({"baseUrl": "ftp://x/"})).refused(400);
    guest.post("/upgrade", &json!({"version": "../x"})).refused(400);
    for body in ["[]", "null", "7", "\"latest\"", "[\"latest\"]", "{"] {
        guest.send("POST", "/upgrade", &[], body.as_bytes()).refused(400);
        assert_ne!(guest.get("/health").ok()["lastUpgrade"]["status"], "running", "{body}");
    }
    assert_eq!(guest.get("/health").ok()["upgradeCount"], 0);
    assert_eq!(guest.get("/process/running").ok()["status"], "running");
}

/// Starts a guest whose machine identifies itself with this secret.
fn of_machine(secret: &str) -> Guest {
    let directory = tempfile::tempdir().unwrap();
    let settings = directory.path().join("settings");
    let given = json!({"secret": secret, "workdir": directory.path(), "env": {"PATH": std::env::var("PATH").unwrap()}});
    std::fs::write(&settings, given.to_string()).unwrap();
    Guest::start_handed_over(&TcpListener::bind("127.0.0.1:0").unwrap(), &settings, directory)
}

fn hand_over(guest: &Guest, secret: &str, program: &[u8]) -> Response {
    guest.send("PUT", PROGRAM_PATH, &[(SECRET_HEADER, secret)], program)
}

#[test]
fn the_machine_hands_over_its_own_program_to_those_who_name_no_other() {
    let guest = of_machine("s3cret");
    // Small bodies, because a refusal comes before the end of the body.
    hand_over(&guest, "s3cret", b"early").refused(409);
    let begun = guest.send("POST", "/upgrade", &[], b"");
    assert_eq!((begun.status, begun.header(WANTS_HEADER)), (200, Some(WANTS_PROGRAM)));
    // Only one upgrade at a time.
    guest.post("/upgrade", &json!({})).refused(409);
    // Callers other than the machine can hand over nothing, and cannot disturb.
    for wrong in ["", "s3cre", "s3cretx", "other"] {
        hand_over(&guest, wrong, b"#!/bin/sh\nexit 1\n").refused(404);
    }
    guest.send("PUT", PROGRAM_PATH, &[], b"anybody").refused(404);
    assert_eq!(guest.get("/health").ok()["lastUpgrade"]["step"], "download");
    assert_eq!(hand_over(&guest, "s3cret", &program()).status, 204);
    let health = outcome(&guest);
    assert_eq!(
        (&health["lastUpgrade"]["status"], &health["upgradeCount"]),
        (&json!("completed"), &json!(1)),
        "{health}"
    );
    assert_eq!(health["lastUpgrade"]["bytesDownloaded"], program().len());
    // The program that took over also recognizes the machine; a file that is not a program changes
    // nothing.
    guest.post("/upgrade", &json!({})).ok();
    assert_eq!(hand_over(&guest, "s3cret", b"no program").status, 204);
    let last = outcome(&guest)["lastUpgrade"].clone();
    assert!(last["error"].as_str().unwrap().contains("cannot be run"), "{last}");
    guest.post("/upgrade", &json!({"version": "9.9.9"})).ok();
    hand_over(&guest, "s3cret", &program());
    let last = outcome(&guest)["lastUpgrade"].clone();
    assert!(last["error"].as_str().unwrap().contains("it is version"), "{last}");
}

#[test]
fn the_machine_is_told_that_the_program_of_the_image_failed() {
    let told = |start: Value| {
        let directory = tempfile::tempdir().unwrap();
        let settings = directory.path().join("settings");
        let given = json!({"secret": "s3cret", "workdir": directory.path(), "start": start});
        std::fs::write(&settings, given.to_string()).unwrap();
        let guest = Guest::start_handed_over(
            &TcpListener::bind("127.0.0.1:0").unwrap(),
            &settings,
            directory,
        );
        guest.get(START_PATH).refused(404);
        let answer = guest.send("GET", START_PATH, &[(SECRET_HEADER, "s3cret")], b"");
        (answer.status, answer.text())
    };
    assert_eq!(told(json!(["/bin/sh", "-c", "exit 3"])), (200, "it ended with code 3".to_owned()));
    assert_eq!(
        told(json!(["/bin/sh", "-c", "kill -9 $$"])),
        (200, "it was killed by signal 9".to_owned())
    );
    let (status, why) = told(json!(["/nothing/here"]));
    assert!(status == 200 && why.contains("failed to start"), "{why}");
    assert_eq!(told(json!(["/bin/true"])), (204, String::new()));
    assert_eq!(told(json!([])), (204, String::new()));
}
