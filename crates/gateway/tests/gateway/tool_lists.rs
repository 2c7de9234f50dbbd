//! Tool lists that are given again while their servers sleep.

use crate::stage::{Reply, Stage, deployment, request, settings, to};
use crate::workload::Workload;
use gateway::Settings;
use http_body_util::Full;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use types::KindName;
use types::edge::{Demand, Serving, WorkloadRoute};
use types::ids::ResourceId;

const ONE: &str = "replica-tools-r1-1";
const TWO: &str = "replica-tools-r1-2";
const NEXT: &str = "replica-tools-r2-3";
const KEY: (&str, &str) = ("authorization", "Bearer key-of-acme");
const IN_SESSION: (&str, &str) = ("mcp-session-id", "s-1");

fn serving(revision: &str, replicas: &[&str]) -> WorkloadRoute {
    let serving = Serving::To(vec![to(revision, 100, replicas)]);
    WorkloadRoute { serving, ..deployment(KindName::Function, "tools") }
}

/// Replicas sleep as soon as nobody asks them anything.
async fn stage(settings: Settings) -> Stage {
    let brief = Duration::from_millis(5);
    Stage::start(Settings { standby_delay: Some(brief), spare_life: brief, ..settings }).await
}

async fn replica(stage: &Stage, instance: &str) -> Arc<Workload> {
    let workload = stage.replica(instance).await;
    stage.deploy(&serving("r1", &[instance]));
    workload
}

async fn send(stage: &Stage, message: &Value, sent: &[(&str, &str)]) -> Reply {
    let always = [("content-type", "application/json")];
    let body = message.to_string();
    let length = body.len().to_string();
    let sent = [&always[..], &[("content-length", &length)], sent].concat();
    let mut post = request("POST", "h", "/acme/functions/tools/mcp", &sent);
    *post.body_mut() = Full::from(body);
    stage.send(post).await
}

fn list(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/list"})
}

async fn listed(stage: &Stage, id: u32, sent: &[(&str, &str)]) -> String {
    let json = [KEY, ("accept", "application/json")];
    let reply = send(stage, &list(id), &[&json, sent].concat()).await;
    assert_eq!(reply.headers["content-type"], "application/json");
    let answer = reply.ok();
    assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(id)));
    answer["result"]["tools"][0]["name"].as_str().unwrap().to_owned()
}

/// Waits until the replica sleeps, and returns how often it was woken so far.
async fn asleep(stage: &Stage, instance: &str) -> usize {
    stage.machine.until_paused(instance).await;
    woken(stage)
}

