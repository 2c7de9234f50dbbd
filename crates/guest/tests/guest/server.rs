//! Rules that hold for every operation.

use crate::common::Guest;
use proptest::prelude::*;
use serde_json::json;
use types::guest::{PROXY_PATH, SECRET_HEADER};

#[test]
fn every_answer_carries_the_common_headers() {
    let guest = Guest::start();
    for path in ["/", "/health", "/process", "/nowhere", "/process/none"] {
        let response = guest.get(path);
        assert_eq!(response.header("access-control-allow-origin"), Some("*"), "{path}");
        assert_eq!(response.header("cache-control"), Some("no-cache, no-store, must-revalidate"));
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    }
    assert_eq!(guest.send("OPTIONS", "/process/x/logs", &[], b"").status, 204);
}

#[test]
fn head_tells_that_an_operation_is_there_without_looking() {
    let guest = Guest::start();
    assert_eq!(guest.send("HEAD", "/process/none", &[], b"").status, 200);
    assert_eq!(guest.send("HEAD", "/nowhere", &[], b"").status, 404);
}

#[test]
fn what_cannot_be_is_told_in_the_form_of_errors() {
    let guest = Guest::start();
    // Clients take JSON to mean that a process is missing; a missing operation must look different.
    let nowhere = guest.get("/nowhere");
    assert_eq!((nowhere.status, nowhere.text().as_str()), (404, "there is nothing at this path"));
    guest.send("PATCH", "/process", &[], b"").refused(405);
    guest.send("POST", "/process", &[], b"{").refused(400);
    guest.send("POST", "/process", &[], b"").refused(400);
    guest.send("POST", "/process", &[], &vec![b' '; 17 << 20]).refused(413);
}

#[test]
fn health_says_what_clients_read() {
    let guest = Guest::start();
    let health = guest.get("/health").ok();
    assert_eq!(health["status"], "ok");
    assert_eq!(health["lastUpgrade"]["status"], "idle");
    assert_eq!(health["keepAliveProcesses"], 0);
    guest.post("/process", &json!({"command": "sleep 100", "keepAlive": true})).ok();
    assert_eq!(guest.get("/health").ok()["keepAliveProcesses"], 1);
}

