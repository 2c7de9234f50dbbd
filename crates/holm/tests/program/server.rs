//! Starting, monitoring and stopping a server.

use crate::common::{Server, get, holm, text, write};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than any test machine needs; it only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_first_start_introduces_itself_once() {
    let server = Server::start();
    let key = server.api_key();
    for part in [
        "BL_API_URL=",
        "BL_RUN_URL=",
        "BL_WORKSPACE=main",
        "BL_DISABLE_H2=1",
        "@blaxel/core",
        &server.url(),
    ] {
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
    assert!(
        metrics.contains(r#"holm_api_request_seconds_bucket{operation="ListSandboxes""#),
        "{metrics}"
    );
}

#[test]
fn a_server_that_runs_nothing_answers_for_workloads_that_others_may_run() {
    let server = Server::start();
    let key = server.api_key();
    for kind in ["sandboxes", "agents", "functions", "models"] {
        let path = format!("/main/{kind}/none");
        let stranger = server.get(&path);
        assert!(stranger.starts_with("HTTP/1.1 401"), "{stranger}");
        assert!(stranger.contains("AUTHENTICATION_REQUIRED"), "{stranger}");
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let about = format!("Host: {}\r\nAuthorization: Bearer {key}", server.address);
        write!(stream, "GET {path} HTTP/1.1\r\n{about}\r\nConnection: close\r\n\r\n").unwrap();
        let mut member = String::new();
        stream.read_to_string(&mut member).unwrap();
        assert!(member.contains("WORKLOAD_NOT_FOUND"), "{member}");
    }
}

#[test]
fn a_client_whose_head_is_refused_may_send_the_rest_of_it() {
    let server = Server::start();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /health HTTP/1.1\r\nX: {}", "x".repeat(100_000)).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 431");
    // On a connection that is closed, the first of these causes a reset and the second fails.
    for part in ["x", "\r\n\r\n"] {
        stream.write_all(part.as_bytes()).unwrap();
        std::thread::yield_now();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn streams_end_when_the_server_is_asked_to_end() {
    let server = Server::start();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let key = server.api_key();
    write!(stream, "GET /v0/changes HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\n\r\n")
        .unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    let address = server.address.clone();

    let (status, log, _folder) = server.stop();
    assert!(status.success(), "{log}");
    assert!(log.contains("stopped") && !log.contains("cut off"), "{log}");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    // The last chunk shows that the stream ended properly.
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
    // The server has asked for the body, so the request is in flight; the body never comes.
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
fn a_body_that_nobody_asks_for_ends_its_connection() {
    let server = Server::start();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "PUT /v0/policies/x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n").unwrap();
    write!(stream, "Expect: 100-continue\r\n\r\n").unwrap();
    // Otherwise the first byte of a next request would be taken for the body.
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[test]
fn strangers_do_not_keep_the_last_files() {
    let settings = [("HOLM_SERVER__HEADER_TIMEOUT", "10m")];
    let server = Server::start_with(tempfile::tempdir().unwrap(), &settings);
    server.limit_files(100);
    let strangers: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.write_all(b"GET /health HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    text(&server.cli(&server.api_key(), &["get", "workspaces"]), 0);
    // Whoever came first made room.
    let mut first = &strangers[0];
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server closes the connection; a reset, of one that it has not read yet, is just as good.
    match first.read(&mut [0]) {
        Ok(read) => assert_eq!(read, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
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
    let second = holm(server.folder.path())
        .args(["up", "--data", "data", "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    assert!(text(&second, 1).contains("another process has the database"));
    assert!(get(&server.address, "/ready").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_role_that_is_not_there_is_not_pretended() {
    let folder = tempfile::tempdir().unwrap();
    let up = |roles: &[&str], exit| {
        let flags = roles.iter().flat_map(|role| ["--role", role]);
        text(&holm(folder.path()).arg("up").args(flags).output().unwrap(), exit)
    };
    assert!(up(&["gateway", "node"], 3).contains("later release"));
    let alone = [(["api", "gateway"], "without node"), (["api", "node"], "without gateway")];
    for (roles, why) in alone {
        let told = up(&roles, 3);
        assert!(told.contains("command line: `server.roles`") && told.contains(why), "{told}");
    }
    assert!(up(&["api", "api"], 3).contains("twice"));
    assert!(up(&["node"], 3).contains("without gateway"));
    assert!(!folder.path().join("data").exists());
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
    let kept =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../holm.example.toml")).unwrap();
    assert!(printed.stdout == kept);
}

#[test]
fn a_caller_who_sends_no_whole_request_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(folder, &[("HOLM_SERVER__HEADER_TIMEOUT", "2s")]);
    let beginnings: [&[u8]; 6] = [
        b"",
        b"G",
        b"GET /health HTTP/1.1\r\nX-Slow: ",
        // Half of the HTTP/2 preface, all of it, and settings without a request.
        b"PRI * HTTP/2.0\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ];
    let begun = beginnings.map(|beginning| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(beginning).unwrap();
        (beginning, stream)
    });
    for (beginning, mut stream) in begun {
        // The server closes the connection; a reset is just as good.
        if let Err(error) = stream.read_to_end(&mut Vec::new()) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{beginning:?} is waited for");
        }
    }
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
}

/// Sends a request on an open connection, which stays open. Returns whether it was answered.
fn ask(stream: &mut TcpStream, headers: &str) -> bool {
    let request = format!("GET /v0/quotas HTTP/1.1\r\nHost: holm\r\n{headers}\r\n");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    if stream.write_all(request.as_bytes()).is_err() {
        return false;
    }
    let mut answer = BufReader::new(stream);
    let mut length = None;
    loop {
        let mut line = String::new();
        match answer.read_line(&mut line) {
            Ok(0) | Err(_) => return false,
            Ok(_) if line == "\r\n" => break,
            Ok(_) => {
                length = line
                    .to_lowercase()
                    .strip_prefix("content-length:")
                    .map(|text| text.trim().parse().unwrap())
                    .or(length)
            }
        }
    }
    answer.read_exact(&mut vec![0; length.unwrap()]).is_ok()
}

#[test]
fn strangers_who_take_every_place_neither_shut_others_out_nor_those_who_are_signed_in() {
    let folder = tempfile::tempdir().unwrap();
    let settings =
        [("HOLM_SERVER__CONNECTIONS_MAX", "8"), ("HOLM_SERVER__CONNECTIONS_SIGNED_IN", "4")];
    let server = Server::start_with(folder, &settings);
    let key = format!("Authorization: Bearer {}\r\n", server.api_key());
    let mut member = TcpStream::connect(&server.address).unwrap();
    assert!(ask(&mut member, &key));
    let mut stranger = TcpStream::connect(&server.address).unwrap();
    assert!(ask(&mut stranger, ""));
    let _crowd: Vec<_> = (0..40).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    assert!(server.get("/health").starts_with("HTTP/1.1 200"), "a newcomer is served");
    assert!(ask(&mut member, &key), "who is signed in keeps the connection");
    assert!(!ask(&mut stranger, ""), "the oldest idle stranger made room");
}
