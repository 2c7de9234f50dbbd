//! From `upload=true` to a deployed resource: addresses, statuses, logs, and what happens after a
//! build.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod failures;
mod kept;
mod uploads;

use crate::common::builder::PretendedBuilder;
use crate::common::machine::{IMAGE, Pretended};
use crate::common::{Answer, Cloud, settings};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use types::KindName;
use types::instance::{Outcome, RunsFor};
use uploads::slow_upload;

struct Stage {
    cloud: Cloud,
    builder: Arc<PretendedBuilder>,
    machine: Arc<Pretended>,
}

fn quick() -> control::builds::Settings {
    control::builds::Settings {
        poll: Duration::from_millis(5),
        upload_bytes_max: 100,
        ..control::builds::Settings::default()
    }
}

async fn stage_on(builds: control::builds::Settings, postgres: bool) -> Stage {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::Exited(0))));
    let builder = Arc::new(PretendedBuilder::default());
    let settings = control::Settings { builds, ..settings() };
    let cloud = Cloud::start_building(machine.clone(), builder.clone(), settings, postgres).await;
    Stage { cloud, builder, machine }
}

async fn stage() -> Stage {
    stage_on(quick(), false).await
}

fn agent() -> Value {
    json!({"metadata": {"name": "a", "labels": {"x-blaxel-auto-generated": "true"}},
        "spec": {"runtime": {"envs": [{"name": "TOKEN", "value": "s3cret", "secret": true}]}}})
}

fn job() -> Value {
    json!({"metadata": {"name": "j"}, "spec": {"runtime": {"memory": 256}}})
}

/// Returns the path of the upload address in an answer.
#[track_caller]
fn address(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let url = answer.headers.get("x-blaxel-upload-url").expect("an address");
    let url = url.to_str().expect("a text");
    url.strip_prefix("http://localhost:8080").expect("the server's own").to_owned()
}

impl Stage {
    /// Uploads as published clients do: without credentials.
    async fn upload(&self, path: &str, sources: &str) -> Answer {
        let headers = [("content-type", "application/zip")];
        self.cloud.raw(Method::PUT, path, &headers, sources.as_bytes().to_vec()).await
    }

    async fn deploy(&self, path: &str, body: Value, sources: &str) {
        let asked = match self.cloud.get(path).await.status.as_u16() {
            404 => {
                let (collection, _) = path.rsplit_once('/').expect("a path");
                self.cloud.post(&format!("{collection}?upload=true"), body).await
            }
            _ => self.cloud.put(&format!("{path}?upload=true"), body).await,
        };
        let answer = self.upload(&address(&asked), sources).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    async fn until(&self, path: &str, statuses: &[&str]) -> Value {
        let is =
            |now: &Value| now["status"].as_str().is_some_and(|status| statuses.contains(&status));
        self.cloud.until(path, is).await
    }

    async fn until_nothing_is_kept(&self) {
        let mut forgot = self.builder.forgot.subscribe();
        while self.builder.kept() > 0 {
            let changed = tokio::time::timeout(Duration::from_secs(60), forgot.changed());
            changed.await.expect("it is forgotten").expect("a builder");
        }
    }

    async fn lines(&self, kind: &str, name: &str) -> Vec<String> {
        let range = "start=2026-04-15T00:00:00&end=2026-04-17T00:00:00";
        let path = format!(
            "/v0/observability/logs?resourceType={kind}&workloadIds={name}&limit=1000&{range}"
        );
        let answer = self.cloud.get(&path).await.ok();
        let logs = answer[name]["logs"].as_array().expect("the name is there").clone();
        logs.iter().map(|line| line["message"].as_str().expect("a text").to_owned()).collect()
    }
}

/// Statuses of a deployed object, whether or not it is already running.
const DEPLOYED: [&str; 2] = ["DEPLOYING", "DEPLOYED"];

fn statuses(object: &Value) -> Vec<&str> {
    let events = object["events"].as_array().expect("events");
    events.iter().filter_map(|event| event["status"].as_str()).collect()
}

#[tokio::test]
async fn an_agent_goes_from_an_upload_to_its_first_revision() {
    for postgres in [false, true] {
        let stage = stage_on(quick(), postgres).await;
        let asked = stage.cloud.post("/v0/agents?upload=true", agent()).await;
        let path = address(&asked);
        assert_eq!(asked.body["status"], "UPLOADING");
        assert_eq!(asked.body["spec"]["runtime"]["envs"][0]["value"], "***");
        assert!(asked.headers.contains_key("x-service-upload-url"));
        let revisions = "/v0/agents/a/revisions";
        assert_eq!(stage.cloud.get(revisions).await.ok(), json!([]));
        let answer = stage.upload(&path, "an app").await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, ""));
        // The clock stands still, so it is shown as building until somebody has looked.
        stage.until("/v0/agents/a", &["BUILDING"]).await;
        let agent = stage.until("/v0/agents/a", &DEPLOYED).await;
        let wanted = ["UPLOADING", "BUILDING", "DEPLOYING"];
        assert_eq!(statuses(&agent)[..3], wanted, "{agent}");
        let image = agent["spec"]["runtime"]["image"].as_str().expect("an image");
        assert!(image.starts_with("agent/a:b0b0"), "{image}");
        assert_eq!(image.len(), "agent/a:".len() + 12);
        let kept = stage.cloud.get(revisions).await.ok();
        assert_eq!(kept.as_array().expect("a list").len(), 1);
        assert_eq!(kept[0]["id"], agent["spec"]["revision"]["active"]);
        let shown = stage.cloud.get("/v0/agents/a?show_secrets=true").await.ok();
        assert_eq!(shown["spec"]["runtime"]["envs"][0]["value"], "s3cret");
        let listed = stage.cloud.get("/v0/images/agent/a").await.ok();
        let tag = listed["spec"]["tags"][0]["name"].as_str().expect("a tag");
        assert_eq!(format!("agent/a:{tag}"), image);
        let lines = stage.lines("agents", "a").await;
        assert!(lines.iter().any(|line| line == "Step 1: an app"), "{lines:?}");
        assert!(stage.lines("functions", "a").await.is_empty());
        stage.until_nothing_is_kept().await;
        assert_eq!(stage.builder.began.borrow().len(), 1);
        assert_eq!(stage.builder.began.borrow()[0].repository, "agent/a");
    }
}

