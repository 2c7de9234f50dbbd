//! Schedules of all sandboxes in a workspace, and what they did.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::Cloud;
use http::Method;
use serde_json::{Value, json};
use store::Tx;
use store::firings::{self, Firing, Outcome};
use types::kinds::Sandbox;
use types::{Kind, Timestamp};

const SCHEDULES: &str = "/v0/schedules";
const EXECUTIONS: &str = "/v0/schedule-executions";

async fn sandbox(cloud: &Cloud, name: &str, workspace: &str) {
    let body = json!({"metadata": {"name": name}, "spec": {}});
    cloud.post(&format!("/v0/sandboxes?workspace={workspace}"), body).await.ok();
}

async fn schedule(cloud: &Cloud, workspace: &str, sandbox: &str, id: &str, kind: &str) {
    let value = if kind == "cron" { "0 0 * * *" } else { "2030-01-01T00:00:00Z" };
    // What a command looks like does not decide in which list it is.
    let input =
        json!({"command": "echo '\"type\":\"cron\"' '\"type\":\"at\"'", "env": {"type": "cron"}});
    let body = json!({"id": id, "type": kind, "value": value, "input": input});
    let path = format!("/v0/sandboxes/{sandbox}/schedules?workspace={workspace}");
    cloud.post(&path, body).await.ok();
}

fn ids(page: &Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect()
}

/// Walks through all pages of a list, which have `size` entries each but for the last.
async fn walk(cloud: &Cloud, path: &str, size: usize) -> Vec<String> {
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = cloud.get(&format!("{path}&limit={size}&cursor={cursor}")).await.ok();
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        if page["meta"]["hasMore"] == false {
            return seen;
        }
        assert_eq!(ids(&page).len(), size);
        cursor = page["meta"]["nextCursor"].as_str().unwrap().to_owned();
    }
}

/// Records that a schedule was fired, and what came of it.
async fn fire(cloud: &Cloud, sandbox: &'static str, id: &str, ms: i64, status_code: Option<i64>) {
    let workspace = cloud.workspace("main").await;
    let created_at = Timestamp::from_ms(1_776_290_000_000 + ms);
    let firing = Firing {
        id: id.to_owned(),
        sandbox: sandbox.to_owned(),
        schedule: format!("of-{sandbox}"),
        created_at,
        timeout_s: Some(600),
        outcome: None,
    };
    let outcome = status_code.map(|status_code| Outcome {
        executed_at: created_at.plus_ms(5),
        process_name: Some(format!("proc-{id}")),
        status_code,
        error: (status_code != 200).then(|| "not reached".to_owned()),
    });
    let work = move |tx: &mut Tx<'_>| {
        let row = store::resources::find(tx, &workspace, Sandbox::NAME, "", sandbox)?.unwrap();
        firings::begin(tx, (&workspace, &row.id), "here", &firing, 100)?;
        outcome.as_ref().map_or(Ok(()), |outcome| firings::end(tx, &firing.id, outcome))
    };
    cloud.store.write(work).await.unwrap();
}

