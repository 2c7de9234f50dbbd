//! The first steps of a user, or of a program that sets up Holm.

use crate::common::{Server, holm, read_until, text, write};
use serde_json::Value;
use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

fn kept(home: &Path) -> Value {
    serde_json::from_slice(&fs::read(home.join("data/first-start.json")).unwrap()).unwrap()
}

#[test]
fn the_first_key_is_also_in_a_file_for_its_owner() {
    let server = Server::start();
    let file = server.folder.path().join("data/first-start.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let first = kept(server.folder.path());
    assert_eq!(first["api_key"], server.api_key());
    assert_eq!(first["password"], server.told("sign in"));
    assert_eq!(
        (&first["workspace"], &first["email"]),
        (&"main".into(), &"admin@holm.local".into())
    );
    text(&server.cli(first["api_key"].as_str().unwrap(), &["get", "workspaces"]), 0);
    assert!(server.greeting().contains("data/first-start.json"));
}

#[test]
fn programs_read_one_line_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_as(folder, &["--json"], &[]);
    let line: Value = serde_json::from_str(&server.greeting()).unwrap();
    assert_eq!(
        (&line["url"], &line["address"]),
        (&server.url().into(), &server.address.clone().into())
    );
    assert_eq!(line["first_start"], kept(server.folder.path()));
    text(&server.cli(line["first_start"]["api_key"].as_str().unwrap(), &["get", "workspaces"]), 0);

    let (_, _, folder) = server.stop();
    let again = Server::start_as(folder, &["--json"], &[]);
    let line: Value = serde_json::from_str(&again.greeting()).unwrap();
    assert!(line["first_start"].is_null() && line["url"] == again.url(), "{line}");
}

/// The file exists under a temporary name before anything is created, so a start can be interrupted
/// before or after the creation.
#[test]
fn a_first_start_that_was_cut_off_loses_no_key() {
    let server = Server::start();
    let key = server.api_key();
    let (_, _, folder) = server.stop();
    let (file, new) = (
        folder.path().join("data/first-start.json"),
        folder.path().join("data/first-start.json.new"),
    );
    fs::rename(&file, &new).unwrap();
    let after = Server::start_in(folder);
    assert_eq!(kept(after.folder.path())["api_key"], key);
    assert!(!new.exists());
    after.stop();

    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    let new = write(&folder.path().join("data"), "first-start.json.new", "half a fi");
    let before = Server::start_in(folder);
    assert_eq!(kept(before.folder.path())["api_key"], before.api_key());
    assert!(!new.exists());

    // Left by a start that created nothing, for example because another server was faster.
    let (_, _, folder) = before.stop();
    let stale = r#"{"account": "a", "workspace": "w", "email": "e", "password": "p", "api_key": "hk_never"}"#;
    let new = write(&folder.path().join("data"), "first-start.json.new", stale);
    let again = Server::start_in(folder);
    assert!(!new.exists() && kept(again.folder.path())["api_key"] != "hk_never");
}

#[test]
fn the_key_of_another_database_in_the_folder_is_kept() {
    let server = Server::start();
    let key = server.api_key();
    let (_, _, folder) = server.stop();
    let data = folder.path().join("data");
    for name in ["holm.db", "holm.db-wal", "holm.db-shm"] {
        let _ = fs::remove_file(data.join(name));
    }
    let anew = Server::start_in(folder);
    assert_ne!(anew.api_key(), key);
    assert_eq!(kept(anew.folder.path())["api_key"], anew.api_key());
    let old = fs::read(data.join("first-start.json.old")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&old).unwrap()["api_key"], key);
}

/// The catalogue is read after the first account was made.
#[test]
fn a_start_that_fails_greets_nobody_and_the_next_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let up = ["up", "--data", "data", "--listen", "127.0.0.1:0"];
    let mut command = holm(home);
    let failed = command.args(up).env("HOLM_CATALOGUE__FILE", "missing.yaml").output().unwrap();
    assert!(text(&failed, 1).contains("missing.yaml") && failed.stdout.is_empty());
    assert!(!home.join("data/address").exists());
    let key = kept(home)["api_key"].as_str().unwrap().to_owned();
    let server = Server::start_in(folder);
    assert!(server.greeting().contains("first-start.json has the first account"));
    text(&server.cli(&key, &["get", "workspaces"]), 0);
}

/// The catalogue is a pipe, so the start waits until it is written.
#[test]
fn a_server_that_is_asked_to_stop_while_it_starts_greets_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = folder.path().join("catalogue.yaml");
    assert!(Command::new("mkfifo").arg(&catalogue).status().unwrap().success());
    let mut command = holm(folder.path());
    command.args(["up", "--data", "data", "--listen", "127.0.0.1:0"]);
    command.env("HOLM_CATALOGUE__FILE", &catalogue).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let pipe = fs::OpenOptions::new().write(true).open(&catalogue).unwrap();
    let id = process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let mut log = BufReader::new(process.stderr.take().unwrap());
    read_until(&mut log, "asked to stop");
    drop(pipe);
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success() && rest.contains("stopped"), "{rest}");
    assert!(output.stdout.is_empty() && !rest.contains(" ready "), "{output:?} {rest}");
    assert!(kept(folder.path())["api_key"].is_string());
}