#[tokio::test]
async fn what_nobody_looks_at_is_shown_for_a_while() {
    let mut stage = stage().await;
    stage.deploy("/v0/agents/a", agent(), "an app").await;
    stage.builder.until_began(1).await;
    let listed = |now: &Value| now[0]["status"] == "BUILDING";
    let version = [("blaxel-version", "2026-04-16")];
    // A list does not count as looking at the object.
    while !listed(&stage.cloud.call_with(Method::GET, "/v0/agents", &version, None).await.ok()) {
        tokio::task::yield_now().await;
    }
    stage.cloud.clock.advance_s(4);
    while listed(&stage.cloud.call_with(Method::GET, "/v0/agents", &version, None).await.ok()) {
        tokio::task::yield_now().await;
    }
    stage.until("/v0/agents/a", &DEPLOYED).await;
    stage.cloud.restart().await;
}

#[tokio::test]
async fn a_job_keeps_its_image_when_a_build_fails() {
    let stage = stage().await;
    stage.deploy("/v0/jobs/j", job(), "an app").await;
    let before = stage.until("/v0/jobs/j", &["DEPLOYED"]).await;
    for (sources, why) in [("fails", "step 1 failed"), ("nonsense", "it has no Dockerfile")] {
        let mut changed = job();
        changed["spec"]["runtime"]["memory"] = json!(512);
        stage.deploy("/v0/jobs/j", changed, sources).await;
        let failed = stage.until("/v0/jobs/j", &["FAILED"]).await;
        assert_eq!(failed["spec"], before["spec"]);
        let last = failed["events"].as_array().expect("events").last().expect("one").clone();
        assert_eq!(last["message"], why);
        assert!(stage.lines("jobs", "j").await.iter().any(|line| line.contains(why)));
    }
    let revisions = stage.cloud.get("/v0/jobs/j/revisions").await.ok();
    assert_eq!(revisions.as_array().expect("a list").len(), 1);
    let listed = stage.cloud.get("/v0/jobs?status=DEPLOYED").await.ok();
    assert_eq!(listed["data"].as_array().expect("a list").len(), 1, "it can run: {listed}");
    // It runs what was built before.
    let execution = stage.cloud.post("/v0/jobs/j/executions", json!({"tasks": [{}]})).await.ok();
    let id = execution["executionId"].as_str().expect("an id").to_owned();
    let path = format!("/v0/jobs/j/executions/{id}");
    stage.cloud.until(&path, |now| now["status"] == "succeeded").await;
    let launched = stage.machine.launched.borrow().clone();
    assert_eq!(json!(launched[0].image), before["spec"]["runtime"]["image"]);
    stage.until_nothing_is_kept().await;
    stage.deploy("/v0/jobs/j", job(), "a better app").await;
    let after = stage.until("/v0/jobs/j", &["DEPLOYED"]).await;
    assert_ne!(after["spec"]["runtime"]["image"], before["spec"]["runtime"]["image"]);
}