#[tokio::test]
async fn schedules_of_all_sandboxes_are_listed_once_each() {
    for cloud in Cloud::on_both().await {
        cloud.post("/v0/workspaces", json!({"name": "other"})).await.ok();
        for (name, workspace) in [("one", "main"), ("two", "main"), ("one", "other")] {
            sandbox(&cloud, name, workspace).await;
        }
        schedule(&cloud, "other", "one", "foreign", "cron").await;
        for number in 0..5 {
            let (sandbox, kind) = (["one", "two"][number % 2], ["cron", "at", "at"][number % 3]);
            schedule(&cloud, "main", sandbox, &format!("job-{number}"), kind).await;
        }
        let main = |query: &str| format!("{SCHEDULES}?workspace=main{query}");
        let page = cloud.get(&main("")).await.ok();
        assert_eq!(ids(&page), ["job-4", "job-3", "job-2", "job-1", "job-0"], "newest first");
        assert_eq!(page["meta"], json!({"hasMore": false, "nextCursor": "", "total": 5}));
        assert_eq!(page["data"][0]["sandbox"], "one");
        assert_eq!(page["data"][1]["sandbox"], "two");
        let masked = &page["data"][0]["input"]["env"]["type"];
        let of_one = cloud.get("/v0/sandboxes/one/schedules/job-4?workspace=main").await.ok();
        assert_eq!(page["data"][0], of_one, "as it is read alone");
        assert_ne!(masked, "cron", "secrets are masked");
        let upwards = walk(&cloud, &main("&sort=createdAt:asc"), 2).await;
        assert_eq!(upwards, ["job-0", "job-1", "job-2", "job-3", "job-4"]);
        for (query, expected) in [
            ("&type=cron", vec!["job-3", "job-0"]),
            ("&type=at", vec!["job-4", "job-2", "job-1"]),
            ("&sandbox=two", vec!["job-3", "job-1"]),
            ("&sandbox=two&type=at", vec!["job-1"]),
            ("&sandbox=nobody", vec![]),
            ("&q=ob-2", vec!["job-2"]),
        ] {
            let page = cloud.get(&main(query)).await.ok();
            assert_eq!(ids(&page), expected, "{query}");
            assert_eq!(page["meta"]["total"], expected.len(), "{query}");
            assert_eq!(walk(&cloud, &main(query), 1).await, expected, "{query} in pages");
        }
        let first = cloud.get(&main("&limit=2")).await.ok();
        let cursor = first["meta"]["nextCursor"].as_str().unwrap();
        for other in ["&type=at", "&sandbox=one", "&sort=createdAt:asc"] {
            cloud.get(&main(&format!("{other}&limit=2&cursor={cursor}"))).await.refused(400);
        }
        cloud.get(&main("&limit=0")).await.refused(400);
        cloud.get(&main("&sort=name:asc")).await.refused(400);
        cloud.get(&main("&type=sleep")).await.refused(400);
        let headers = [("blaxel-version", ""), ("x-blaxel-workspace", "main")];
        let bare = cloud.call_with(Method::GET, SCHEDULES, &headers, None).await.ok();
        assert_eq!(bare.as_array().unwrap().len(), 5);
    }
}

#[tokio::test]
async fn schedules_of_one_sandbox_are_filtered_in_pages() {
    let cloud = Cloud::start().await;
    sandbox(&cloud, "one", "main").await;
    for number in 0..6 {
        schedule(&cloud, "main", "one", &format!("job-{number}"), ["cron", "at"][number % 2]).await;
    }
    let seen = walk(&cloud, "/v0/sandboxes/one/schedules?type=at", 2).await;
    assert_eq!(seen, ["job-5", "job-3", "job-1"]);
}

#[tokio::test]
async fn executions_of_all_sandboxes_are_listed_and_filtered() {
    for cloud in Cloud::on_both().await {
        for name in ["one", "two"] {
            sandbox(&cloud, name, "main").await;
        }
        fire(&cloud, "one", "exec_a", 1, Some(200)).await;
        fire(&cloud, "two", "exec_b", 2, Some(503)).await;
        fire(&cloud, "one", "exec_c", 3, Some(0)).await;
        fire(&cloud, "two", "exec_d", 4, None).await;
        let page = cloud.get(EXECUTIONS).await.ok();
        assert_eq!(ids(&page), ["exec_d", "exec_c", "exec_b", "exec_a"]);
        assert_eq!(page["meta"]["total"], 4);
        let said = |at: usize, member: &str| page["data"][at][member].clone();
        let names: Vec<Value> = (0..4).map(|at| said(at, "sandbox")).collect();
        assert_eq!(names, ["two", "one", "two", "one"]);
        let statuses: Vec<Value> = (0..4).map(|at| said(at, "status")).collect();
        assert_eq!(statuses, [Value::Null, json!("failed"), json!("failed"), json!("succeeded")]);
        let of_one = cloud.get("/v0/sandboxes/one/schedule-executions").await.ok();
        assert_eq!(of_one["data"], json!([page["data"][1], page["data"][3]]));
        let (second, third) = ("2026-04-15T21:53:20.002Z", "2026-04-15T21:53:20.003Z");
        for (query, expected) in [
            ("status=succeeded".to_owned(), vec!["exec_a"]),
            ("status=failed".to_owned(), vec!["exec_c", "exec_b"]),
            ("sandbox=one".to_owned(), vec!["exec_c", "exec_a"]),
            ("sandbox=nobody".to_owned(), vec![]),
            ("schedule=of-two".to_owned(), vec!["exec_d", "exec_b"]),
            ("q=PROC-EXEC_A".to_owned(), vec!["exec_a"]),
            ("sort=createdAt:asc".to_owned(), vec!["exec_a", "exec_b", "exec_c", "exec_d"]),
            (format!("since={second}&until={third}"), vec!["exec_c", "exec_b"]),
        ] {
            let page = cloud.get(&format!("{EXECUTIONS}?{query}")).await.ok();
            assert_eq!(ids(&page), expected, "{query}");
            assert_eq!(page["meta"]["total"], expected.len(), "{query}");
            let walked = walk(&cloud, &format!("{EXECUTIONS}?{query}"), 1).await;
            assert_eq!(walked, expected, "{query} in pages");
        }
        let first = cloud.get(&format!("{EXECUTIONS}?limit=1")).await.ok();
        let cursor = first["meta"]["nextCursor"].as_str().unwrap();
        let other = format!("{EXECUTIONS}?limit=1&status=failed&cursor={cursor}");
        cloud.get(&other).await.refused(400);
        for wrong in ["since=yesterday", "until=1", "status=running", "limit=0", "sort=name:asc"] {
            cloud.get(&format!("{EXECUTIONS}?{wrong}")).await.refused(400);
        }
    }
}

