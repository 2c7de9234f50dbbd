//! Deployments at the paths of their triggers, and calls that nobody waits for.

use crate::stage::{APP_PORT, Stage, deployment, request, settings, to};
use bytes::Bytes;
use gateway::{Initial, Settings};
use http::{Request, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use types::KindName;
use types::edge::{RouteChange, Serving, TriggerRoute, WorkloadRoute};

const KEY: (&str, &str) = ("authorization", "Bearer key-of-acme");
/// The test front's answer in place of the management side's.
const NOT_TAKEN: u16 = 418;

fn trigger(address: &str, public: bool, waits: bool) -> TriggerRoute {
    TriggerRoute { address: address.into(), public, waits }
}

async fn triggered(stage: &Stage) -> WorkloadRoute {
    stage.replica("replica-bot-r1-1").await;
    let serving = Serving::To(vec![to("r1", 100, &["replica-bot-r1-1"])]);
    let triggers = vec![
        trigger("draft", false, true),
        trigger("open", true, true),
        trigger("agents/bot/later", true, false),
    ];
    let route = WorkloadRoute { serving, triggers, ..deployment(KindName::Agent, "bot") };
    stage.deploy(&route);
    route
}

#[tokio::test]
async fn a_trigger_calls_its_deployment_at_the_root() {
    let stage = Stage::start(settings()).await;
    let route = triggered(&stage).await;
    for path in ["/acme/draft?a=b", "/run/acme/draft?a=b"] {
        let told = stage.send(request("POST", "h", path, &[KEY])).await.ok();
        assert_eq!(told["uri"], "/?a=b");
        assert!(!told.to_string().contains("key-of-acme"), "{told}");
    }
    // A caller without the right gets the answer of a path that nobody has.
    let wrong = ("authorization", "Bearer no");
    for headers in [&[][..], &[wrong]] {
        for path in ["/acme/draft", "/acme/none"] {
            let reply = stage.send(request("POST", "h", path, headers)).await;
            assert_eq!(reply.status.as_u16(), NOT_TAKEN, "{path}");
        }
    }
    assert_eq!(stage.send(request("POST", "h", "/acme/open", &[])).await.ok()["uri"], "/");
    // Calls that nobody waits for are left to the management side.
    for path in ["/acme/agents/bot/later", "/acme/agents/bot?async=true"] {
        let reply = stage.send(request("POST", "h", path, &[KEY])).await;
        assert_eq!(reply.status.as_u16(), NOT_TAKEN, "{path}");
    }
    stage.gateway.routes().apply(RouteChange::Gone(route.id));
    let reply = stage.send(request("POST", "h", "/acme/open", &[])).await;
    assert_eq!(reply.status.as_u16(), NOT_TAKEN);
}

#[tokio::test]
async fn a_trigger_opens_an_mcp_server_where_it_answers() {
    let stage = Stage::start(settings()).await;
    stage.replica("replica-tools-r1-1").await;
    let serving = Serving::To(vec![to("r1", 100, &["replica-tools-r1-1"])]);
    let triggers = vec![trigger("functions/tools/mcp", true, true)];
    stage.deploy(&WorkloadRoute { serving, triggers, ..deployment(KindName::Function, "tools") });
    for path in ["/acme/functions/tools/mcp", "/run/acme/functions/tools/mcp"] {
        let told = stage.send(request("POST", "h", path, &[])).await.ok();
        assert_eq!(told["uri"], "/mcp", "{path}");
    }
    let closed = stage.send(request("POST", "h", "/acme/functions/tools/other", &[])).await;
    assert_eq!(closed.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_answered_in_part() {
    let stage = Stage::start(settings()).await;
    let route = triggered(&stage).await;
    let ask = || Request::post("/deep?x=1").body(Bytes::from_static(b"{}")).unwrap();
    let (answer, length) = stage.gateway.call(&route.id, ask(), 10).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.body().len()), (200, 10));
    assert!(length > 10, "{length}");
    let (answer, whole) = stage.gateway.call(&route.id, ask(), 1 << 20).await.unwrap();
    assert_eq!(whole as usize, answer.body().len());
    let told: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!((&told["uri"], &told["method"]), (&"/deep?x=1".into(), &"POST".into()));
    let ours = [
        ("connection", "keep-alive, x-hop"),
        ("x-hop", "1"),
        ("x-forwarded-for", "10.1.1.1"),
        ("x-blaxel-authorization", "Bearer hk_s3cret"),
        ("content-length", "7"),
    ];
    let mut request = ask();
    request.headers_mut().insert("x-hub-signature-256", "sha256=0f".parse().unwrap());
    for (name, value) in ours {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let (answer, _) = stage.gateway.call(&route.id, request, 1 << 20).await.unwrap();
    let told: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
    let headers = told["headers"].as_object().unwrap();
    assert_eq!(headers["x-hub-signature-256"], "sha256=0f");
    for (name, value) in ours {
        assert!(headers.get(name).is_none_or(|told| told != value), "{name}: {told}");
    }
    stage.gateway.routes().apply(RouteChange::Gone(route.id.clone()));
    assert!(stage.gateway.call(&route.id, ask(), 10).await.is_err());
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_may_be_silent_for_longer_than_others() {
    let hasty = Settings { agent_idle: Duration::from_millis(50), ..settings() };
    let stage = Stage::start(hasty).await;
    let workload = stage.replica("replica-bot-r1-1").await;
    let serving = Serving::To(vec![to("r1", 100, &["replica-bot-r1-1"])]);
    let route = WorkloadRoute { serving, ..deployment(KindName::Agent, "bot") };
    stage.deploy(&route);
    let (gateway, id) = (stage.gateway.clone(), route.id.clone());
    let call = tokio::spawn(async move {
        let request = Request::post("/gate").body(Bytes::from_static(b"{}")).unwrap();
        gateway.call(&id, request, 100).await
    });
    while workload.busy.is_empty() {
        tokio::task::yield_now().await;
    }
    // This one begins later, and ends because of the silence.
    let other = stage.send(request("POST", "h", "/acme/agents/bot/gate", &[KEY])).await;
    other.problem(504, "WORKLOAD_TIMEOUT");
    assert!(!call.is_finished());
    workload.gate.add_permits(2);
    let (answer, _) = call.await.unwrap().unwrap();
    assert_eq!((answer.status(), &answer.body()[..]), (StatusCode::OK, &b"open"[..]));
}

#[tokio::test]
async fn a_call_without_an_answer_tells_whether_the_program_was_asked() {
    let stage = Stage::start(settings()).await;
    for (name, answer, asked) in [
        ("crash", Some(""), Some(StatusCode::BAD_GATEWAY)),
        (
            "cut",
            Some("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"),
            Some(StatusCode::BAD_GATEWAY),
        ),
        ("deaf", None, None),
    ] {
        let instance = format!("replica-{name}-r1-1");
        let seen = Arc::new(AtomicUsize::new(0));
        if let Some(answer) = answer {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            stage.machine.listen(&instance, APP_PORT, listener.local_addr().unwrap());
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let read = stream.read(&mut [0; 4096]).await.unwrap();
                    seen.fetch_add(usize::from(read > 0), Ordering::SeqCst);
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
        stage.gateway.standby().track(&instance, Initial::Awake);
        let serving = Serving::To(vec![to("r1", 100, &[&instance])]);
        let route = WorkloadRoute { serving, ..deployment(KindName::Agent, name) };
        stage.deploy(&route);
        let request = Request::post("/").body(Bytes::from_static(b"{}")).unwrap();
        let error = stage.gateway.call(&route.id, request, 100).await.unwrap_err();
        assert_eq!(error.asked(), asked, "{name}: {error}");
        assert_eq!(seen.load(Ordering::SeqCst), usize::from(asked.is_some()), "{name}");
    }
}
