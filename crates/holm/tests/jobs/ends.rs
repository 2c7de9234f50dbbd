//! The ways in which tasks and executions can end.

use crate::place::{Place, eventually};
use crate::setup::{conditions, numbered, status};
use serde_json::json;

#[test]
fn a_task_that_fails_is_tried_again_until_it_has_failed_too_often() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    // The first and the last succeed.
    client.job("some", r#"echo "try $2"; [ "$2" != 1 ] || exit 3"#, &json!({"maxRetries": 2}));
    let id = client.execute("some", &numbered(3));
    let execution = client.ended("some", &id);
    assert_eq!(status(&execution), "failed", "{execution}");
    let stats = &execution["stats"];
    assert_eq!(
        (&stats["success"], &stats["failure"], &stats["retried"]),
        (&json!(2), &json!(1), &json!(2)),
        "{stats}"
    );
    let tasks = client.tasks("some", &id);
    assert_eq!(tasks.iter().map(status).collect::<Vec<_>>(), ["succeeded", "failed", "succeeded"]);
    assert!(conditions(&tasks[1]).contains('3'), "{}", tasks[1]);
    assert_eq!(client.lines("some", &format!("executionId={id}&taskId=1")), ["try 1"; 3]);
    place.clear(server, &client);
}

#[test]
fn a_task_that_succeeds_at_last_is_a_success() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.job("later", r#"echo try; [ "$(date +%s)" -ge "$2" ]"#, &json!({"maxRetries": 20}));
    let job = client.done("GET", "/v0/jobs/later", None);
    let made: types::Timestamp = job["metadata"]["createdAt"].as_str().unwrap().parse().unwrap();
    let id = client.execute("later", &[json!({"from": made.seconds() + 6})]);
    let execution = client.ended("later", &id);
    assert_eq!(status(&execution), "succeeded", "{execution}");
    let retried = execution["stats"]["retried"].as_u64().unwrap();
    assert!(retried > 0, "{execution}");
    assert_eq!(client.lines("later", "").len() as u64, retried + 1);
    place.clear(server, &client);
}

#[test]
fn time_and_memory_end_a_task_and_it_says_which() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.job("long", "echo begun; sleep 1000", &json!({"timeout": 5}));
    client.job("large", "echo begun; tail /dev/zero", &json!({}));
    let (long, large) =
        (client.execute("long", &numbered(1)), client.execute("large", &numbered(1)));
    for (job, id, word) in [("long", long, "time"), ("large", large, "memory")] {
        assert_eq!(status(&client.ended(job, &id)), "failed");
        let task = &client.tasks(job, &id)[0];
        assert!(status(task) == "failed" && conditions(task).contains(word), "{job}: {task}");
        assert_eq!(client.lines(job, "search=begun"), ["begun"]);
    }
    place.clear(server, &client);
}

#[test]
fn what_cannot_be_started_says_why() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.job("absent", "true", &json!({"image": "holm/nothing-of-this-name"}));
    let id = client.execute("absent", &numbered(1));
    assert_eq!(status(&client.ended("absent", &id)), "failed");
    let task = &client.tasks("absent", &id)[0];
    assert!(conditions(task).contains("holm/nothing-of-this-name"), "{task}");
    place.clear(server, &client);
}

#[test]
fn a_cancelled_execution_lets_end_what_runs_and_starts_nothing_more() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.job("queue", "echo begun; sleep 10; echo ended", &json!({"maxConcurrentTasks": 1}));
    let id = client.execute("queue", &numbered(4));
    eventually("the first task runs", || client.lines("queue", "search=begun").len() == 1);
    let answer = client.done("DELETE", &format!("/v0/jobs/queue/executions/{id}"), None);
    assert_eq!(status(&answer), "cancelling", "{answer}");
    let execution = client.ended("queue", &id);
    let stats = &execution["stats"];
    assert_eq!(status(&execution), "cancelled", "{execution}");
    assert_eq!((&stats["success"], &stats["cancelled"]), (&json!(1), &json!(3)), "{stats}");
    assert_eq!(client.lines("queue", ""), ["begun", "ended"]);
    place.clear(server, &client);
}
