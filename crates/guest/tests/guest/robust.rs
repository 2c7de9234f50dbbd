//! Input that is too large, too slow or too odd is limited, and other callers are still served.

use crate::common::Guest;
use crate::processes::stream;
use crate::terminals::Client;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;

/// The program itself, and two bodies of the largest size: the next one may begin to arrive before
/// the last one is let go.
const MEMORY_KIB_MAX: u64 = 56 << 10;

#[track_caller]
fn check_small(guest: &Guest) {
    assert_eq!(guest.run("echo hi")["stdout"], "hi\n");
    assert!(guest.peak_kib() < MEMORY_KIB_MAX, "{} KiB", guest.peak_kib());
}

/// Returns the bytes on disk of the files that it has open.
fn stored(guest: &Guest) -> u64 {
    let open = std::fs::read_dir(format!("/proc/{}/fd", guest.pid())).unwrap().flatten();
    open.filter_map(|fd| std::fs::metadata(fd.path()).ok())
        .filter(std::fs::Metadata::is_file)
        .map(|file| file.blocks() * 512)
        .sum()
}

#[test]
fn output_without_end_takes_bounded_disk_and_memory() {
    let guest = Guest::start();
    let process = guest.run("head -c 300000000 /dev/zero; echo end");
    assert!(process["stdout"].as_str().unwrap().ends_with("end\n"));
    assert!(stored(&guest) <= 65 << 20, "{} bytes", stored(&guest));
    check_small(&guest);
}

#[test]
fn a_reader_that_does_not_read_holds_nobody_up() {
    let guest = Guest::start();
    let unread = stream(&guest, &json!({"command": "yes", "name": "endless"}));
    let unread_text = guest.open("GET", "/process/endless/logs/stream", &[], b"");
    guest.run("head -c 100000000 /dev/zero");
    check_small(&guest);
    drop((unread, unread_text));
    assert_eq!(guest.get("/process/endless").ok()["status"], "running");
}

#[test]
fn a_body_of_any_length_is_refused_in_time() {
    let guest = Guest::start();
    for path in ["/process", "/mcp", "/drives/mount"] {
        check_refused(&guest, path, &format!("Content-Length: {}", 10_u64 << 30), "");
        check_refused(&guest, path, "Transfer-Encoding: chunked", "100000\r\n");
    }
    check_small(&guest);
}

fn check_refused(guest: &Guest, path: &str, header: &str, before_each: &str) {
    let mut stream = TcpStream::connect(&guest.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "POST {path} HTTP/1.1\r\nHost: sandbox\r\n{header}\r\n\r\n").unwrap();
    let after_each = if before_each.is_empty() { "" } else { "\r\n" };
    let piece = format!("{before_each}{}{after_each}", " ".repeat(1 << 20)).into_bytes();
    // The server stops reading at its limit; what is still on the way then breaks the connection.
    let sent = (0..64).take_while(|_| stream.write_all(&piece).is_ok()).count();
    assert!(sent < 64, "{path} reads on and on");
    let mut answer = String::new();
    let _ = BufReader::new(&stream).read_line(&mut answer);
    assert!(answer.is_empty() || answer.contains(" 413 "), "{answer}");
}

#[test]
fn callers_that_dawdle_hold_nobody_up() {
    let guest = Guest::start();
    let dawdlers: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut stream = TcpStream::connect(&guest.address).unwrap();
            let half = if number % 2 == 0 {
                "GET /hea"
            } else {
                "POST /process HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"
            };
            stream.write_all(half.as_bytes()).unwrap();
            stream
        })
        .collect();
    check_small(&guest);
    drop(dawdlers);
}

#[test]
fn a_flood_of_terminal_messages_is_bounded() {
    let guest = Guest::start();
    let mut client = Client::connect(&guest, "sessionId=flood");
    client.type_in("stty -echo; echo on''line; sleep 1000\n");
    client.until("online\r\n");
    let mut other = Client::connect(&guest, "sessionId=other");
    let input = json!({"type": "input", "data": "x".repeat(10_000)}).to_string();
    client.0.get_mut().set_nonblocking(true).unwrap();
    // What cannot be sent any more waits here, not there.
    (0..5000).take_while(|_| client.0.send(Message::text(input.clone())).is_ok()).count();
    other.type_in("echo $((1+1))others\n");
    other.until("2others");
    check_small(&guest);
    let mut large = Client::connect(&guest, "sessionId=large");
    let _ = large
        .0
        .send(Message::text(json!({"type": "input", "data": "x".repeat(4_000_000)}).to_string()));
    let last = std::iter::from_fn(|| large.0.read().ok()).last();
    let Some(Message::Close(Some(close))) = last else { panic!("{last:?}") };
    assert_eq!(u16::from(close.code), 1009, "{close}");
    assert!(close.reason.contains("larger than 1048576 bytes"), "{close}");
    check_small(&guest);
}

#[test]
fn broken_parts_of_a_form_are_refused() {
    let guest = Guest::start();
    let id = guest.send("POST", "/filesystem-multipart/initiate/file", &[], b"").ok()["uploadId"]
        .clone();
    let path = format!("/filesystem-multipart/{}/part?partNumber=1", id.as_str().unwrap());
    let put = |kind: &str, body: &[u8]| {
        guest.send("PUT", &path, &[("Content-Type", kind)], body).refused(400)
    };
    put("application/json", b"{}");
    put("multipart/form-data", b"--b\r\n\r\n");
    put("multipart/form-data; boundary=b", b"");
    put(
        "multipart/form-data; boundary=b",
        b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nhalf",
    );
    put(
        "multipart/form-data; boundary=b",
        b"--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n--b--\r\n",
    );
    put("multipart/form-data; boundary=b", &[b"--b\r\n".as_slice(), &[b'a'; 1 << 20]].concat());
    assert_eq!(
        guest.get(&format!("/filesystem-multipart/{}/parts", id.as_str().unwrap())).ok()["parts"],
        json!([])
    );
}