#[tokio::test]
async fn each_build_is_a_revision_and_masks_keep_what_is_stored() {
    let stage = stage().await;
    stage.deploy("/v0/agents/a", agent(), "an app").await;
    let first = stage.until("/v0/agents/a", &DEPLOYED).await;
    // The whole object is sent back, with its masked values, and the same folder.
    stage.deploy("/v0/agents/a", first.clone(), "an app").await;
    stage.until("/v0/agents/a", &["BUILDING"]).await;
    let second = stage.until("/v0/agents/a", &DEPLOYED).await;
    assert_eq!(second["spec"]["runtime"], first["spec"]["runtime"]);
    assert_ne!(second["spec"]["revision"]["active"], first["spec"]["revision"]["active"]);
    let shown = stage.cloud.get("/v0/agents/a?show_secrets=true").await.ok();
    assert_eq!(shown["spec"]["runtime"]["envs"][0]["value"], "s3cret");
    let revisions = stage.cloud.get("/v0/agents/a/revisions").await.ok();
    assert_eq!(revisions.as_array().expect("a list").len(), 2);
    // Going back needs no build.
    let mut back = second.clone();
    back["spec"]["revision"]["active"] = first["spec"]["revision"]["active"].clone();
    stage.cloud.put("/v0/agents/a", back).await.ok();
    assert_eq!(stage.builder.began.borrow().len(), 2);
}

#[tokio::test]
async fn what_is_asked_for_last_counts() {
    let stage = stage().await;
    stage.deploy("/v0/agents/a", agent(), "waits").await;
    stage.builder.until_began(1).await;
    stage.until("/v0/agents/a", &["BUILDING"]).await;
    // With another upload, the first build ends, whatever it is doing.
    stage.deploy("/v0/agents/a", agent(), "an app").await;
    stage.until("/v0/agents/a", &DEPLOYED).await;
    stage.until_nothing_is_kept().await;
    // A write that needs no build.
    stage.deploy("/v0/agents/a", agent(), "waits").await;
    stage.builder.until_began(3).await;
    let mut written = stage.cloud.get("/v0/agents/a").await.ok();
    written["metadata"]["labels"] = json!({"kept": "yes"});
    stage.cloud.put("/v0/agents/a", written.clone()).await.ok();
    assert_eq!(stage.cloud.get("/v0/agents/a").await.ok()["status"], "BUILDING");
    written["spec"]["runtime"]["memory"] = json!(512);
    let put = stage.cloud.put("/v0/agents/a", written).await.ok();
    assert!(DEPLOYED.contains(&put["status"].as_str().expect("a status")), "{put}");
    stage.until_nothing_is_kept().await;
    // Changes of metadata during a build are kept.
    stage.deploy("/v0/agents/a", agent(), "waits").await;
    stage.builder.until_began(4).await;
    let mut written = stage.cloud.get("/v0/agents/a").await.ok();
    written["metadata"]["labels"] = json!({"kept": "still"});
    stage.cloud.put("/v0/agents/a", written).await.ok();
    stage.builder.open();
    stage.until("/v0/agents/a", &["BUILDING"]).await;
    let last = stage.until("/v0/agents/a", &DEPLOYED).await;
    assert_eq!(last["metadata"]["labels"], json!({"kept": "still"}));
    assert_eq!(last["spec"]["runtime"].get("memory"), None, "{last}");
}

#[tokio::test]
async fn deleting_an_object_ends_its_build_and_its_upload() {
    let stage = stage().await;
    stage.deploy("/v0/agents/a", agent(), "waits").await;
    stage.builder.until_began(1).await;
    stage.cloud.delete("/v0/agents/a").await.ok();
    stage.until_nothing_is_kept().await;
    stage.builder.open();
    let path = address(&stage.cloud.post("/v0/agents?upload=true", agent()).await);
    stage.cloud.delete("/v0/agents/a").await.ok();
    stage.upload(&path, "an app").await.refused(410);
    assert_eq!(stage.cloud.get("/v0/images").await.ok(), json!([]));
    // An upload in progress has nowhere to go when the object is removed.
    let path = address(&stage.cloud.post("/v0/agents?upload=true", agent()).await);
    let (answer, end) = slow_upload(&stage, &path).await;
    stage.cloud.delete("/v0/agents/a").await.ok();
    end.send(()).expect("it waits");
    assert_eq!(answer.await.expect("an end"), 410);
    stage.until_nothing_is_kept().await;
    assert_eq!(stage.builder.began.borrow().len(), 1);
}

