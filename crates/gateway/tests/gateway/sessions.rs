//! Sessions of MCP servers stay with the replica that opened them.

use crate::sockets::{echo_at, exchange};
use crate::stage::{APP_PORT, Stage, deployment, request, settings, to};
use admission::Limits;
use gateway::Settings;
use serde_json::Value;
use types::KindName;
use types::edge::{Serving, WorkloadRoute};

const KEY: (&str, &str) = ("authorization", "Bearer key-of-acme");
const REPLICAS: [&str; 3] = ["replica-tools-r1-1", "replica-tools-r1-2", "replica-tools-r1-3"];

fn serving(replicas: &[&str]) -> WorkloadRoute {
    let serving = Serving::To(vec![to("r1", 100, replicas)]);
    WorkloadRoute { serving, ..deployment(KindName::Function, "tools") }
}

async fn stage(settings: Settings) -> Stage {
    let stage = Stage::start(settings).await;
    for replica in REPLICAS {
        stage.replica(replica).await;
    }
    stage.deploy(&serving(&REPLICAS));
    stage
}

async fn ask(stage: &Stage, method: &str, more: &[(&str, &str)]) -> Value {
    let sent = [&[KEY], more].concat();
    stage.send(request(method, "h", "/acme/functions/tools/mcp", &sent)).await.ok()
}

/// Has a replica open a session. The others lose theirs.
async fn open(stage: &Stage, replica: &str, session: &str) {
    stage.deploy(&serving(&[replica]));
    let wanted = format!("mcp-session-id: {session}");
    let opened = ask(stage, "POST", &[("x-answer", &wanted)]).await;
    assert_eq!(opened["instance"], replica);
    stage.deploy(&serving(&REPLICAS));
}

#[tokio::test]
async fn a_session_stays_with_its_replica_by_every_method() {
    let stage = stage(settings()).await;
    // The last in the list, which nothing but the session would choose.
    let last = REPLICAS[2];
    open(&stage, last, "s-1").await;
    assert_eq!(ask(&stage, "POST", &[]).await["instance"], REPLICAS[0]);
    for method in ["POST", "GET", "PUT"] {
        let told = ask(&stage, method, &[("mcp-session-id", "s-1")]).await;
        assert_eq!(told["instance"], last);
        assert_eq!(told["headers"]["mcp-session-id"], "s-1");
    }
    // Who ends it ends it there; then it is nobody's.
    assert_eq!(ask(&stage, "DELETE", &[("mcp-session-id", "s-1")]).await["instance"], last);
    let told = ask(&stage, "POST", &[("mcp-session-id", "s-1")]).await;
    assert_eq!(told["instance"], REPLICAS[0]);
}

#[tokio::test]
async fn a_session_whose_replica_is_gone_goes_to_any() {
    let stage = stage(settings()).await;
    open(&stage, REPLICAS[2], "s-1").await;
    // Before the route says so, and after.
    stage.gateway.standby().forget(REPLICAS[2]);
    let told = ask(&stage, "POST", &[("mcp-session-id", "s-1")]).await;
    assert_eq!(told["instance"], REPLICAS[0]);
    stage.deploy(&serving(&REPLICAS[..2]));
    let told = ask(&stage, "POST", &[("mcp-session-id", "s-1")]).await;
    assert_eq!(told["instance"], REPLICAS[0]);
}

#[tokio::test]
async fn an_agent_has_no_sessions() {
    let stage = stage(settings()).await;
    let agent = |replicas: &[&str]| WorkloadRoute { kind: KindName::Agent, ..serving(replicas) };
    let at = "/acme/agents/tools/mcp";
    stage.deploy(&agent(&REPLICAS[2..]));
    let sent = [KEY, ("x-answer", "mcp-session-id: s-1")];
    stage.send(request("POST", "h", at, &sent)).await.ok();
    stage.deploy(&agent(&REPLICAS));
    let sent = [KEY, ("mcp-session-id", "s-1")];
    assert_eq!(stage.send(request("POST", "h", at, &sent)).await.ok()["instance"], REPLICAS[0]);
}

#[tokio::test]
async fn who_opens_too_many_sessions_loses_the_oldest_of_its_own() {
    let stage = stage(Settings { sessions: Limits { total: 4, share: 2 }, ..settings() }).await;
    let last = REPLICAS[2];
    let names = ["s-1", "s-2", "s-3"];
    stage.deploy(&serving(&[last]));
    for name in names {
        ask(&stage, "POST", &[("x-answer", &format!("mcp-session-id: {name}"))]).await;
    }
    stage.deploy(&serving(&REPLICAS));
    let mut went = Vec::new();
    for name in names {
        went.push(ask(&stage, "POST", &[("mcp-session-id", name)]).await["instance"].clone());
    }
    assert_eq!(went, [REPLICAS[0], last, last]);
}

#[tokio::test]
async fn an_older_server_speaks_over_a_socket() {
    let stage = stage(settings()).await;
    echo_at(&stage, REPLICAS[0], APP_PORT).await;
    let at = "/acme/functions/tools/?token=key-of-acme";
    let mut socket = crate::sockets::open(&stage, "h", at, None).await.unwrap();
    exchange(&mut socket, "{}").await;
    assert_eq!(
        crate::sockets::open(&stage, "h", "/acme/functions/tools/", None).await.unwrap_err(),
        401
    );
}