#[tokio::test]
async fn metrics_count_by_the_minute() {
    for cloud in Cloud::on_both().await {
        for name in ["one", "two"] {
            sandbox(&cloud, name, "main").await;
        }
        schedule(&cloud, "main", "one", "nightly", "cron").await;
        // The clock stands at 2026-04-16T00:40:00Z; these began at 21:53:20 the day before.
        fire(&cloud, "one", "exec_a", 1, Some(200)).await;
        fire(&cloud, "two", "exec_b", 2, Some(503)).await;
        fire(&cloud, "one", "exec_c", 60_000, None).await;
        let metrics = cloud.get("/v0/schedules/metrics").await.ok();
        let expected = json!({
            "executions": 3, "executionsByStatus": {"succeeded": 1, "failed": 1},
            "sandboxes": 2, "schedules": 1,
            "since": "2026-04-15T00:40:00.000Z", "until": "2026-04-16T00:40:00.000Z",
        });
        assert_eq!(metrics, expected);
        for (query, executions) in [
            ("since=2026-04-15T21:53:59Z&until=2026-04-15T21:54:59Z", 2),
            ("since=2026-04-15T21:54:00Z&until=2026-04-15T21:55:00Z", 1),
            ("since=2026-04-15T21:55:00Z", 0),
            ("until=2026-04-15T21:54:00Z", 2),
        ] {
            let metrics = cloud.get(&format!("/v0/schedules/metrics?{query}")).await.ok();
            assert_eq!(metrics["executions"], executions, "{query}: {metrics}");
        }
        for wrong in [
            "since=2026-04-09T00:39:00Z",
            "since=2026-04-16T00:39:10Z&until=2026-04-16T00:39:50Z",
            "since=2026-04-16T00:00:00Z&until=2026-04-15T00:00:00Z",
            "since=2026-04-15T00:00:00Z&until=2026-05-15T00:00:00Z",
            "until=2026-04-01T00:00:00Z",
            "since=soon",
        ] {
            cloud.get(&format!("/v0/schedules/metrics?{wrong}")).await.refused(400);
        }
    }
}

#[tokio::test]
async fn nothing_of_another_workspace_is_listed_or_counted() {
    let cloud = Cloud::start().await;
    sandbox(&cloud, "one", "main").await;
    schedule(&cloud, "main", "one", "nightly", "cron").await;
    fire(&cloud, "one", "exec_a", 1, Some(200)).await;
    cloud.post("/v0/workspaces", json!({"name": "other"})).await.ok();
    for query in ["", "&sandbox=one"] {
        for path in [SCHEDULES, EXECUTIONS] {
            let page = cloud.get(&format!("{path}?workspace=other{query}")).await.ok();
            assert_eq!((&page["data"], &page["meta"]["total"]), (&json!([]), &json!(0)), "{path}");
        }
    }
    let metrics = cloud.get("/v0/schedules/metrics?workspace=other").await.ok();
    for count in ["executions", "sandboxes", "schedules"] {
        assert_eq!(metrics[count], 0, "{metrics}");
    }
}
