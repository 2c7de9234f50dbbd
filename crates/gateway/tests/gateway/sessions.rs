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

/// Has a replica open a session. Sessions of other replicas are lost.
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
    // A client that ends the session reaches that replica too; then the session is nobody's.
    assert_eq!(ask(&stage, "DELETE", &[("mcp-session-id", "s-1")]).await["instance"], last);
    let told = ask(&stage, "POST", &[("mcp-session-id", "s-1")]).await;
    assert_eq!(told["instance"], REPLICAS[0]);
}

/// Checks for the answer that a client of the protocol understands, so that it opens another
/// session.
async fn is_lost(stage: &Stage, session: &str) {
    for method in ["POST", "GET", "DELETE"] {
        let sent = [KEY, ("mcp-session-id", session)];
        let reply = stage.send(request(method, "h", "/acme/functions/tools/mcp", &sent)).await;
        assert_eq!(reply.status, 404, "{method}");
        assert_eq!(reply.headers["content-type"], "application/json");
        let message: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!((&message["jsonrpc"], &message["id"]), (&"2.0".into(), &Value::Null));
        assert_eq!(message["error"]["code"], -32001);
    }
}

#[tokio::test]
async fn a_session_whose_replica_is_gone_is_lost_and_no_other() {
    let stage = stage(settings()).await;
    stage.deploy(&serving(&REPLICAS[2..]));
    for session in ["s-1", "s-2"] {
        ask(&stage, "POST", &[("x-answer", &format!("mcp-session-id: {session}"))]).await;
    }
    stage.deploy(&serving(&REPLICAS[1..]));
    ask(&stage, "POST", &[("x-answer", "mcp-session-id: s-3")]).await;
    let at = async |session: &str| {
        ask(&stage, "POST", &[("mcp-session-id", session)]).await["instance"].clone()
    };
    assert_eq!((at("s-2").await, at("s-3").await), (REPLICAS[2].into(), REPLICAS[1].into()));
    // Before the route says that it is gone, and after.
    stage.gateway.standby().forget(REPLICAS[2]);
    is_lost(&stage, "s-1").await;
    stage.deploy(&serving(&REPLICAS[..2]));
    is_lost(&stage, "s-1").await;
    is_lost(&stage, "s-2").await;
    assert_eq!(at("s-3").await, REPLICAS[1]);
    // Without a session, and in one that nobody knows, other replicas answer.
    assert_eq!(ask(&stage, "POST", &[]).await["instance"], REPLICAS[0]);
    assert_eq!(at("s-9").await, REPLICAS[0]);
}

#[tokio::test]
async fn a_session_is_lost_when_the_program_of_its_replica_has_ended() {
    let stage = stage(Settings { spare_max: 0, ..settings() }).await;
    open(&stage, REPLICAS[2], "s-1").await;
    // It has the port, but does not listen.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    stage.machine.listen(REPLICAS[2], APP_PORT, closed.local_addr().unwrap());
    is_lost(&stage, "s-1").await;
    assert_eq!(ask(&stage, "POST", &[]).await["instance"], REPLICAS[0]);
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