#[test]
fn the_environment_is_reread_for_processes_that_start_later() {
    let directory = tempfile::tempdir().unwrap();
    let document = directory.path().join("metadata");
    let guest =
        Guest::start_with(&[("BL_METADATA_PATH", document.to_str().unwrap()), ("COLOUR", "red")]);
    guest.send("POST", "/environment/reload", &[], b"").refused(404);
    std::fs::write(&document, r#"{"generation": 3, "environment": {"COLOUR": "blue"}}"#).unwrap();
    let reloaded = guest.send("POST", "/environment/reload", &[], b"").ok();
    assert_eq!(reloaded, json!({"generation": 3, "applied": 1, "removed": 0}));
    assert_eq!(guest.run("echo $COLOUR")["stdout"], "blue\n");
    std::fs::write(&document, "not JSON").unwrap();
    guest.send("POST", "/environment/reload", &[], b"").refused(500);
    assert_eq!(guest.run("echo $COLOUR")["stdout"], "blue\n");
}

#[test]
fn nothing_that_is_sent_ends_it() {
    let guest = Guest::start();
    let config =
        ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    let method = prop::sample::select(vec!["GET", "PUT", "POST", "DELETE", "HEAD", "PATCH"]);
    let path = prop::sample::select(vec![
        "/process/",
        "/network/process/",
        "/process/x/logs/stream?offset=",
        "/terminal/ws?cols=",
        "/environment/",
    ]);
    let end = "[!-~&&[^#]]{0,12}";
    let body = proptest::collection::vec(any::<u8>(), 0..60);
    proptest!(config, |(method in method, path in path, end in end, body in body)| {
        let response = guest.send(method, &format!("{path}{end}"), &[("Connection", "close")], &body);
        prop_assert!(response.status < 500, "{}", response.text());
    });
    guest.get("/health").ok();
}

#[test]
fn the_starter_hands_over_socket_and_settings() {
    let directory = tempfile::tempdir().unwrap();
    let settings = json!({
        "env": {"COLOUR": "red", "SECRET": "s"}, "workdir": directory.path(), "disableKeepAlive": true,
    });
    let file = directory.path().join("settings");
    std::fs::write(&file, settings.to_string()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let guest = Guest::start_handed_over(&listener, &file, directory);
    let process = guest.run("echo $COLOUR $SECRET; pwd; env | grep -c HOLM_GUEST");
    assert_eq!(process["stdout"], format!("red s\n{}\n0\n", guest.path().display()));
    guest.post("/process", &json!({"command": "true", "keepAlive": true})).refused(400);
    // Children inherit nothing that was handed over.
    let open = guest.run("ls -l /proc/self/fd")["stdout"].as_str().unwrap().to_owned();
    assert!(open.contains("/dev/null") && !open.contains(file.to_str().unwrap()), "{open}");
    let socket = std::fs::read_link(format!("/proc/{}/fd/3", guest.pid())).unwrap();
    assert!(!open.contains(socket.to_str().unwrap()), "{open}");
}

#[test]
fn a_refused_method_says_which_are_taken() {
    let guest = Guest::start();
    for (method, path, allowed) in [
        ("PATCH", "/process", "GET, POST, HEAD, OPTIONS"),
        ("GET", "/upgrade", "POST, OPTIONS"),
        ("POST", "/filesystem/tmp", "GET, PUT, DELETE, HEAD, OPTIONS"),
        ("DELETE", "/health", "GET, HEAD, OPTIONS"),
        ("GET", "/mcp", "POST, OPTIONS"),
    ] {
        let response = guest.send(method, path, &[], b"");
        assert_eq!(response.header("allow"), Some(allowed), "{method} {path}");
        assert!(response.refused(405).contains(allowed));
    }
}

#[test]
fn the_environment_is_in_a_file_for_those_who_do_not_inherit_it() {
    let directory = tempfile::tempdir().unwrap();
    let (file, document) = (directory.path().join("bl-env"), directory.path().join("document"));
    let settings = directory.path().join("settings");
    let given = json!({"env": {"COLOUR": "red", "EMPTY": "", "PATH": std::env::var("PATH").unwrap()},
                       "environmentFile": file, "metadata": document});
    std::fs::write(&settings, given.to_string()).unwrap();
    let guest = Guest::start_handed_over(
        &std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
        &settings,
        directory,
    );
    guest.get("/health").ok();
    let written = || String::from_utf8(std::fs::read(&file).unwrap()).unwrap();
    for pair in ["COLOUR\0red\0", "EMPTY\0\0"] {
        assert!(written().contains(pair), "{:?}", written());
    }
    assert_eq!(written().matches('\0').count() % 2, 0);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    std::fs::write(&document, json!({"environment": {"COLOUR": "blue"}}).to_string()).unwrap();
    guest.send("POST", "/environment/reload", &[], b"").ok();
    assert!(written().contains("COLOUR\0blue\0"), "{:?}", written());
}

#[test]
fn programs_learn_of_the_proxy_from_the_machine_alone_and_forget_it_again() {
    let directory = tempfile::tempdir().unwrap();
    let settings = json!({"secret": "s3cret", "env": {"HTTP_PROXY": "given"}, "workdir": directory.path(),
        "proxy": {"environment": {"NO_PROXY": "first"}}});
    let file = directory.path().join("settings");
    std::fs::write(&file, settings.to_string()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let guest = Guest::start_handed_over(&listener, &file, directory);
    let seen = |guest: &Guest| guest.run("echo $HTTP_PROXY $NO_PROXY")["stdout"].clone();
    assert_eq!(seen(&guest), "given first\n");
    let tell = |secret: &str, proxy: &serde_json::Value| {
        let body = proxy.to_string();
        guest.send("PUT", PROXY_PATH, &[(SECRET_HEADER, secret)], body.as_bytes())
    };
    let second = json!({"environment": {"HTTP_PROXY": "https://proxy"}});
    tell("guessed", &second).refused(404);
    assert_eq!(seen(&guest), "given first\n");
    assert_eq!(tell("s3cret", &second).status, 204);
    assert_eq!(seen(&guest), "https://proxy\n");
    assert_eq!(tell("s3cret", &json!({})).status, 204);
    assert_eq!(seen(&guest), "given\n");
}
