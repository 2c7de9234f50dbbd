//! Jobs on the command line.

use crate::place::{Client, Place, eventually};
use crate::setup::status;
use serde_json::json;
use std::process::{Command, Output};

fn holm(client: &Client, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holm"));
    command
        .env_clear()
        .env("HOME", "/nowhere")
        .env("HOLM_URL", &client.base)
        .env("HOLM_API_KEY", &client.key);
    command.env("HOLM_WORKSPACE", "main").args(arguments).output().unwrap()
}

#[track_caller]
fn said(output: &Output, exit: i32) -> String {
    let (said, noted) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(exit), "said: {said}\nnoted: {noted}");
    said.into_owned() + &noted
}

#[test]
fn an_execution_is_started_watched_and_read() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.job("hello", r#"echo "$GREETING $2"; [ "$2" != bad ] || exit 3"#, &json!({}));

    let data = r#"{"tasks": [{"who": "ann"}, {"who": "bob"}]}"#;
    let good =
        ["run", "job", "hello", "--data", data, "--env", "GREETING=hi", "--id", "first", "--wait"];
    let text = said(&holm(&client, &good), 0);
    assert!(text.starts_with("first\n") && text.contains("succeeded: 2 of 2 succeeded"), "{text}");

    let bad = [
        "run",
        "job",
        "hello",
        "--data",
        r#"[{"who": "bad"}, {"who": "eve"}]"#,
        "--id",
        "second",
        "--wait",
    ];
    let text = said(&holm(&client, &bad), 1);
    assert!(
        text.contains("task 0 failed") && text.contains("failed: 1 of 2 succeeded, 1 failed"),
        "{text}"
    );

    let listed = said(&holm(&client, &["get", "job", "hello", "executions"]), 0);
    assert!(listed.contains("first") && listed.contains("second"), "{listed}");
    let tasks = said(
        &holm(&client, &["get", "job", "hello", "executions", "second", "tasks", "-o", "json"]),
        0,
    );
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&tasks).unwrap().as_array().map(Vec::len),
        Some(2)
    );
    assert_eq!(
        said(&holm(&client, &["logs", "job", "hello", "first", "1", "--raw"]), 0),
        "hi bob\n"
    );
    let found =
        said(&holm(&client, &["logs", "job", "hello", "--search", "ANN", "--since", "10m"]), 0);
    assert!(found.ends_with("Z hi ann\n"), "{found}");
    place.clear(server, &client);
}

#[test]
fn an_execution_is_cancelled_and_whoever_waits_is_told() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.job("slow", "sleep 6", &json!({"maxConcurrentTasks": 1}));
    let tasks = r#"[{}, {}, {}]"#;
    // Without a terminal the command does not wait unless asked to.
    assert_eq!(
        said(&holm(&client, &["run", "job", "slow", "--data", tasks, "--id", "one"]), 0),
        "one\n"
    );
    eventually("it runs", || status(&client.execution("slow", "one")) == "running");
    let waiting = std::thread::spawn({
        let client = client.clone();
        move || holm(&client, &["run", "job", "slow", "--data", tasks, "--id", "two", "--wait"])
    });
    eventually("the other one is there", || {
        client.ask("GET", "/v0/jobs/slow/executions/two", None).unwrap().0 == 200
    });
    for id in ["one", "two"] {
        let text = said(&holm(&client, &["cancel", "job", "slow", id]), 0);
        assert!(text.contains(&format!("executions/{id} cancel")), "{text}");
    }
    let text = said(&waiting.join().unwrap(), 13);
    assert!(text.contains("cancelled: "), "{text}");
    assert_eq!(status(&client.ended("slow", "one")), "cancelled");
    said(&holm(&client, &["cancel", "job", "slow", "three"]), 6);
    said(&holm(&client, &["run", "job", "slow", "--id", "done", "--wait"]), 0);
    let text = said(&holm(&client, &["cancel", "job", "slow", "done"]), 0);
    assert!(text.contains("nothing to cancel"), "{text}");
    place.clear(server, &client);
}
