//! Executions of jobs: how they are requested, what is reported about them, and what runs.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use crate::common::machine::{IMAGE, Pretended};
use crate::common::{Cloud, settings};
use control::machine::{Launch, LaunchFault};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use types::instance::{InstanceName, Outcome};

const EXECUTIONS: &str = "/v0/jobs/nightly/executions";

fn job(runtime: Value) -> Value {
    json!({"metadata": {"name": "nightly"}, "spec": {"runtime": runtime}})
}

async fn cloud_with(job: Value) -> Cloud {
    let cloud = Cloud::start().await;
    cloud.post("/v0/jobs", job).await.ok();
    cloud
}

/// Starts a cloud whose machine does what the script says.
async fn cloud_on(
    script: impl Fn(&Launch) -> Result<Outcome, LaunchFault> + Send + Sync + 'static,
) -> (Cloud, Arc<Pretended>) {
    let machine = Arc::new(Pretended::new(script));
    (Cloud::start_on_machine(machine.clone(), impatient()).await, machine)
}

fn impatient() -> control::Settings {
    let jobs = jobs::Settings {
        backoff_first: Duration::from_millis(2),
        backoff_max: Duration::from_millis(4),
        poll: Duration::from_millis(5),
        ..jobs::Settings::default()
    };
    control::Settings { jobs, ..settings() }
}
async fn end(cloud: &Cloud, id: &str) -> Value {
    let path = format!("{EXECUTIONS}/{id}");
    cloud
        .until(&path, |now| {
            matches!(now["status"].as_str(), Some("succeeded" | "failed" | "cancelled"))
        })
        .await
}

#[tokio::test]
async fn an_execution_runs_its_tasks_on_the_machine() {
    let (cloud, machine) = cloud_on(|_| Ok(Outcome::Exited(0))).await;
    let runtime = json!({
        "image": IMAGE, "memory": 1024, "timeout": 60, "maxRetries": 1, "maxConcurrentTasks": 2,
        "envs": [{"name": "MODE", "value": "slow"}, {"name": "TOKEN", "value": "s3cret", "secret": true}],
    });
    let mut wish = job(runtime);
    wish["spec"]["volumes"] =
        json!([{"name": "tmp", "mountPath": "/scratch", "type": "ephemeral", "sizeMb": 64}]);
    cloud.post("/v0/jobs", wish).await.ok();
    let asked = json!({
        "tasks": [{"n": 0}, {"n": 1}, {"name": "two"}], "env": {"MODE": "fast"}, "memory": 512, "executionId": "mine",
    });
    let made = cloud.post(EXECUTIONS, asked.clone()).await.ok();
    assert_eq!((&made["executionId"], &made["id"]), (&json!("mine"), &json!("mine")));
    assert_eq!(
        (&made["jobId"], &made["workspaceId"], &made["tasks"]),
        (&json!("nightly"), &json!("main"), &asked["tasks"])
    );
    let done = end(&cloud, "mine").await;
    assert_eq!(done["status"], "succeeded");
    let stats =
        json!({"cancelled": 0, "failure": 0, "retried": 0, "running": 0, "success": 3, "total": 3});
    assert_eq!(done["stats"], stats);
    let spec = json!({"envOverride": {"MODE": "***"}, "memoryOverride": 512, "parallelism": 2, "timeout": 60});
    assert_eq!(done["spec"], spec);
    assert_eq!(done["tasks"][2]["metadata"]["name"], "2");
    assert_eq!(done["tasks"][2]["status"], "succeeded");
    assert!(!done.to_string().contains("s3cret"));
    let mut launched = machine.launched.borrow().clone();
    launched.sort_by(|one, other| one.instance.cmp(&other.instance));
    assert_eq!(launched.len(), 3);
    check_launch(&launched[2]);
}

