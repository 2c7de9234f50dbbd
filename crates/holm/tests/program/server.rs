//! Starting, watching and ending a server.

use crate::common::{Server, get, holm, text, write};
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn a_first_start_introduces_itself_once() {
    let server = Server::start();
    let key = server.api_key();
    for part in ["BL_API_URL=", "BL_RUN_URL=", "BL_WORKSPACE=main", "BL_DISABLE_H2=1", "@blaxel/core", &server.url()] {
        assert!(server.greeting().contains(part), "{part}");
    }
    let (status, _, folder) = server.stop();
    assert!(status.success());

    let again = Server::start_in(folder);
    assert!(!again.greeting().contains("API key") && again.greeting().contains(&again.url()));
    text(&again.cli(&key, &["get", "workspaces"]), 0);
}

#[test]
fn what_is_shown_once_is_not_in_the_log() {
    let server = Server::start();
    let secrets = [server.api_key(), server.told("sign in")];
    text(&server.cli(&secrets[0], &["get", "sandboxes"]), 0);
    let start_log = server.start_log.clone();
    let (_, log, _folder) = server.stop();
    assert!(secrets.iter().all(|secret| !start_log.contains(secret) && !log.contains(secret)));
}

#[test]
fn a_server_can_be_watched() {
    let server = Server::start();
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
    assert!(server.get("/ready").starts_with("HTTP/1.1 200"));
    text(&server.cli(&server.api_key(), &["get", "sandboxes"]), 0);
    let metrics = server.get("/metrics");
    assert!(metrics.contains(r#"holm_api_request_seconds_bucket{operation="ListSandboxes""#), "{metrics}");
}

#[test]
fn streams_end_when_the_server_is_asked_to_end() {
    let server = Server::start();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let key = server.api_key();
    write!(stream, "GET /v0/changes HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\n\r\n").unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    let address = server.address.clone();

    let (status, log, _folder) = server.stop();
    assert!(status.success(), "{log}");
    assert!(log.contains("stopped") && !log.contains("cut off"), "{log}");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    // The last chunk: the stream ended in order.
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn asking_twice_cuts_off_what_is_in_flight() {
    let mut server = Server::start();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let key = server.api_key();
    write!(
        stream,
        "POST /v0/policies HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\nContent-Length: 9\r\n\
         Expect: 100-continue\r\n\r\n"
    )
    .unwrap();
    // The server asks for the body, so the request is in flight; the body never comes.
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 100");
    server.signal("-TERM");
    let log = server.read_log_until("asked to stop");
    assert!(!log.contains("stopped"), "{log}");
    let (status, log, _folder) = server.stop();
    assert!(status.success() && log.contains("cut off"), "{log}");
}

#[test]
fn a_killed_server_starts_again() {
    let server = Server::start();
    let key = server.api_key();
    let file = write(
        server.folder.path(),
        "a.yaml",
        "kind: Policy\nmetadata: {name: kept}\nspec: {type: maxToken, maxTokens: {granularity: day, step: 1, total: 5}}\n",
    );
    text(&server.cli(&key, &["apply", "-f", file.to_str().unwrap()]), 0);
    server.signal("-KILL");
    let (_, _, folder) = server.wait();
    let again = Server::start_in(folder);
    assert!(text(&again.cli(&key, &["get", "policies"]), 0).contains("kept"));
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let server = Server::start();
    let second = holm(server.folder.path()).args(["up", "--data", "data", "--listen", "127.0.0.1:0"]).output().unwrap();
    assert!(text(&second, 1).contains("another process has the database"));
    assert!(get(&server.address, "/ready").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_role_that_is_not_there_is_not_pretended() {
    let folder = tempfile::tempdir().unwrap();
    for role in ["gateway", "node"] {
        let refused = holm(folder.path()).args(["up", "--role", role]).output().unwrap();
        assert!(text(&refused, 9).contains("later release"));
    }
}

#[test]
fn wrong_settings_end_the_start_and_name_themselves() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "holm.toml", "[server]\nlistne = \"127.0.0.1:0\"\n");
    for arguments in [["up", "--data"].as_slice(), &["config", "check"]] {
        let mut command = holm(folder.path());
        command.args(arguments);
        if arguments.len() == 2 && arguments[0] == "up" {
            command.arg("data");
        }
        let said = text(&command.output().unwrap(), 3);
        assert!(said.contains("holm.toml:2") && said.contains("`server.listen`"), "{said}");
    }
    assert!(!folder.path().join("data").exists());
}

#[test]
fn the_example_is_the_file_that_is_checked_in() {
    let folder = tempfile::tempdir().unwrap();
    let printed = holm(folder.path()).args(["config", "example"]).output().unwrap();
    let kept = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../holm.example.toml")).unwrap();
    assert!(printed.stdout == kept);
}

#[test]
fn a_caller_who_sends_nothing_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(folder, &[("HOLM_SERVER__HEADER_TIMEOUT", "200ms")]);
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nX-Slow: ").unwrap();
    let mut answer = Vec::new();
    // Ends because the server closes; a reset is as good.
    let _ = stream.read_to_end(&mut answer);
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_connection_too_many_waits_for_its_turn() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(folder, &[("HOLM_SERVER__CONNECTIONS_MAX", "1")]);
    let holder = TcpStream::connect(&server.address).unwrap();
    let address = server.address.clone();
    let waiting = std::thread::spawn(move || get(&address, "/health"));
    drop(holder);
    assert!(waiting.join().unwrap().starts_with("HTTP/1.1 200"));
}
