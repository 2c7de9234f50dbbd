//! Work instances: how the work ends, what it printed, and who may see that.

use crate::common::{Answer, Guest};
use serde_json::{Value, json};
use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};
use types::instance::{Outcome, Printed, Stream, WorkEnd};
use types::work::{Frame, Frames, INTERRUPT_PATH, PATH, SECRET_HEADER};

const SECRET: &str = "only-the-machine-knows-this";
const ROOM: usize = 1 << 20;

/// Settings of a guest, in addition to the usual ones.
struct Told<'a> {
    command: &'a [&'a str],
    data: &'a [u8],
    more: Value,
    user: &'a str,
}

fn start(told: &Told<'_>) -> Guest {
    let directory = tempfile::tempdir().unwrap();
    let mut work =
        json!({"command": told.command, "secret": SECRET, "graceMs": 200, "outputBytesMax": ROOM});
    work.as_object_mut().unwrap().extend(told.more.as_object().unwrap().clone());
    let orders = json!({"work": work, "workdir": directory.path(), "env": {"GREETING": "hello"}, "user": told.user});
    let settings = directory.path().join("orders");
    std::fs::write(&settings, [orders.to_string().as_bytes(), b"\n", told.data].concat()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Guest::start_handed_over(&listener, &settings, directory)
}

fn shell(script: &str, more: Value) -> Guest {
    start(&Told { command: &["sh", "-c", script], data: b"", more, user: "" })
}

fn follow(guest: &Guest, from: u64) -> Answer {
    guest.open("GET", &format!("{PATH}?from={from}"), &[(SECRET_HEADER, SECRET)], b"")
}

/// Reads a stream to its end; returns all output by stream, and how the work ended.
fn read(answer: &mut Answer) -> (Vec<u8>, Vec<u8>, u64, WorkEnd) {
    let (mut frames, mut out, mut err, mut last) = (Frames::default(), Vec::new(), Vec::new(), 0);
    let mut buffer = [0; 8192];
    loop {
        while let Some(frame) = frames.take().unwrap() {
            match frame {
                Frame::Printed(Printed { next, stream, bytes, .. }) => {
                    last = next;
                    match stream {
                        Stream::Stdout => out.extend(bytes),
                        Stream::Stderr => err.extend(bytes),
                    }
                }
                Frame::Ended(end) => return (out, err, last, end),
            }
        }
        let length = answer.read(&mut buffer).unwrap();
        assert!(length > 0, "the stream ends before the work");
        frames.push(&buffer[..length]);
    }
}

#[track_caller]
fn check(script: &str, more: Value, expect: Outcome) -> String {
    let guest = shell(script, more);
    let (out, _, _, end) = read(&mut follow(&guest, 0));
    assert_eq!(end.outcome, expect);
    assert!(end.started_at.is_some_and(|started_at| started_at <= end.ended_at));
    String::from_utf8(out).unwrap()
}

#[test]
fn ends_are_told_apart() {
    let plain = || json!({});
    assert_eq!(check("echo $GREETING", plain(), Outcome::Exited(0)), "hello\n");
    assert_eq!(
        check("printf 'no end of line'; exit 3", plain(), Outcome::Exited(3)),
        "no end of line"
    );
    check("kill -SEGV $$", plain(), Outcome::Killed(11));
    check("kill -KILL $$", plain(), Outcome::Killed(9));
}

#[test]
fn time_runs_out_for_who_listens_and_for_who_does_not() {
    let soon = || json!({"timeoutMs": 300});
    // The shell has to listen before its time is up, and to print within the grace.
    let later = json!({"timeoutMs": 3000, "graceMs": 5000});
    let polite = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.02; done";
    assert_eq!(check(polite, later, Outcome::TimedOut), "bye\n");
    check("trap '' TERM; while :; do sleep 0.02; done", soon(), Outcome::TimedOut);
    let begun = Instant::now();
    check("true", json!({"timeoutMs": 60_000}), Outcome::Exited(0));
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn work_can_be_interrupted_and_what_has_ended_stays_so() {
    let guest = shell("echo on; while :; do sleep 0.02; done", json!({}));
    let interrupt = || guest.send("POST", INTERRUPT_PATH, &[(SECRET_HEADER, SECRET)], b"").status;
    assert_eq!(interrupt(), 204);
    let end = read(&mut follow(&guest, 0)).3;
    assert_eq!(end.outcome, Outcome::Interrupted);
    assert_eq!(interrupt(), 204);
    assert_eq!(read(&mut follow(&guest, 0)).3, end);
}

#[test]
fn nothing_to_start_is_told_with_the_reason() {
    let reason = |command: &[&str], user: &str| {
        let guest = start(&Told { command, data: b"", more: json!({}), user });
        match read(&mut follow(&guest, 0)).3.outcome {
            Outcome::NotStarted(reason) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(reason(&[], "").contains("neither the image nor the arguments"));
    assert!(reason(&["no-such-program"], "").contains("`no-such-program`"));
    assert!(reason(&["/no/such/program"], "").contains("/no/such/program"));
    assert!(reason(&["/etc/passwd"], "").contains("/etc/passwd"));
    assert!(reason(&["true"], "nobody-here").contains("nobody-here"));
}

#[test]
fn output_can_be_read_again_from_every_position() {
    let guest = shell("echo one; echo two >&2; echo three", json!({}));
    let (out, err, last, end) = read(&mut follow(&guest, 0));
    assert_eq!((out.as_slice(), err.as_slice()), (b"one\nthree\n".as_slice(), b"two\n".as_slice()));
    assert_eq!(last, 14);
    for from in 0..=last {
        let (out, err, _, again) = read(&mut follow(&guest, from));
        assert_eq!(out.len() + err.len(), (last - from) as usize);
        assert_eq!(again, end);
    }
    let status = |from: &str| {
        guest.send("GET", &format!("{PATH}?from={from}"), &[(SECRET_HEADER, SECRET)], b"").status
    };
    assert_eq!(status("x"), 400);
}

#[test]
fn a_reader_gets_all_of_a_long_output() {
    // Five times as much as is stored, and the reader starts late.
    let guest = shell("yes 0123456789 | head -c 5000000; yes e | head -c 1000 >&2", json!({}));
    let (out, err, last, end) = read(&mut follow(&guest, 0));
    assert_eq!((out.len(), err.len(), last), (5_000_000, 1000, 5_001_000));
    assert_eq!(end.outcome, Outcome::Exited(0));
}

#[test]
fn without_a_reader_the_work_goes_on_and_the_end_of_its_output_is_kept() {
    let guest = shell("yes 0123456789 | head -c 5000000; echo last; touch done", json!({}));
    let done = guest.path().join("done");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done.exists() {
        assert!(Instant::now() < deadline, "nobody reads, and the work stands still");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (out, err, last, end) = read(&mut follow(&guest, 0));
    assert!(out.ends_with(b"0123456789\nlast\n") || out.ends_with(b"last\n"));
    let note = String::from_utf8(err).unwrap();
    let lost: u64 = note.trim_start_matches('[').split(' ').next().unwrap().parse().unwrap();
    assert_eq!((last, lost + out.len() as u64), (5_000_005, 5_000_005), "{note}");
    assert!(out.len() > ROOM / 2);
    assert_eq!(end.outcome, Outcome::Exited(0));
}

#[test]
fn a_child_that_is_left_behind_holds_nothing_up() {
    let begun = Instant::now();
    assert_eq!(check("sleep 60 & echo done", json!({}), Outcome::Exited(0)), "done\n");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn the_data_is_there_for_who_has_its_address() {
    let data = br#"{"tasks":[{"a":1},
 {"a":2}]}"#;
    let told = Told {
        command: &["sh", "-c", "echo $BL_EXECUTION_DATA_URL"],
        data,
        more: json!({}),
        user: "",
    };
    let guest = start(&told);
    let (out, ..) = read(&mut follow(&guest, 0));
    let url = String::from_utf8(out).unwrap();
    let path = url.trim().strip_prefix(&format!("http://{}", guest.address)).unwrap();
    let response = guest.get(path);
    assert_eq!((response.status, response.body.as_slice()), (200, data.as_slice()));
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(guest.delete(path).status, 405);
    // The digit 0 is not in the alphabet of the name.
    assert_eq!(guest.get(&format!("{}0", &path[..path.len() - 1])).status, 404);
    let without = shell("echo ${BL_EXECUTION_DATA_URL-none}", json!({}));
    assert_eq!(read(&mut follow(&without, 0)).0, b"none\n");
}

#[test]
fn nobody_without_the_secret_follows_or_interrupts_and_nothing_else_is_served() {
    let guest = shell("echo on; while :; do sleep 0.02; done", json!({}));
    for secret in ["", "x", "only-the-machine-knows-thi", "only-the-machine-knows-this."] {
        let headers = [(SECRET_HEADER, secret)];
        assert_eq!(guest.send("GET", PATH, &headers, b"").status, 404);
        assert_eq!(guest.send("POST", INTERRUPT_PATH, &headers, b"").status, 404);
    }
    for path in [
        "/",
        "/health",
        "/process",
        "/filesystem/etc",
        "/mcp",
        "/terminal",
        "/upgrade",
        "/execution/",
    ] {
        assert_eq!(guest.get(path).status, 404, "{path}");
        assert_eq!(guest.post(path, &json!({"command": "true"})).status, 404, "{path}");
    }
    assert_eq!(guest.send("POST", INTERRUPT_PATH, &[(SECRET_HEADER, SECRET)], b"").status, 204);
    assert_eq!(read(&mut follow(&guest, 0)).3.outcome, Outcome::Interrupted);
}
