//! Executions do what they were asked to, and the output of their tasks can be found.

use crate::place::{Place, eventually};
use crate::setup::{numbered, status};
use serde_json::json;
use std::collections::BTreeSet;

#[test]
fn twenty_tasks_run_and_what_they_print_is_found() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.job(
        "hello",
        r#"echo "out $1 $2 of $BL_EXECUTION_ID"; echo "err $TASK_INDEX" >&2"#,
        &json!({}),
    );
    let id = client.execute("hello", &numbered(20));
    let execution = client.ended("hello", &id);
    assert_eq!(status(&execution), "succeeded", "{execution}");
    let stats = &execution["stats"];
    assert_eq!((&stats["total"], &stats["success"]), (&json!(20), &json!(20)), "{stats}");
    assert_eq!(
        (&stats["failure"], &stats["running"], &stats["retried"]),
        (&json!(0), &json!(0), &json!(0))
    );
    let tasks = client.tasks("hello", &id);
    assert!(tasks.len() == 20 && tasks.iter().all(|task| status(task) == "succeeded"), "{tasks:?}");

    // The output of a task is complete once the task has ended, and not doubled.
    let found: BTreeSet<_> =
        client.lines("hello", &format!("executionId={id}&search=OUT")).into_iter().collect();
    assert_eq!(found, (0..20).map(|n| format!("out --n {n} of {id}")).collect());
    assert_eq!(
        client.lines("hello", &format!("executionId={id}&taskId=7&severity=ERROR")),
        ["err 7"]
    );
    assert_eq!(client.lines("hello", "").len(), 40);
    assert!(client.lines("hello", "executionId=another").is_empty());
    assert!(client.lines("other", "").is_empty());
    place.clear(server, &client);
}

#[test]
fn the_data_of_a_task_is_fetched_inside() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.job("data", r#"wget -q -O - "$BL_EXECUTION_DATA_URL""#, &json!({}));
    let tasks = [json!({"city": "Köln", "deep": {"list": [1, 2]}}), json!({})];
    let id = client.execute("data", &tasks);
    assert_eq!(status(&client.ended("data", &id)), "succeeded", "{:?}", client.lines("data", ""));
    let lines = client.lines("data", "taskId=0");
    let data: serde_json::Value = serde_json::from_str(&lines.concat()).unwrap();
    assert_eq!(data["tasks"][0], tasks[0]);
    place.clear(server, &client);
}

#[test]
fn a_task_that_runs_is_seen_while_it_does() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.job("slow", "echo begun; sleep 10; echo ended", &json!({}));
    let id = client.execute("slow", &numbered(1));
    eventually("the first line is there while the task runs", || {
        client.lines("slow", "search=begun").len() == 1
            && status(&client.execution("slow", &id)) == "running"
    });
    assert_eq!(status(&client.ended("slow", &id)), "succeeded");
    assert_eq!(client.lines("slow", ""), ["begun", "ended"]);
    place.clear(server, &client);
}

#[test]
fn a_flood_is_cut_and_a_line_says_so() {
    let mut place = Place::new("15s");
    place.settings.push(("HOLM_LOGS__TASK_BYTES_MAX", "20000".into()));
    let (server, client) = place.start();
    client.job("flood", "seq 1 100000", &json!({}));
    let id = client.execute("flood", &numbered(1));
    assert_eq!(status(&client.ended("flood", &id)), "succeeded");
    let lines = client.lines("flood", "");
    assert_eq!((lines[0].as_str(), lines[100].as_str()), ("1", "101"));
    assert!(lines.last().unwrap().contains("only 20000 bytes"), "{:?}", lines.last());
    place.clear(server, &client);
}