fn check_launch(launch: &Launch) {
    assert!(
        launch.instance.as_str().starts_with("task-") && launch.instance.as_str().ends_with("-2-1"),
        "{}",
        launch.instance
    );
    assert_eq!(
        (launch.memory_mb, launch.image.as_str(), launch.hostname.as_str()),
        (512, IMAGE, "nightly")
    );
    let last = |name: &str| {
        launch.environment.iter().rev().find(|(known, _)| known == name).map(|(_, value)| &**value)
    };
    for (name, value) in [
        ("MODE", "fast"),
        ("TOKEN", "s3cret"),
        ("TASK_INDEX", "2"),
        ("BL_TASK_KEY", "TASK_INDEX"),
        ("BL_EXECUTION_ID", "mine"),
        ("BL_EXECUTION_KEY", "BL_EXECUTION_ID"),
        ("BL_TYPE", "job"),
        ("BL_NAME", "nightly"),
        ("BL_WORKSPACE", "main"),
    ] {
        assert_eq!(last(name), Some(value), "{name}");
    }
    let work = launch.work.as_ref().expect("work");
    assert_eq!(work.arguments, ["--name", "two"]);
    assert_eq!(work.timeout, Some(Duration::from_secs(60)));
    let data: Value = serde_json::from_slice(&work.data).expect("JSON");
    assert_eq!(data, json!({"tasks": [{"n": 0}, {"n": 1}, {"name": "two"}]}));
    assert_eq!((launch.scratch[0].path.as_str(), launch.scratch[0].size_mb), ("/scratch", 64));
}

