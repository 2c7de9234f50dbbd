//! What the command line asks a server for, seen by a fake server.

use crate::common::{Server, holm, text, write};
use crate::pretend::{Answer, Pretend};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

#[test]
fn credentials_of_one_server_never_go_to_another() {
    let (own, other) = (Server::start(), Pretend::start(|_, _| Answer::json(&json!([]))));
    let home = own.folder.path();
    let login = ["login", "--api-key", "--server", &own.url()];
    let mut login = holm(home).args(login).stdin(Stdio::piped()).spawn().unwrap();
    writeln!(login.stdin.take().unwrap(), "{}", own.api_key()).unwrap();
    assert!(login.wait().unwrap().success());

    let run = |arguments: &[&str]| holm(home).args(arguments).output().unwrap();
    let told = text(&run(&["--server", &other.url, "get", "sandboxes"]), 4);
    assert!(told.contains(&format!("holm login --server {}", other.url)), "{told}");
    let mut by_variable = holm(home);
    by_variable.env("BL_API_URL", format!("{}/v0", other.url)).args(["get", "sandboxes"]);
    text(&by_variable.output().unwrap(), 4);
    assert!(other.asked().is_empty());
    text(&run(&["--server", &format!("{}/v0", own.url()), "get", "sandboxes"]), 0);
}

#[test]
fn a_change_keeps_what_somebody_else_changed_meanwhile() {
    let mut tries = 0;
    let pretend = Pretend::start(move |_, asked| {
        let of =
            |domains: &[&str]| json!({"spec": {"network": {"proxy": {"allowedDomains": domains}}}});
        let version = |number: u32| format!("\"{number}\"");
        match asked.method.as_str() {
            "GET" if tries == 0 => Answer::json(&of(&["a"])).with("ETag", version(1)),
            "GET" => Answer::json(&of(&["a", "theirs"])).with("ETag", version(2)),
            _ => {
                tries += 1;
                let is_newest = asked.header("if-match") == Some("\"2\"");
                if is_newest { Answer::json(&asked.json()) } else { Answer::refuse(412) }
            }
        }
    });
    let place = tempfile::tempdir().unwrap();
    let allow = ["network", "allow", "box", "ours"];
    text(&pretend.cli(place.path(), &allow).output().unwrap(), 0);
    let asked = pretend.asked();
    let sent = asked.last().unwrap().json();
    let domains = &sent["spec"]["network"]["proxy"]["allowedDomains"];
    assert_eq!(*domains, json!(["a", "theirs", "ours"]));
}

#[test]
fn a_change_that_is_always_late_is_given_up() {
    let pretend = Pretend::start(|_, asked| match asked.method.as_str() {
        "GET" => Answer::json(&json!({"spec": {}})).with("ETag", "\"1\"".into()),
        _ => Answer::refuse(412),
    });
    let place = tempfile::tempdir().unwrap();
    let allow = ["network", "allow", "box", "ours"];
    text(&pretend.cli(place.path(), &allow).output().unwrap(), 7);
    assert_eq!(pretend.asked().iter().filter(|asked| asked.method == "PUT").count(), 5);
}

#[test]
fn a_connection_that_somebody_else_creates_meanwhile_is_left_as_it_is() {
    let mut exists = false;
    let pretend = Pretend::start(move |_, asked| match asked.method.as_str() {
        "GET" if exists => Answer::json(&json!({"metadata": {"name": "slack"}})),
        "POST" => {
            exists = true;
            Answer::refuse(409)
        }
        _ => Answer::refuse(404),
    });
    let place = tempfile::tempdir().unwrap();
    let document =
        "kind: IntegrationConnection\nmetadata: {name: slack}\nspec: {integration: slack}\n";
    let file = write(place.path(), "a.yaml", document);
    let apply = ["apply", "-f", file.to_str().unwrap()];
    let told = text(&pretend.cli(place.path(), &apply).output().unwrap(), 0);
    assert!(told.contains("exists already"), "{told}");
    assert!(pretend.asked().iter().all(|asked| asked.method != "PUT"));
}