#[test]
fn every_command_that_reads_settings_takes_them_from_the_named_file() {
    let home = tempfile::tempdir().unwrap();
    let commands: [&[&str]; 11] = [
        &["up"],
        &["image", "list"],
        &["image", "make"],
        &["image", "remove", "holm/base"],
        &["config", "check"],
        &["backup", "out"],
        &["restore", "in"],
        &["keys", "rotate"],
        &["user", "password", "a@b.example"],
        &["usage", "verify"],
        &["doctor"],
    ];
    for words in commands {
        let run = |arguments: Vec<&str>| holm(home.path()).args(arguments).output().unwrap();
        let exit = if words == ["doctor"] { 10 } else { 3 };
        let behind = [words, &["--config", "missing.toml"]].concat();
        assert!(text(&run(behind), exit).contains("missing.toml"), "{words:?}");
        if words.len() > 1 && words[1] != "verify" && words[0] != "backup" && words[0] != "restore"
        {
            let between = [&words[..1], &["--config", "missing.toml"], &words[1..]].concat();
            assert!(text(&run(between), exit).contains("missing.toml"), "{words:?}");
        }
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn a_settings_file_can_be_named_by_a_variable_that_may_be_empty() {
    let home = tempfile::tempdir().unwrap();
    let check = |file: &str| {
        holm(home.path()).args(["config", "check"]).env("HOLM_CONFIG", file).output().unwrap()
    };
    text(&check(""), 0);
    assert!(text(&check("missing.toml"), 3).contains("missing.toml"));
    write(home.path(), "own.toml", "[nosuch]\n");
    assert!(text(&check("own.toml"), 3).contains("own.toml:1"));
}

#[test]
fn regions_of_somebody_else_are_warned_of_and_taken() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    write(
        home,
        "holm.toml",
        "[placement]\nregions = [{ name = \"us-pdx-1\" }, { name = \"rack-7\" }]\n",
    );
    let said = text(&holm(home).args(["config", "check"]).output().unwrap(), 0);
    for part in
        ["warning: holm.toml:2: `placement.regions` has `us-pdx-1`", "the settings can be used"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("rack-7"), "{said}");
    let doctor =
        holm(home).args(["doctor"]).env("HOLM_SERVER__LISTEN", "127.0.0.1:0").output().unwrap();
    assert!(text(&doctor, 0).contains("us-pdx-1"));
    let server = Server::start_in(folder);
    assert!(server.start_log.contains("us-pdx-1"), "{}", server.start_log);
}

#[test]
fn what_is_refused_leaves_a_line_without_secrets() {
    let server = Server::start();
    let key = server.api_key();
    text(&server.cli("hk_notakeyofthisserver", &["get", "sandboxes"]), 4);
    text(&server.cli(&key, &["-w", "elsewhere", "get", "policies"]), 5);
    text(&server.cli(&key, &["get", "sandbox", "nobody"]), 6);
    let (_, log, _folder) = server.stop();
    let lines: Vec<_> = log.lines().filter(|line| line.contains(" refusals: ")).collect();
    let [unknown, elsewhere] = lines.as_slice() else { panic!("{log}") };
    for part in [
        "INFO",
        "status=401",
        "reason=\"unauthorized\"",
        "from=127.0.0.1",
        "operation=\"ListSandboxes\"",
        "request_id=",
    ] {
        assert!(unknown.contains(part), "{part}: {unknown}");
    }
    for part in ["status=403", "reason=\"forbidden\"", "operation=\"ListPolicies\"", "elsewhere"] {
        assert!(elsewhere.contains(part), "{part}: {elsewhere}");
    }
    assert!(!log.contains("hk_") && !log.contains("nobody"), "{log}");
}

#[test]
fn a_refused_webhook_leaves_a_line_too() {
    let server = Server::start();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = "POST /v0/webhooks/github/main HTTP/1.1\r\nHost: h\r\nConnection: close\r\n";
    write!(stream, "{head}Content-Length: 2\r\n\r\n{{}}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let (_, log, _folder) = server.stop();
    let mut lines = log.lines().filter(|line| line.contains(" refusals: "));
    let line = lines.next().unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("reason=\"unauthorized\"") && line.contains("not signed"), "{line}");
}

#[test]
fn how_much_of_what_is_refused_is_logged_can_be_chosen() {
    let refusals = |settings: &[(&str, &str)]| {
        let server = Server::start_with(tempfile::tempdir().unwrap(), settings);
        for _ in 0..3 {
            assert!(server.get("/v0/sandboxes").starts_with("HTTP/1.1 401"));
        }
        server
            .stop()
            .1
            .lines()
            .filter(|line| line.contains(" refusals: ") && line.contains("refused"))
            .count()
    };
    assert_eq!(refusals(&[]), 3);
    assert_eq!(refusals(&[("HOLM_LOG__LEVEL", "info,refusals=warn")]), 0);
    assert_eq!(refusals(&[("HOLM_LOG__REFUSALS_PER_SECOND", "0")]), 0);
}