#[test]
fn any_bytes_of_output_and_any_names_are_shown_as_text() {
    let guest = Guest::start();
    let process = guest.run("printf '\\000\\377\\033[31m\\360\\237'");
    assert_eq!(process["stdout"], "\0\u{fffd}\u{1b}[31m\u{fffd}");
    let name = "päivä/\u{202e}\n %2F";
    guest
        .post("/process", &json!({"command": "true", "name": name, "waitForCompletion": true}))
        .ok();
    assert_eq!(guest.get("/process/p%C3%A4iv%C3%A4%2F%E2%80%AE%0A%20%252F").ok()["name"], name);
    let (status, headers) = {
        let answer = stream(&guest, &json!({"command": "true", "name": "a\nb"}));
        (answer.status, answer.headers.clone())
    };
    assert_eq!(status, 200);
    assert!(!headers.iter().any(|(header, _)| header == "x-process-name"));
}

#[test]
fn processes_and_files_belong_to_the_configured_user() {
    if !is_root() {
        eprintln!("only root can become somebody else");
        return;
    }
    let guest =
        Guest::start_with(&[("BL_SANDBOX_USER", "4242:4243"), ("BL_SANDBOX_USER_ENABLED", "true")]);
    std::fs::set_permissions(guest.path(), PermissionsExt::from_mode(0o777)).unwrap();
    assert_eq!(guest.run("id -u; id -g; id -G")["stdout"], "4242\n4243\n4243\n");
    let mut terminal = Client::connect(&guest, "");
    terminal.type_in("echo $(id -u)-is-me\n");
    terminal.until("4242-is-me");
    let body = json!({"content": "x"}).to_string();
    guest
        .send(
            "PUT",
            "/filesystem/made/by/them",
            &[("Content-Type", "application/json")],
            body.as_bytes(),
        )
        .ok();
    for path in ["made", "made/by", "made/by/them"] {
        let metadata = std::fs::metadata(guest.path().join(path)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (4242, 4243), "{path}");
    }
}

/// Only as another user than root may the kernel refuse threads, and that user must still reach the
/// program and its folders.
const WITHOUT_THREADS: [&str; 10] = [
    "prlimit",
    "--nproc=1:",
    "setpriv",
    "--reuid=4244",
    "--regid=4244",
    "--clear-groups",
    "--inh-caps=+dac_override",
    "--ambient-caps=+dac_override",
    "--bounding-set=-sys_admin,-sys_resource",
    "--",
];

#[test]
fn without_any_thread_files_are_refused_and_the_rest_is_served() {
    if !is_root() {
        eprintln!("only root can become somebody else");
        return;
    }
    let guest = Guest::start_by(&WITHOUT_THREADS, &[]);
    let limit = |processes: u32| {
        let done = Command::new("setpriv")
            .args(["--reuid=4244", "--regid=4244", "--clear-groups", "prlimit"])
            .args(["--pid", &guest.pid().to_string(), &format!("--nproc={processes}:")])
            .status();
        assert!(done.unwrap().success());
    };
    for _ in 0..2 {
        let refused = guest.get("/filesystem//etc/passwd").refused(503);
        assert!(refused.contains("end some processes"), "{refused}");
        guest.get("/network/process/1/ports").refused(503);
        assert_eq!(guest.get("/health").ok()["status"], "ok");
    }
    limit(2);
    let file = guest.get("/filesystem//etc/passwd");
    assert_eq!(file.status, 200, "{}", file.text());
    // The thread stays, so what is refused from now on is only another one.
    limit(1);
    assert_eq!(guest.get("/filesystem//etc/passwd").status, 200);
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn without_logging_the_output_of_many_processes_is_little_in_all() {
    let guest = Guest::start_with(&[("SANDBOX_DISABLE_PROCESS_LOGGING", "true")]);
    for number in 0..100 {
        let (name, command) = (format!("n{number}"), "head -c 300000 /dev/zero | tr '\\0' x");
        let body = json!({"command": command, "name": name, "waitForCompletion": true});
        guest.post("/process", &body).ok();
    }
    let said = |name: &str| guest.get(&format!("/process/{name}/logs")).ok()["stdout"].to_string();
    assert!(said("n99").ends_with("xxx\""), "the newest are there");
    assert!(!said("n0").contains("xxx"), "the oldest went first");
}

#[test]
fn without_logging_output_stays_in_little_memory() {
    let guest = Guest::start_with(&[("SANDBOX_DISABLE_PROCESS_LOGGING", "true")]);
    let process = guest.run("head -c 10000000 /dev/zero; echo end");
    assert!(process["stdout"].as_str().unwrap().ends_with("end\n"));
    assert_eq!(stored(&guest), 0);
    check_small(&guest);
    let mut log = String::new();
    guest.open("GET", "/process/1/logs/stream", &[], b"").read_to_string(&mut log).unwrap();
    let _: Value = serde_json::from_str(&log).unwrap();
}