#[test]
fn what_is_taken_is_told_though_it_is_not_the_name() {
    let pretend = Pretend::start(|_, asked| match asked.method.as_str() {
        "POST" => Answer::refuse(409),
        _ => Answer::refuse(404),
    });
    let place = tempfile::tempdir().unwrap();
    let document = "kind: Agent\nmetadata: {name: helper}\nspec: {triggers: [{type: http}]}\n";
    let file = write(place.path(), "a.yaml", document);
    let project = "name = \"shop\"\ntype = \"application\"\nimage = \"a/b:1\"";
    write(place.path(), "blaxel.toml", project);
    for command in [&["apply", "-f", file.to_str().unwrap()][..], &["deploy"]] {
        let told = text(&pretend.cli(place.path(), command).output().unwrap(), 7);
        assert!(told.contains("refused with 409"), "{command:?}: {told}");
    }
    assert_eq!(pretend.asked().iter().filter(|asked| asked.method == "PUT").count(), 2);
}

#[test]
fn older_log_lines_that_are_left_out_are_told_of() {
    let line = json!({"timestamp": "2026-04-16T09:30:00Z", "severity": 9, "message": "m"});
    let lines: Vec<&Value> = vec![&line; 1000];
    let page = json!({"box": {"logs": lines}});
    let pretend = Pretend::start(move |_, _| Answer::json(&page));
    let place = tempfile::tempdir().unwrap();
    let logs = pretend.cli(place.path(), &["logs", "sandbox", "box"]).output().unwrap();
    let noted = String::from_utf8_lossy(&logs.stderr).into_owned();
    text(&logs, 0);
    assert!(noted.contains("only the newest 100000 lines are shown"), "{noted}");
}

/// The server is away for one answer of each sort, as it is while it restarts.
#[test]
fn the_lines_of_an_execution_are_followed_to_its_end() {
    let (mut looks, mut asks) = (0, 0);
    let pretend = Pretend::start(move |_, asked| {
        if asked.path.starts_with("/v0/observability/logs") {
            looks += 1;
            let count = match looks {
                1 => 1,
                2 => return Answer::refuse(503),
                3 => 2,
                _ => 3,
            };
            let line = |number: u32| json!({"timestamp": "t", "severity": 9, "message": format!("line {number}")});
            let newest_first: Vec<_> = (1..=count).rev().map(line).collect();
            return Answer::json(&json!({"nightly": {"logs": newest_first, "totalCount": count}}));
        }
        asks += 1;
        match asks {
            1 => Answer::json(&json!({"status": "running"})),
            2 => Answer::refuse(503),
            _ => Answer::json(&json!({"status": "succeeded"})),
        }
    });
    let place = tempfile::tempdir().unwrap();
    let logs = ["logs", "job", "nightly", "one", "0", "--follow", "--raw"];
    let told = text(&pretend.cli(place.path(), &logs).output().unwrap(), 0);
    assert_eq!(told, "line 1\nline 2\nline 3\n");
    let asked = pretend.asked();
    let paths = asked.iter().filter(|asked| asked.path == "/v0/jobs/nightly/executions/one");
    assert_eq!(paths.count(), 3);
}

#[test]
fn a_watcher_outlives_a_restart_of_the_server() {
    let (mut lists, mut streams) = (0, 0);
    let pretend = Pretend::start(move |_, asked| {
        if asked.path == "/v0/changes" {
            streams += 1;
            let headers = vec![("Content-Type", "text/event-stream".to_owned())];
            return match streams {
                1 => Answer { status: 200, headers, body: String::new() },
                2 => Answer::refuse(503),
                _ => Answer::refuse(404),
            };
        }
        lists += 1;
        match lists {
            1 => Answer::json(&json!([])),
            2 => Answer::refuse(503),
            _ => Answer::json(&json!([{"metadata": {"name": "seen"}}])),
        }
    });
    let place = tempfile::tempdir().unwrap();
    let mut watch = pretend.cli(place.path(), &["get", "policies", "--watch"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let found = lines.any(|line| line.unwrap().contains("seen"));
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(found);
}