fn woken(stage: &Stage) -> usize {
    stage.machine.resumes.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_server_that_sleeps_is_not_woken_for_its_list() {
    let stage = stage(settings()).await;
    let server = replica(&stage, ONE).await;
    assert_eq!(listed(&stage, 1, &[]).await, ONE);
    let events = send(&stage, &list("a"), &[KEY, ("accept", "text/event-stream")]).await;
    assert_eq!(events.headers["content-type"], "text/event-stream");
    let (served, before) = (server.served.load(Ordering::SeqCst), asleep(&stage, ONE).await);
    for id in 2..5 {
        assert_eq!(listed(&stage, id, &[]).await, ONE);
    }
    let events = send(&stage, &list("b"), &[KEY, ("accept", "text/event-stream")]).await;
    let message = json!({"jsonrpc": "2.0", "id": "b", "result": {"tools": [{"name": ONE}]}});
    assert_eq!(events.headers["content-type"], "text/event-stream");
    assert_eq!(
        String::from_utf8_lossy(&events.body),
        format!("event: message\ndata: {message}\n\n")
    );
    assert_eq!((woken(&stage), server.served.load(Ordering::SeqCst)), (before, served));
    let stats = stage.gateway.requests_of(&ResourceId::known("res_tools"), None).unwrap();
    assert_eq!(stats.revisions["r1"].count, 6);
    // A deployment that has no replica any more has answered before too; nothing is started for it.
    stage.deploy(&serving("r1", &[]));
    assert_eq!(listed(&stage, 9, &[]).await, ONE);
    let quiet = tokio::time::timeout(Duration::from_millis(20), stage.gateway.demands());
    assert!(quiet.await.is_err());
}

#[tokio::test]
async fn a_server_that_is_awake_answers_for_itself() {
    let stage = Stage::start(settings()).await;
    let server = replica(&stage, ONE).await;
    for id in 1..4 {
        assert_eq!(listed(&stage, id, &[]).await, ONE);
    }
    assert_eq!(server.served.load(Ordering::SeqCst), 3);
    // One of its replicas is enough.
    stage.replica(TWO).await;
    stage.deploy(&serving("r1", &[ONE, TWO]));
    stage.gateway.standby().forget(ONE);
    assert_eq!(listed(&stage, 4, &[]).await, TWO);
}

#[tokio::test]
async fn nobody_gets_what_was_said_to_another() {
    let stage = stage(settings()).await;
    let server = replica(&stage, ONE).await;
    assert_eq!(listed(&stage, 1, &[]).await, ONE);
    let before = asleep(&stage, ONE).await;
    send(&stage, &list(2), &[]).await.problem(401, "AUTHENTICATION_REQUIRED");
    let other = [("authorization", "Bearer key-of-agents")];
    send(&stage, &list(2), &other).await.problem(403, "FORBIDDEN");
    assert_eq!(woken(&stage), before);
    // With a different header the tools may be different.
    assert_eq!(listed(&stage, 2, &[("x-team", "blue")]).await, ONE);
    assert_eq!((woken(&stage), server.served.load(Ordering::SeqCst)), (before + 1, 2));
}

#[tokio::test]
async fn another_revision_answers_for_itself() {
    let stage = Arc::new(stage(settings()).await);
    replica(&stage, ONE).await;
    assert_eq!(listed(&stage, 1, &[]).await, ONE);
    stage.machine.until_paused(ONE).await;
    stage.deploy(&serving("r2", &[]));
    let asking = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move { listed(&stage, 2, &[]).await }
    });
    let workload = ResourceId::known("res_tools");
    let wanted = Demand { workload, revision: "r2".into(), requests: 1 };
    assert_eq!(stage.gateway.demands().await, [wanted]);
    stage.replica(NEXT).await;
    stage.deploy(&serving("r2", &[NEXT]));
    assert_eq!(asking.await.unwrap(), NEXT);
    // Back to what served before, which was forgotten with its route.
    stage.deploy(&serving("r1", &[ONE]));
    let before = asleep(&stage, ONE).await;
    assert_eq!(listed(&stage, 3, &[]).await, ONE);
    assert_eq!(woken(&stage), before + 1);
}

#[tokio::test]
async fn a_session_gets_its_own_list_until_it_asks_something_else() {
    let stage = stage(settings()).await;
    replica(&stage, ONE).await;
    let begin = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize"});
    let json = ("accept", "application/json");
    assert_eq!(send(&stage, &begin, &[KEY, json]).await.headers["mcp-session-id"], "s-1");
    assert_eq!(listed(&stage, 1, &[IN_SESSION]).await, ONE);
    let before = asleep(&stage, ONE).await;
    let reply = send(&stage, &list(2), &[KEY, json, IN_SESSION]).await;
    assert_eq!(reply.headers["mcp-session-id"], "s-1");
    assert_eq!(reply.ok()["result"]["tools"][0]["name"], ONE);
    assert_eq!(woken(&stage), before);
    // A call may change which tools there are.
    let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call"});
    send(&stage, &call, &[KEY, json, IN_SESSION]).await.ok();
    let before = asleep(&stage, ONE).await;
    assert_eq!(listed(&stage, 4, &[IN_SESSION]).await, ONE);
    assert_eq!(woken(&stage), before + 1);
    // A session that is lost has no list.
    stage.deploy(&serving("r1", &[]));
    assert_eq!(send(&stage, &list(5), &[KEY, json, IN_SESSION]).await.status, 404);
}