#[tokio::test]
async fn an_image_is_built_without_anything_that_runs_it() {
    let stage = stage().await;
    let request = json!({"name": "tool", "resourceType": "sandbox"});
    let asked = stage.cloud.post("/v0/images?upload=true", request.clone()).await;
    assert_eq!(asked.body["build"], true);
    let status = |now: &Value| now["metadata"]["status"].as_str().unwrap_or_default().to_owned();
    let path = "/v0/images/sandbox/tool";
    assert_eq!(status(&stage.cloud.get(path).await.ok()), "UPLOADING");
    assert_eq!(stage.upload(&address(&asked), "nonsense").await.status, 200);
    stage.cloud.until(path, |now| status(now) == "FAILED").await;
    let asked = stage.cloud.post("/v0/images?upload=true", request.clone()).await;
    assert_eq!(stage.upload(&address(&asked), "a tool").await.status, 200);
    let image = stage.cloud.until("/v0/images/_/tool", |now| status(now) == "BUILT").await;
    assert_eq!(image["spec"]["tags"].as_array().expect("tags").len(), 1);
    let lines = stage.lines("sandboxes", "tool").await;
    assert!(lines.iter().any(|line| line == "Step 1: a tool"), "{lines:?}");
    stage.cloud.get("/v0/sandboxes/tool").await.refused(404);
    // A workspace that it is shared with can run it, but not build it.
    stage.cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    let at_home = |path: &str| format!("{path}?workspace=main");
    let share = format!("{path}/share");
    stage.cloud.post(&at_home(&share), json!({"targetWorkspace": "team"})).await.ok();
    let asked = stage.cloud.post("/v0/images?upload=true&workspace=team", request).await;
    let message = asked.refused(400);
    assert!(message.contains("shared by `main`"), "{message}");
    stage.cloud.delete(&at_home(&format!("{share}/team"))).await.ok();
    stage.cloud.delete(&at_home(path)).await.ok();
    stage.until_nothing_is_kept().await;
}

#[tokio::test]
async fn a_sandbox_starts_from_its_own_image() {
    let stage = stage().await;
    let sandbox = json!({"metadata": {"name": "s", "labels": {"x-blaxel-experimental": "true"}},
        "spec": {"runtime": {"memory": 256}}});
    stage.cloud.put("/v0/sandboxes/s?upload=true", sandbox.clone()).await.refused(404);
    stage.deploy("/v0/sandboxes/s", sandbox.clone(), "waits").await;
    stage.until("/v0/sandboxes/s", &["BUILDING"]).await;
    assert!(stage.machine.launched.borrow().is_empty());
    stage.builder.open();
    let made = stage.until("/v0/sandboxes/s", &["DEPLOYED"]).await;
    let image = made["spec"]["runtime"]["image"].as_str().expect("an image").to_owned();
    assert!(image.starts_with("sandbox/s:b0b0"), "{image}");
    assert_eq!(stage.machine.launched.borrow()[0].image, image);
    // A failed build leaves it running; the same image again does not restart it.
    stage.deploy("/v0/sandboxes/s", sandbox.clone(), "fails").await;
    stage.until("/v0/sandboxes/s", &["FAILED"]).await;
    stage.deploy("/v0/sandboxes/s", sandbox.clone(), "waits").await;
    stage.until("/v0/sandboxes/s", &["BUILDING"]).await;
    stage.until("/v0/sandboxes/s", &["DEPLOYED"]).await;
    assert_eq!(stage.machine.launched.borrow().len(), 1);
    assert!(stage.machine.retired.borrow().is_empty());
    // A different image replaces it.
    stage.deploy("/v0/sandboxes/s", sandbox, "another app").await;
    let other = |now: &Value| {
        now["status"] == "DEPLOYED" && now["spec"]["runtime"]["image"] != image.as_str()
    };
    stage.cloud.until("/v0/sandboxes/s", other).await;
    assert_eq!(stage.machine.launched.borrow().len(), 2);
}

