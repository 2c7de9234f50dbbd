//! Output of tasks, as callers read it.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::Cloud;
use bytes::Bytes;
use jobs::logs::{Logs, Printer, Settings, Source};
use serde_json::{Value, json};
use types::ids::{ExecutionId, WorkspaceId};
use types::instance::{Printed, Stream};
use types::{KindName, Timestamp};

const LOGS: &str = "/v0/observability/logs?resourceType=jobs&workloadIds=nightly&type=all&interval=60&workspace=main";
const DAY: &str = "start=2026-04-16T00:00:00&end=2026-04-17T00:00:00";

async fn print(
    cloud: &Cloud,
    workspace: &WorkspaceId,
    execution: &str,
    task: u32,
    at: &str,
    text: &str,
) {
    let logs = Logs::start(cloud.store.clone(), Settings::default());
    let source = Source {
        workspace: workspace.clone(),
        kind: KindName::Job,
        name: "nightly".into(),
        printer: Printer::Task {
            execution: ExecutionId::known(format!("exe_{execution}")),
            execution_name: execution.into(),
            task,
            attempt: 1,
        },
    };
    let (printed, pieces) = tokio::sync::mpsc::channel(1);
    let at: Timestamp = at.parse().unwrap();
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    printed.send(Printed { next: 1, at, stream: Stream::Stdout, bytes }).await.unwrap();
    drop(printed);
    logs.record(logs.begin(source), pieces).await.unwrap();
}

async fn messages(cloud: &Cloud, filter: &str) -> (Vec<String>, i64) {
    let answer = cloud.get(&format!("{LOGS}&{DAY}&{filter}")).await.ok();
    let lines = answer["nightly"]["logs"].as_array().unwrap().clone();
    let text = |line: &Value| line["message"].as_str().unwrap().to_owned();
    (lines.iter().map(text).collect(), answer["nightly"]["totalCount"].as_i64().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_tasks_are_found_by_what_they_are() {
    for cloud in Cloud::on_both().await {
        let main = cloud.workspace("main").await;
        let warning = r#"{"message":"50% done","severity":"WARNING","trace_id":"abc","labels":{"blaxel-task":"1"}}"#;
        print(&cloud, &main, "one", 0, "2026-04-16T09:30:00.001Z", "Hello\nthere\n").await;
        print(&cloud, &main, "one", 1, "2026-04-16T09:30:00.002Z", warning).await;
        print(&cloud, &main, "two", 0, "2026-04-16T09:30:00.003Z", "501\n").await;
        print(
            &cloud,
            &WorkspaceId::known("wsp_other"),
            "one",
            0,
            "2026-04-16T09:30:00.004Z",
            "secret\n",
        )
        .await;

        let found = |messages: &[&str], total| {
            (messages.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(), total)
        };
        assert_eq!(messages(&cloud, "").await, found(&["501", "50% done", "there", "Hello"], 4));
        assert_eq!(messages(&cloud, "limit=2&offset=1").await, found(&["50% done", "there"], 4));
        assert_eq!(messages(&cloud, "executionId=one&taskId=&search=&traceId=").await.1, 3);
        assert_eq!(
            messages(&cloud, "executionId=one&taskId=0").await,
            found(&["there", "Hello"], 2)
        );
        assert_eq!(messages(&cloud, "search=hELLO").await, found(&["Hello"], 1));
        // A wildcard of the database stands only for itself.
        assert_eq!(messages(&cloud, "search=50%25").await, found(&["50% done"], 1));
        assert_eq!(messages(&cloud, "search=_").await, found(&[], 0));
        assert_eq!(messages(&cloud, "traceId=abc").await, found(&["50% done"], 1));
        assert_eq!(messages(&cloud, "severity=WARNING,ERROR").await, found(&["50% done"], 1));
        assert_eq!(
            messages(&cloud, "severity=all,UNKNOWN,TRACE,DEBUG,INFO,WARNING,ERROR,FATAL").await.1,
            4
        );
        assert_eq!(messages(&cloud, "taskId=nonsense").await, found(&[], 0));
        assert_eq!(messages(&cloud, "executionId=three").await, found(&[], 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_has_the_shape_that_the_command_line_reads() {
    let cloud = Cloud::start().await;
    let main = cloud.workspace("main").await;
    print(
        &cloud,
        &main,
        "one",
        0,
        "2026-04-16T09:30:00.125Z",
        "a\n{\"message\":\"b\",\"trace_id\":\"t\"}\n",
    )
    .await;
    let both = LOGS.replace("nightly", "nightly,other");
    let answer = cloud.get(&format!("{both}&{DAY}")).await.ok();
    let expected = json!({
        "nightly": {"logs": [
            {"timestamp": "2026-04-16T09:30:00.125000001Z", "message": "b", "severity": 9, "trace_id": "t"},
            {"timestamp": "2026-04-16T09:30:00.125000000Z", "message": "a", "severity": 9},
        ], "totalCount": 2},
        "other": {"logs": [], "totalCount": 0},
    });
    assert_eq!(answer, expected);
    let agents = LOGS.replace("jobs", "agents");
    let answer = cloud.get(&format!("{agents}&{DAY}")).await.ok();
    assert_eq!(answer, json!({"nightly": {"logs": [], "totalCount": 0}}));
}

#[tokio::test]
async fn without_times_the_last_three_days_are_meant() {
    let cloud = Cloud::start().await;
    let main = cloud.workspace("main").await;
    let now = cloud.store.world().now();
    print(&cloud, &main, "old", 0, &now.plus_s(-4 * 86_400).to_string(), "old\n").await;
    print(&cloud, &main, "new", 0, &now.plus_s(-86_400).to_string(), "new\n").await;
    let total = async |range: &str| {
        let answer = cloud.get(&format!("{LOGS}{range}")).await.ok();
        answer["nightly"]["totalCount"].as_i64().unwrap()
    };
    assert_eq!(total("").await, 1);
    assert_eq!(total(&format!("&start={}&end=", now.plus_s(-5 * 86_400))).await, 1);
    assert_eq!(total(&format!("&start={}", now.plus_s(3600))).await, 0);
}

#[tokio::test]
async fn what_is_no_question_is_refused() {
    let cloud = Cloud::start().await;
    let many = (0..21).map(|number| format!("job-{number}")).collect::<Vec<_>>().join(",");
    let long = "x".repeat(201);
    for bad in [
        "workloadIds=nightly&severity=LOUD".to_owned(),
        format!("workloadIds=nightly&search={long}"),
        format!("workloadIds={many}"),
        "workloadIds=,".to_owned(),
    ] {
        cloud.get(&format!("/v0/observability/logs?resourceType=jobs&{bad}")).await.refused(400);
    }
    for kind in ["resourceType=job&", "resourceType=volumes&", "resourceType=&", ""] {
        let answer = cloud.get(&format!("/v0/observability/logs?{kind}workloadIds=nightly")).await;
        let known = "`resourceType` must be one of agents, applications, functions, jobs, models";
        assert!(answer.refused(400).contains(known), "{kind}");
    }
}