#[tokio::test]
async fn tasks_call_the_server_as_their_job_until_it_is_gone() {
    let (cloud, machine) = cloud_on(|_| Ok(Outcome::Exited(0))).await;
    let envs = json!([{"name": "BL_RUN_URL", "value": "http://10.0.0.1:8700"}]);
    cloud.post("/v0/jobs", job(json!({"image": IMAGE, "envs": envs}))).await.ok();
    for id in ["one", "two"] {
        cloud.post(EXECUTIONS, json!({"tasks": [{}], "id": id})).await.ok();
        end(&cloud, id).await;
    }
    let launched = machine.launched.borrow().clone();
    let [one, two] = &launched[..] else { panic!("{} tasks were launched", launched.len()) };
    let variable = |launch: &Launch, name: &str| {
        let mut all = launch.environment.iter().rev();
        all.find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    assert_eq!(variable(one, "BL_API_URL").as_deref(), Some("http://localhost:8080/v0"));
    assert_eq!(variable(one, "BL_RUN_URL").as_deref(), Some("http://10.0.0.1:8700"));
    let credentials = variable(one, "BL_CLIENT_CREDENTIALS").unwrap();
    assert_eq!(variable(two, "BL_CLIENT_CREDENTIALS").as_ref(), Some(&credentials));

    let basic = format!("Basic {credentials}");
    let ask = || async {
        let headers = [("authorization", basic.as_str()), ("content-type", "application/json")];
        let body = json!({"grant_type": "client_credentials"}).to_string().into_bytes();
        cloud.raw(http::Method::POST, "/v0/oauth/token", &headers, body).await
    };
    let token = ask().await.ok()["access_token"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {token}");
    let with = [("authorization", bearer.as_str())];
    cloud.call_with(http::Method::GET, "/v0/jobs/nightly", &with, None).await.ok();
    cloud.delete("/v0/jobs/nightly").await.ok();
    assert!(!ask().await.status.is_success(), "its identity has gone with it");
}

#[tokio::test]
async fn tasks_tell_how_they_failed() {
    let ends = |launch: &Launch| match launch.instance.as_str().rsplit('-').nth(1) {
        Some("0") => Ok(Outcome::Exited(3)),
        Some("1") => Ok(Outcome::Killed(11)),
        Some("2") => Ok(Outcome::OutOfMemory),
        Some("3") => Ok(Outcome::TimedOut),
        Some("4") => Ok(Outcome::NotStarted("there is no such program".into())),
        Some("5") => Err(LaunchFault::Full("no seat is free".into())),
        _ => Ok(Outcome::Exited(0)),
    };
    let (cloud, machine) = cloud_on(ends).await;
    cloud.post("/v0/jobs", job(json!({"image": IMAGE, "maxRetries": 1}))).await.ok();
    let tasks: Vec<_> = (0..7).map(|n| json!({"n": n})).collect();
    let made = cloud.post(EXECUTIONS, json!({"tasks": tasks})).await.ok();
    let done = end(&cloud, made["executionId"].as_str().expect("an id")).await;
    assert_eq!((&done["status"], &done["stats"]["failure"]), (&json!("failed"), &json!(6)));
    let reasons = ["NonZeroExitCode", "Signal", "OutOfMemory", "Timeout", "NotStarted", "Lost"];
    for (index, reason) in reasons.into_iter().enumerate() {
        let task = &done["tasks"][index];
        assert_eq!(
            (&task["status"], &task["conditions"][0]["reason"]),
            (&json!("failed"), &json!(reason)),
            "{task}"
        );
    }
    assert_eq!(done["tasks"][0]["conditions"][0]["executionReason"], "3");
    assert_eq!(done["tasks"][0]["conditions"][0]["message"], "attempt 2 exited with code 3");
    assert_eq!(done["tasks"][6]["conditions"][0]["state"], "Succeeded");
    // Two attempts for each of four tasks, one for the task that cannot succeed and for the one
    // that did, and six for the one whose instances were lost.
    assert_eq!(machine.launched.borrow().len(), 4 * 2 + 2 + 6);
}

#[tokio::test]
async fn the_first_version_lists_tasks_without_pages() {
    let cloud = cloud_with(job(json!({"image": IMAGE, "memory": 1024}))).await;
    cloud.post(EXECUTIONS, json!({"tasks": [{}, {}], "executionId": "one"})).await.ok();
    let tasks = format!("{EXECUTIONS}/one/tasks");
    assert_eq!(cloud.get(&tasks).await.ok()["meta"]["total"], 2);
    for version in ["", "2026-04-16"] {
        let headers = [("blaxel-version", version)];
        let bare = cloud.call_with(Method::GET, &tasks, &headers, None).await.ok();
        assert_eq!(bare.as_array().unwrap().len(), 2, "{bare}");
    }
}

#[tokio::test]
async fn what_cannot_be_run_is_refused() {
    let cloud = cloud_with(job(json!({"image": IMAGE, "memory": 1024}))).await;
    cloud.post("/v0/jobs/none/executions", json!({"tasks": [{}]})).await.refused(404);
    for (body, word) in [
        (json!({}), "tasks"),
        (json!({"tasks": []}), "tasks"),
        (json!({"tasks": [1]}), "tasks"),
        (json!({"tasks": ["text"]}), "tasks"),
        (json!({"tasks": [{}], "memory": 2048}), "memory"),
        (json!({"tasks": [{}], "id": "one", "executionId": "two"}), "id"),
        (json!({"tasks": [{}], "env": {"TASK_INDEX": "7"}}), "`env.TASK_INDEX` is reserved"),
        (json!({"tasks": [{}], "env": {"MODE": "x".repeat(131_067)}}), "131070 bytes at most"),
        (json!({"tasks": [{}], "executionId": "a/b"}), "executionId"),
    ] {
        let answer = cloud.post(EXECUTIONS, body.clone()).await;
        assert!(answer.body.to_string().contains(word), "{body}: {}", answer.body);
        answer.refused(400);
    }
    cloud.post(EXECUTIONS, json!({"tasks": [{}], "id": "one", "executionId": "one"})).await.ok();
    cloud.post(EXECUTIONS, json!({"tasks": [{}], "id": "one"})).await.refused(409);
    let none = cloud.post(EXECUTIONS, json!({"tasks": [{}], "allowQueue": false})).await;
    assert!(none.headers.contains_key("retry-after"), "{:?}", none.headers);
    none.refused(429);
    cloud
        .put("/v0/jobs/nightly", {
            let mut disabled = job(json!({"image": IMAGE}));
            disabled["spec"]["enabled"] = json!(false);
            disabled
        })
        .await
        .ok();
    let message = cloud.post(EXECUTIONS, json!({"tasks": [{}]})).await.refused(400);
    assert!(message.contains("disabled"), "{message}");
}

#[tokio::test]
async fn an_execution_has_at_most_so_many_tasks() {
    let mut few = impatient();
    few.jobs.tasks_max = 3;
    let cloud = Cloud::start_with(few).await;
    cloud.post("/v0/jobs", job(json!({"image": IMAGE}))).await.ok();
    let message = cloud.post(EXECUTIONS, json!({"tasks": [{}, {}, {}, {}]})).await.refused(400);
    assert!(message.contains("at most 3"), "{message}");
}

#[tokio::test]
async fn a_workspace_with_too_many_open_executions_is_told_to_wait_for_some() {
    let mut few = impatient();
    (few.jobs.open_max, few.jobs.open_public_max) = (2, 1);
    let cloud = Cloud::start_with(few).await;
    cloud.post("/v0/jobs", job(json!({"image": IMAGE}))).await.ok();
    for id in ["one", "two"] {
        cloud.post(EXECUTIONS, json!({"tasks": [{}], "id": id})).await.ok();
    }
    let refusal = cloud.post(EXECUTIONS, json!({"tasks": [{}], "id": "three"})).await;
    assert_eq!(
        (&refusal.body["error"], &refusal.body["retryable"]),
        (&json!("too_many_requests"), &json!(true))
    );
    let message = refusal.refused(429);
    assert!(message.contains("2 executions that have not ended"), "{message}");
    cloud.delete(&format!("{EXECUTIONS}/one")).await.ok();
    cloud.post(EXECUTIONS, json!({"tasks": [{}], "id": "three"})).await.ok();
}

#[tokio::test]
async fn what_must_not_wait_and_never_fits_is_refused() {
    let (cloud, machine) = cloud_on(|_| Ok(Outcome::Exited(0))).await;
    machine.close();
    cloud.post("/v0/jobs", job(json!({"image": IMAGE, "memory": 1024}))).await.ok();
    cloud.post(EXECUTIONS, json!({"tasks": [{}], "id": "first"})).await.ok();
    cloud.until(&format!("{EXECUTIONS}/first"), |now| now["status"] == "running").await;
    let tasks = |count: usize| json!({"tasks": vec![json!({}); count], "allowQueue": false});
    cloud.post(EXECUTIONS, tasks(17)).await.refused(400);
    cloud.post(EXECUTIONS, tasks(16)).await.refused(429);
    cloud.post(EXECUTIONS, tasks(15)).await.ok();
    machine.open();
}

#[tokio::test]
async fn both_addresses_and_a_repeated_request_are_the_same() {
    for cloud in Cloud::on_both().await {
        cloud.post("/v0/jobs", job(json!({"image": IMAGE}))).await.ok();
        for path in
            [EXECUTIONS, "/main/jobs/nightly/executions", "/run/main/jobs/nightly/executions"]
        {
            cloud.post(path, json!({"tasks": [{}]})).await.ok();
        }
        let again = || {
            cloud.call_with(
                Method::POST,
                EXECUTIONS,
                &[("idempotency-key", "k1")],
                Some(json!({"tasks": [{}]})),
            )
        };
        assert_eq!(again().await.ok(), again().await.ok());
        assert_eq!(cloud.get(EXECUTIONS).await.ok()["meta"]["total"], 4);
    }
}

#[tokio::test]
async fn lists_have_pages_offsets_and_filters() {
    for cloud in Cloud::on_both().await {
        cloud.post("/v0/jobs", job(json!({"image": IMAGE}))).await.ok();
        for id in ["a1", "a2", "a3", "b1"] {
            cloud.post(EXECUTIONS, json!({"tasks": [{}], "id": id})).await.ok();
        }
        let ids = |list: &Value| -> Vec<String> {
            list.as_array()
                .expect("a list")
                .iter()
                .map(|one| one["metadata"]["id"].as_str().expect("an id").into())
                .collect()
        };
        let first = cloud.get(&format!("{EXECUTIONS}?limit=3")).await.ok();
        assert_eq!(
            (ids(&first["data"]), &first["meta"]["total"]),
            (vec!["b1".into(), "a3".into(), "a2".into()], &json!(4))
        );
        let cursor = first["meta"]["nextCursor"].as_str().expect("a cursor");
        let second = cloud.get(&format!("{EXECUTIONS}?limit=3&cursor={cursor}")).await.ok();
        assert_eq!(
            (ids(&second["data"]), &second["meta"]["hasMore"]),
            (vec!["a1".into()], &json!(false))
        );
        let found = cloud.get(&format!("{EXECUTIONS}?q=A1&sort=name:asc")).await.ok();
        assert_eq!(ids(&found["data"]), ["a1"]);
        let old = [("blaxel-version", "2026-04-16")];
        let path = format!("{EXECUTIONS}?offset=1&limit=2");
        let bare = cloud.call_with(Method::GET, &path, &old, None).await.ok();
        assert_eq!(ids(&bare), ["a3", "a2"]);
        for wrong in ["offset=-1", "limit=0", "cursor=x", "sort=none", "q=a"] {
            cloud.get(&format!("{EXECUTIONS}?{wrong}")).await.refused(400);
        }
    }
}

#[tokio::test]
async fn tasks_have_pages_of_their_own() {
    let cloud = cloud_with(job(json!({"image": IMAGE}))).await;
    cloud.post(EXECUTIONS, json!({"tasks": vec![json!({}); 230], "id": "long"})).await.ok();
    let path = format!("{EXECUTIONS}/long");
    assert_eq!(cloud.get(&path).await.ok()["tasks"].as_array().map(Vec::len), Some(100));
    let first = cloud.get(&format!("{path}/tasks?limit=200")).await.ok();
    assert_eq!(
        (&first["meta"]["total"], &first["data"][199]["metadata"]["name"]),
        (&json!(230), &json!("199"))
    );
    let cursor = first["meta"]["nextCursor"].as_str().expect("a cursor");
    let rest = cloud.get(&format!("{path}/tasks?limit=200&cursor={cursor}")).await.ok();
    assert_eq!(
        (rest["data"].as_array().map(Vec::len), &rest["meta"]["hasMore"]),
        (Some(30), &json!(false))
    );
    assert_eq!(
        (&rest["data"][0]["metadata"]["name"], &rest["data"][0]["status"]),
        (&json!("200"), &json!("pending"))
    );
}

#[tokio::test]
async fn a_cancelled_execution_ends_and_stays_to_be_read() {
    for cloud in Cloud::on_both().await {
        cloud.post("/v0/jobs", job(json!({"image": IMAGE}))).await.ok();
        cloud.post(EXECUTIONS, json!({"tasks": [{}, {}], "id": "one"})).await.ok();
        cloud.post(EXECUTIONS, json!({"tasks": [{}], "id": "two"})).await.ok();
        assert_eq!(cloud.get(&format!("{EXECUTIONS}/one")).await.ok()["status"], "queued");
        let cancelled = cloud.delete(&format!("{EXECUTIONS}/one")).await.ok();
        assert_eq!(
            (&cancelled["status"], &cancelled["stats"]["cancelled"]),
            (&json!("cancelled"), &json!(2))
        );
        assert_eq!(cancelled["tasks"][1]["status"], "cancelled");
        assert_eq!(cloud.delete(&format!("{EXECUTIONS}/one")).await.ok(), cancelled);
        cloud.delete("/v0/jobs/nightly").await.ok();
        // The history outlives the job.
        assert_eq!(cloud.get(&format!("{EXECUTIONS}/two")).await.ok()["status"], "cancelled");
        assert_eq!(cloud.get(EXECUTIONS).await.ok()["meta"]["total"], 2);
        cloud.get(&format!("{EXECUTIONS}/three")).await.refused(404);
        cloud.delete(&format!("{EXECUTIONS}/three")).await.refused(404);
        cloud.post(EXECUTIONS, json!({"tasks": [{}]})).await.refused(404);
    }
}

#[tokio::test]
async fn a_change_of_the_job_does_not_concern_what_was_started() {
    let (cloud, machine) = cloud_on(|_| Ok(Outcome::Exited(0))).await;
    machine.close();
    cloud
        .post("/v0/jobs", job(json!({"image": IMAGE, "maxConcurrentTasks": 1, "memory": 300})))
        .await
        .ok();
    cloud.post(EXECUTIONS, json!({"tasks": [{}, {}], "id": "one"})).await.ok();
    cloud.put("/v0/jobs/nightly", job(json!({"image": "other", "memory": 200}))).await.ok();
    machine.open();
    assert_eq!(end(&cloud, "one").await["status"], "succeeded");
    assert!(
        machine
            .launched
            .borrow()
            .iter()
            .all(|launch| launch.image == IMAGE && launch.memory_mb == 300)
    );
}

#[tokio::test]
async fn a_job_is_deployed_when_its_image_can_be_had() {
    let (cloud, _machine) = cloud_on(|_| Ok(Outcome::Exited(0))).await;
    for (name, runtime, status, word) in [
        ("here", json!({"image": IMAGE}), "DEPLOYED", "its tasks run in containers"),
        ("micro", json!({"image": IMAGE, "generation": "mk3"}), "DEPLOYED", "mk3"),
        ("gone", json!({"image": "nobody/knows"}), "FAILED", "nobody/knows"),
        ("bare", json!({}), "FAILED", "image"),
    ] {
        let wish = json!({"metadata": {"name": name}, "spec": {"runtime": runtime}});
        let made = cloud.post("/v0/jobs", wish).await.ok();
        assert_eq!(made["status"], status, "whoever makes it is told: {made}");
        let now =
            cloud.until(&format!("/v0/jobs/{name}"), |now| now["status"] != "DEPLOYING").await;
        let last = now["events"].as_array().and_then(|events| events.last()).expect("an event");
        assert_eq!(now["status"], status);
        assert!(last["message"].as_str().is_some_and(|message| message.contains(word)), "{last}");
        assert_eq!(last.to_string().contains("mk3"), name == "micro", "{last}");
    }
}

#[tokio::test]
async fn the_events_of_a_sandbox_are_in_the_order_of_their_times() {
    let (cloud, _machine) = cloud_on(|_| Ok(Outcome::Exited(0))).await;
    for (name, generation) in [("plain", Value::Null), ("micro", json!("mk3"))] {
        let runtime = json!({"image": IMAGE, "generation": generation});
        let wish = json!({"metadata": {"name": name}, "spec": {"runtime": runtime}});
        let made = cloud.post("/v0/sandboxes", wish).await.ok();
        let mut events = made["events"].as_array().unwrap().clone();
        let told: Vec<_> = events.iter().map(|event| event["status"].clone()).collect();
        assert_eq!(told, ["DEPLOYING", "DEPLOYED"]);
        // Sorted as readers do that show the newest event first.
        events.sort_by(|a, b| b["time"].as_str().cmp(&a["time"].as_str()));
        assert_eq!(events[0]["status"], "DEPLOYED", "{made}");
        assert_eq!(made["events"].to_string().contains("mk3"), name == "micro", "{made}");
    }
}

#[tokio::test]
async fn what_nobody_holds_any_more_is_removed_at_the_start() {
    let machine = Arc::new(
        Pretended::new(|_| Ok(Outcome::Exited(0)))
            .left(InstanceName::new("task-unknown-3-1").unwrap()),
    );
    let _cloud = Cloud::start_on_machine(machine.clone(), impatient()).await;
    let mut retired = machine.retired.subscribe();
    let retired = retired.wait_for(|retired| *retired == ["task-unknown-3-1"]);
    tokio::time::timeout(Duration::from_secs(60), retired)
        .await
        .expect("it is removed")
        .expect("a machine");
}

#[tokio::test]
async fn the_tasks_of_a_deleted_workspace_are_asked_to_end_at_once() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::Exited(0))));
    let hour = Duration::from_secs(3600);
    let jobs = jobs::Settings { heartbeat: hour, lease: 3 * hour, ..impatient().jobs };
    let settings = control::Settings { jobs, ..impatient() };
    let cloud = Cloud::start_on_machine(machine.clone(), settings).await;
    machine.close();
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    cloud.post("/v0/jobs?workspace=team", job(json!({"image": IMAGE}))).await.ok();
    cloud.post(&format!("{EXECUTIONS}?workspace=team"), json!({"tasks": [{}]})).await.ok();
    let task = machine.until_launched(1).await.remove(0).instance;
    cloud.delete("/v0/workspaces/team").await.ok();
    let minute = Duration::from_secs(60);
    let mut ended = machine.ended.subscribe();
    let asked = ended.wait_for(|ended| ended.get(&task) == Some(&Outcome::Interrupted));
    tokio::time::timeout(minute, asked).await.expect("it is asked to end").expect("a machine");
    assert!(machine.retired.borrow().is_empty(), "it has its grace period");
    machine.open();
    let mut retired = machine.retired.subscribe();
    let retired = retired.wait_for(|retired| *retired == [task.to_string()]);
    tokio::time::timeout(minute, retired).await.expect("it is removed").expect("a machine");
}