/// As clients deploy: an upload of what is there, or else of something new.
#[tokio::test]
async fn an_upload_for_a_sandbox_whose_time_was_over_makes_a_new_one() {
    let stage = stage().await;
    let sandbox = json!({"metadata": {"name": "s"}, "spec": {"runtime": {"memory": 256}}});
    stage.deploy("/v0/sandboxes/s", sandbox.clone(), "an app").await;
    let first = stage.until("/v0/sandboxes/s", &["DEPLOYED"]).await;
    let ended = json!({"type": "expiration", "status": "TERMINATED", "time": first["metadata"]["updatedAt"]});
    stage.cloud.tell(KindName::Sandbox, "", "s", json!({"events": [ended]})).await;
    stage.deploy("/v0/sandboxes/s", sandbox, "another app").await;
    stage.until("/v0/sandboxes/s", &["DEPLOYED"]).await;
    let launched = stage.machine.launched.borrow().clone();
    let [one, two] = [0, 1].map(|launch| launched[launch].instance.runs_for());
    let id = |runs_for: &Option<RunsFor>| match runs_for {
        Some(RunsFor::Sandbox { id, .. }) => id.clone(),
        other => panic!("{other:?}"),
    };
    assert_ne!(id(&one), id(&two));
}

/// A build goes on for longer than the sandbox that waits for it.
#[tokio::test]
async fn a_build_does_not_bring_back_a_sandbox_whose_time_was_over() {
    let stage = stage().await;
    let sandbox =
        json!({"metadata": {"name": "s"}, "spec": {"runtime": {"memory": 256, "ttl": "1m"}}});
    stage.deploy("/v0/sandboxes/s", sandbox, "waits").await;
    stage.until("/v0/sandboxes/s", &["BUILDING"]).await;
    stage.cloud.clock.advance_s(61);
    stage.until("/v0/sandboxes/s", &["TERMINATED"]).await;
    stage.builder.open();
    stage.until_nothing_is_kept().await;
    assert_eq!(stage.cloud.get("/v0/sandboxes/s").await.ok()["status"], "TERMINATED");
    assert!(stage.machine.launched.borrow().is_empty());
}

#[tokio::test]
async fn a_wish_that_skips_the_build_is_deployed_as_it_is() {
    let stage = stage().await;
    let wish = json!({"metadata": {"name": "j"}, "spec": {"runtime": {"image": IMAGE, "skipBuild": "true"}}});
    let answer = stage.cloud.post("/v0/jobs?upload=true", wish).await;
    assert!(!answer.headers.contains_key("x-blaxel-upload-url"));
    assert_eq!(answer.ok()["status"], "DEPLOYED");
}

#[tokio::test]
async fn the_path_of_another_object_is_refused_before_anything_is_uploaded() {
    for postgres in [false, true] {
        let stage = stage_on(quick(), postgres).await;
        let at = |path: &str, name: &str| {
            let trigger = json!({"id": "t", "type": "http", "configuration": {"path": path}});
            json!({"metadata": {"name": name}, "spec": {"runtime": {"image": IMAGE}, "triggers": [trigger]}})
        };
        stage.cloud.post("/v0/jobs", at("/taken", "holder")).await.ok();
        stage.cloud.post("/v0/jobs", job()).await.ok();
        for kind in ["agents", "functions", "jobs"] {
            let asked = format!("/v0/{kind}?upload=true");
            let why = stage.cloud.post(&asked, at("/taken", "x")).await.refused(409);
            assert!(why.contains("`taken`"), "{kind}: {why}");
            stage.cloud.get(&format!("/v0/{kind}/x")).await.refused(404);
        }
        stage.cloud.put("/v0/jobs/j?upload=true", at("/taken", "j")).await.refused(409);
        // It may keep its own.
        address(&stage.cloud.put("/v0/jobs/holder?upload=true", at("/taken", "holder")).await);
        // What is taken while it waits is seen at its end.
        let asked = stage.cloud.post("/v0/functions?upload=true", at("/later", "late")).await;
        stage.cloud.post("/v0/agents", at("/later", "a")).await.ok();
        assert_eq!(stage.upload(&address(&asked), "an app").await.status, 200);
        let late = stage.until("/v0/functions/late", &["FAILED"]).await;
        assert!(late["events"].to_string().contains("`later`"), "{late}");
    }
}
