//! The server is killed while an execution runs.

use crate::place::Place;
use crate::setup::{numbered, status};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

const TASKS: usize = 40;
const LIFE_MS_MAX: u64 = 1500;

#[test]
fn every_task_ends_once_however_often_the_server_is_killed() {
    let kills = if std::env::var("HOLM_FAULTS").is_ok_and(|form| form == "long") { 30 } else { 4 };
    let mut place = Place::new("15s");
    let (mut server, mut client) = place.start();
    let command = r#"echo "begun $TASK_INDEX"; sleep 0.7; echo "ended $TASK_INDEX""#;
    client.job("steady", command, &json!({"maxConcurrentTasks": 4}));
    let mut chances = fastrand::Rng::new();
    for _ in 0..kills {
        let id = client.execute("steady", &numbered(TASKS));
        std::thread::sleep(Duration::from_millis(chances.u64(..LIFE_MS_MAX)));
        server.kill();
        (server, client) = place.start();
        let execution = client.ended("steady", &id);
        let stats = &execution["stats"];
        assert_eq!(status(&execution), "succeeded", "{execution}");
        assert_eq!((&stats["total"], &stats["success"]), (&json!(TASKS), &json!(TASKS)), "{stats}");
        assert!(client.tasks("steady", &id).iter().all(|task| status(task) == "succeeded"));

        // Nothing ran twice, and tasks that ran through the kill have no missing or doubled lines.
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for line in client.lines("steady", &format!("executionId={id}")) {
            *counts.entry(line).or_default() += 1;
        }
        let expected = (0..TASKS)
            .flat_map(|n| [format!("begun {n}"), format!("ended {n}")])
            .map(|line| (line, 1));
        assert_eq!(counts, expected.collect());
    }
    place.clear(server, &client);
}
