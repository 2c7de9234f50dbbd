//! Triggers of jobs that are fired by requests, and the callbacks about their ends.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::machine::Pretended;
use crate::common::{Answer, Cloud, settings};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit, Mac};
use http::Method;
use jobs::callbacks::Callbacks;
use jobs::deliveries::{self, Sender};
use jobs::{Assignment, Queue, TaskRunner};
use serde_json::{Value, json};
use sha2::Sha256;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use types::World;
use types::instance::{AttemptId, Outcome, WorkEnd};

/// A machine whose tasks fail when asked to.
struct Workers(World);

impl TaskRunner<Assignment> for Workers {
    fn name(&self) -> &str {
        "here"
    }

    fn run<'a>(&'a self, _: &'a AttemptId, attempt: Assignment) -> BoxFuture<'a, WorkEnd> {
        let (now, fails) = (self.0.now(), attempt.arguments().contains("\"fail\":true"));
        let outcome = if fails { Outcome::Exited(1) } else { Outcome::SUCCESS };
        Box::pin(async move { WorkEnd { started_at: Some(now), ended_at: now, outcome } })
    }

    fn abandon<'a>(&'a self, _: &'a AttemptId) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn present(&self) -> Vec<AttemptId> {
        Vec::new()
    }
}

/// Runs what is queued, until it is dropped.
struct Works(CancellationToken);

impl Works {
    fn begin(store: &Store) -> Self {
        let ending = CancellationToken::new();
        let queue = Queue::new(jobs::Settings::default(), vec![Arc::new(Callbacks)]);
        let crew = Arc::new(Workers(store.world().clone()));
        tokio::spawn(jobs::run(store.clone(), queue, crew, ending.clone()));
        Self(ending)
    }
}

impl Drop for Works {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The receiver of callbacks, at a name that only the test's sender knows.
#[derive(Clone)]
struct Receiver {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<(String, HeaderMap, Bytes)>>>,
}

impl Receiver {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let router = Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    fn url(&self) -> String {
        format!("http://hooks.example:{}/done?key=hunter2", self.address.port())
    }

    /// Waits for the only callback and returns it.
    async fn told(&self, store: &Store) -> (String, HeaderMap, Bytes) {
        let settings = deliveries::Settings {
            attempts_max: 3,
            timeout: Duration::from_secs(5),
            concurrency: 4,
            workspace_concurrency: 4,
            pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(1),
            poll: Duration::from_millis(10),
            inside: vec!["hooks.example".into()],
        };
        let lookup = |_: String| {
            let found: BoxFuture<'static, io::Result<Vec<IpAddr>>> =
                Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) });
            found
        };
        let sender = Sender::looking_up(store.clone(), settings, lookup).unwrap();
        loop {
            sender.run_until_idle().await.unwrap();
            if let Some(told) = self.seen.lock().unwrap().pop() {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn receive(State(receiver): State<Receiver>, uri: Uri, headers: HeaderMap, body: Bytes) {
    receiver.seen.lock().unwrap().push((uri.to_string(), headers, body));
}

fn job(name: &str, triggers: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"runtime": {"image": "x"}, "triggers": triggers}})
}

fn trigger(id: &str, kind: &str, configuration: Value) -> Value {
    json!({"id": id, "type": kind, "configuration": configuration})
}

async fn anonymous(cloud: &Cloud, path: &str) -> Answer {
    cloud.raw(Method::POST, path, &[], b"{}".to_vec()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asynchronous_trigger_answers_at_once_and_tells_of_the_end() {
    for cloud in Cloud::on_both().await {
        let receiver = Receiver::start().await;
        let calls_back = trigger(
            "t",
            "http-async",
            json!({"path": "/x", "callbackUrl": receiver.url(), "retry": 2}),
        );
        let made = cloud.post("/v0/jobs", job("j", json!([calls_back]))).await.ok();
        let secret = made["spec"]["triggers"][0]["configuration"]["callbackSecret"]
            .as_str()
            .unwrap()
            .to_owned();
        for (arguments, code, status) in
            [(json!({"fail": false}), 200, "succeeded"), (json!({"fail": true}), 500, "failed")]
        {
            assert_eq!(cloud.post("/main/x", arguments).await.ok(), json!({"success": true}));
            let waiting = cloud.get("/v0/jobs/j/deliveries").await.ok();
            assert_eq!(waiting["data"][0]["state"], "waiting", "{waiting}");
            let works = Works::begin(&cloud.store);
            let (uri, headers, body) = receiver.told(&cloud.store).await;
            drop(works);
            assert_eq!(uri, "/done?key=hunter2");
            let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
            mac.update(&body);
            let hex: String =
                mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(headers["x-blaxel-signature"], format!("sha256={hex}"));
            assert!(headers["x-blaxel-timestamp"].to_str().unwrap().parse::<i64>().is_ok());
            let body: Value = serde_json::from_slice(&body).unwrap();
            let report = body["response_body"].as_str().unwrap();
            assert_eq!(
                (&body["status_code"], &body["response_length"]),
                (&json!(code), &json!(report.len()))
            );
            assert!(body["timestamp"].is_i64());
            let report: Value = serde_json::from_str(report).unwrap();
            assert_eq!(
                (&report["status"], &report["job"], &report["stats"]["total"]),
                (&json!(status), &json!("j"), &json!(1))
            );
        }
        let log = cloud.get("/v0/jobs/j/deliveries?limit=1").await.ok();
        assert_eq!((log["data"].as_array().unwrap().len(), &log["meta"]["total"]), (1, &json!(2)));
        let told = &log["data"][0];
        assert_eq!(
            (&told["state"], &told["attempts"], &told["lastStatus"]),
            (&json!("delivered"), &json!(1), &json!(200))
        );
        let next =
            format!("/v0/jobs/j/deliveries?cursor={}", log["meta"]["nextCursor"].as_str().unwrap());
        let rest = cloud.get(&next).await.ok();
        assert!(rest["data"].as_array().unwrap().len() == 1 && rest["data"][0]["id"] != told["id"]);
        for shown in [log.to_string(), rest.to_string()] {
            assert!(!shown.contains("hunter2") && !shown.contains(&secret), "{shown}");
        }
        cloud.get("/v0/jobs/none/deliveries").await.refused(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_an_agent_is_made_later_and_told_of() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let cloud = Cloud::start_on_machine(machine, settings()).await;
    let receiver = Receiver::start().await;
    let calls_back =
        trigger("t", "http-async", json!({"path": "/x", "callbackUrl": receiver.url()}));
    let in_its_own = trigger("deep", "http-async", json!({"path": "agents/a/async"}));
    let made = cloud.post("/v0/agents", job("a", json!([calls_back, in_its_own]))).await.ok();
    let secret = made["spec"]["triggers"][0]["configuration"]["callbackSecret"].as_str().unwrap();
    let key = format!("Bearer {}", cloud.first.api_key);
    for (path, code) in [("/main/x?a=b", 200), ("/main/x?fail", 503)] {
        let headers = [
            ("authorization", key.as_str()),
            ("content-type", "application/json"),
            ("x-hub-signature-256", "sha256=0f"),
            ("cookie", "holm=1"),
        ];
        let body = br#"{"inputs":"hunter2"}"#.to_vec();
        let accepted = cloud.raw(Method::POST, path, &headers, body).await.ok();
        assert_eq!(accepted, json!({"success": true}));
        let (_, headers, body) = receiver.told(&cloud.store).await;
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(&body);
        let hex: String =
            mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(headers["x-blaxel-signature"], format!("sha256={hex}"));
        let body: Value = serde_json::from_slice(&body).unwrap();
        let call = cloud.routes.calls.lock().pop().unwrap();
        assert_eq!(body["status_code"], code);
        assert_eq!(body["response_body"], call.target.as_str());
        assert_eq!(body["response_length"], call.target.len());
        assert_eq!(STANDARD.decode(call.body).unwrap(), br#"{"inputs":"hunter2"}"#);
        let said = |name| call.headers.iter().find(|(known, _)| known == name);
        let said = |name| said(name).map(|(_, value)| value.as_str());
        assert_eq!(said("content-type"), Some("application/json"));
        assert_eq!(said("x-hub-signature-256"), Some("sha256=0f"), "what webhooks are proven by");
        assert_eq!((said("authorization"), said("cookie")), (None, None));
    }
    cloud.post("/main/agents/a/async", json!({})).await.ok();
    // At its own address, with a path of its own.
    cloud.post("/run/main/agents/a/deep/path?x=1&async=true", json!({})).await.ok();
    eventually(|| cloud.routes.calls.lock().iter().any(|call| call.target == "/deep/path?x=1"))
        .await;
    // With any method, because callers who wait for the answer may use any, too.
    let key_only = [("authorization", key.as_str())];
    let path = "/main/agents/a/status?async=true";
    for method in [Method::GET, Method::DELETE] {
        let accepted = cloud.raw(method.clone(), path, &key_only, Vec::new()).await.ok();
        assert_eq!(accepted, json!({"success": true}));
        eventually(|| {
            let calls = cloud.routes.calls.lock();
            calls.iter().any(|call| call.target == "/status" && call.method == method.as_str())
        })
        .await;
        cloud.raw(method, "/main/agents/a/status?async=true", &[], Vec::new()).await.refused(401);
    }
    for (method, path) in [(Method::GET, "/main/x?get"), (Method::PUT, "/main/agents/a/async?put")]
    {
        let accepted = cloud.raw(method.clone(), path, &key_only, Vec::new()).await.ok();
        assert_eq!(accepted, json!({"success": true}));
        let query = path.split_once('?').unwrap().1;
        let target = format!("/?{query}");
        eventually(|| {
            let calls = cloud.routes.calls.lock();
            calls.iter().any(|call| call.target == target && call.method == method.as_str())
        })
        .await;
        // With these methods, a stranger finds nothing, whether there is something or not.
        let closed = cloud.raw(method.clone(), path, &[], Vec::new()).await.refused(404);
        let wrong = [("authorization", "Bearer no")];
        assert_eq!(cloud.raw(method.clone(), path, &wrong, Vec::new()).await.refused(404), closed);
        assert_eq!(cloud.raw(method, "/main/none", &[], Vec::new()).await.refused(404), closed);
    }
    // A browser's preflight request is not a call.
    let before = cloud.routes.calls.lock().len();
    cloud.raw(Method::OPTIONS, "/main/x", &key_only, Vec::new()).await;
    assert_eq!(cloud.routes.calls.lock().len(), before);
    let unknown = anonymous(&cloud, "/main/agents/none?async=true").await.refused(401);
    assert_eq!(anonymous(&cloud, "/main/agents/a?async=true").await.refused(401), unknown);
    cloud.post("/main/agents/none?async=true", json!({})).await.refused(404);
    // A call is not an execution of a job with the same name.
    cloud.post("/v0/jobs", job("a", json!([]))).await.ok();
    let executions = cloud.get("/v0/jobs/a/executions").await.ok();
    assert_eq!(executions["meta"]["total"], 0, "{executions}");
    let used = cloud.get("/v0/agents/a").await.ok();
    assert_eq!(used["metadata"]["name"], "a");
    let mut off = made.clone();
    off["spec"]["enabled"] = json!(false);
    cloud.put("/v0/agents/a", off).await.ok();
    assert!(cloud.post("/main/x", json!({})).await.refused(400).contains("disabled"));
    cloud.delete("/v0/agents/a").await.ok();
    cloud.post("/main/x", json!({})).await.refused(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_at_what_is_public_leave_its_owner_room() {
    // Nothing is executed here, so that accepted executions stay open.
    let mut few = settings();
    (few.jobs.open_max, few.jobs.open_public_max) = (4, 2);
    let cloud = Cloud::start_with(few).await;
    let open =
        trigger("open", "http-async", json!({"path": "/open", "authenticationType": "public"}));
    let mut agent = job("a", json!([open]));
    agent["spec"]["public"] = json!(true);
    agent["spec"]["runtime"]["generation"] = json!("mk3");
    cloud.post("/v0/agents", agent).await.ok();
    anonymous(&cloud, "/main/agents/a?async=true").await.ok();
    anonymous(&cloud, "/main/open").await.ok();
    for path in ["/main/agents/a?async=true", "/main/open"] {
        let why = anonymous(&cloud, path).await.refused(429);
        assert!(why.contains("executions that have not ended"), "{why}");
        // The same request with credentials is accepted.
        cloud.post(path, json!({})).await.ok();
    }
    cloud.post("/main/open", json!({})).await.refused(429);
    cloud.raw(Method::GET, "/main/open", &[], Vec::new()).await.refused(429);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_belongs_to_one_object_of_a_workspace() {
    let cloud = Cloud::start().await;
    let x = || json!([trigger("t", "http-async", json!({"path": "/x"}))]);
    cloud.post("/v0/agents", job("a", x())).await.ok();
    cloud.post("/v0/functions", job("f", x())).await.refused(409);
    cloud.post("/v0/jobs", job("j", x())).await.refused(409);
    let foreign = json!([trigger("t", "http-async", json!({"path": "/agents/b/x"}))]);
    let why = cloud.post("/v0/agents", job("c", foreign)).await.refused(400);
    assert!(why.contains("where another object answers"), "{why}");
    cloud.delete("/v0/agents/a").await.ok();
    cloud.post("/v0/functions", job("f", x())).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_trigger_answers_with_the_end() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/jobs", job("j", json!([trigger("now", "http", json!({}))]))).await.ok();
    let _works = Works::begin(&cloud.store);
    let done = cloud.post("/main/jobs/j/now", json!({"a": [1, {"b": "c"}]})).await.ok();
    assert_eq!((&done["status"], &done["stats"]["success"]), (&json!("succeeded"), &json!(1)));
    assert!(done["id"].as_str().unwrap().starts_with("now-"), "{done}");
    let failed = cloud.post("/run/main/jobs/j/now", json!({"fail": true})).await;
    assert_eq!((failed.status.as_u16(), &failed.body["status"]), (500, &json!("failed")));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_members_call_a_trigger_unless_it_is_public() {
    let cloud = Cloud::start_with(control::Settings {
        trigger_rate: control::Rate { per_second: 1, burst: 2 },
        ..settings()
    })
    .await;
    let open =
        trigger("open", "http-async", json!({"path": "/open", "authenticationType": "public"}));
    let shut =
        trigger("shut", "http-async", json!({"path": "/shut", "authenticationType": "private"}));
    cloud.post("/v0/jobs", job("j", json!([open, shut]))).await.ok();
    for method in [Method::POST, Method::GET] {
        let begun = cloud.raw(method, "/main/open", &[], Vec::new()).await.ok();
        assert_eq!(begun, json!({"success": true}));
    }
    let refused = anonymous(&cloud, "/main/open").await;
    assert!(refused.headers.contains_key("retry-after"));
    refused.refused(429);
    cloud.post("/main/shut", json!({})).await.ok();
    // A caller without credentials learns nothing about what exists.
    let closed = anonymous(&cloud, "/main/shut").await.refused(401);
    for path in ["/main/none", "/none/open", "/none/shut"] {
        assert_eq!(anonymous(&cloud, path).await.refused(401), closed, "{path}");
    }
    let bad = cloud
        .raw(Method::POST, "/main/shut", &[("authorization", "Bearer no")], b"{}".to_vec())
        .await;
    bad.refused(401);
    let elsewhere = cloud.post("/none/shut", json!({})).await;
    assert!([401, 403, 404].contains(&elsewhere.status.as_u16()), "{}", elsewhere.body);
    cloud.post("/main/none", json!({})).await.refused(404);
    cloud.raw(Method::GET, "/main/shut", &[], Vec::new()).await.refused(404);
    cloud.get("/main/shut").await.ok();
    let begun = cloud.get("/v0/jobs/j/executions").await.ok();
    assert_eq!(begun["meta"]["total"], 4, "{begun}");
    anonymous(&cloud, "/v0/none").await.refused(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_off_or_wrong_starts_nothing() {
    let cloud = Cloud::start().await;
    let mut off = trigger("off", "http-async", json!({"path": "off"}));
    off["enabled"] = json!(false);
    let made = job("j", json!([trigger("on", "http-async", json!({"path": "on"})), off]));
    cloud.post("/v0/jobs", made.clone()).await.ok();
    assert!(cloud.post("/main/off", json!({})).await.refused(400).contains("disabled"));
    for body in [json!([1]), json!("a"), json!(null)] {
        cloud.post("/main/on", body).await.refused(400);
    }
    let key = format!("Bearer {}", cloud.first.api_key);
    cloud
        .raw(Method::POST, "/main/on", &[("authorization", &key)], b"{".to_vec())
        .await
        .refused(400);
    cloud.raw(Method::POST, "/main/on", &[("authorization", &key)], Vec::new()).await.ok();
    let mut disabled = made;
    disabled["spec"]["enabled"] = json!(false);
    cloud.put("/v0/jobs/j", disabled).await.ok();
    assert!(cloud.post("/main/on", json!({})).await.refused(400).contains("disabled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_one_trigger_and_follows_the_job() {
    for cloud in Cloud::on_both().await {
        let at = |path: &str| json!([trigger("t", "http-async", json!({"path": path}))]);
        let made = cloud.post("/v0/jobs", job("one", at("/x"))).await.ok();
        let first = made["spec"]["revision"]["active"].clone();
        cloud.post("/v0/jobs", job("two", at("x"))).await.refused(409);
        cloud.get("/v0/jobs/two").await.refused(404);
        cloud.post("/v0/jobs", job("two", at("y"))).await.ok();
        cloud.put("/v0/jobs/two", job("two", at("x"))).await.refused(409);
        cloud.post("/main/y", json!({})).await.ok();
        cloud.put("/v0/jobs/one", job("one", at("z"))).await.ok();
        cloud.post("/main/x", json!({})).await.refused(404);
        cloud.post("/main/z", json!({})).await.ok();
        // Back to the first revision, and to its address.
        let mut back = cloud.get("/v0/jobs/one").await.ok();
        back["spec"]["revision"] = json!({"active": first});
        cloud.put("/v0/jobs/one", back).await.ok();
        cloud.post("/main/x", json!({})).await.ok();
        cloud.post("/main/z", json!({})).await.refused(404);
        cloud.delete("/v0/jobs/one").await.ok();
        cloud.post("/main/x", json!({})).await.refused(404);
        cloud.put("/v0/jobs/two", job("two", at("x"))).await.ok();
        cloud.post("/main/x", json!({})).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_that_leads_inside_is_refused_when_it_is_written() {
    let cloud = Cloud::start().await;
    for url in [
        "http://127.0.0.1/",
        "http://169.254.169.254/latest",
        "http://localhost:8700/",
        "http://a:b@c.example/",
    ] {
        let wish =
            job("j", json!([trigger("t", "http-async", json!({"path": "x", "callbackUrl": url}))]));
        let why = cloud.post("/v0/jobs", wish).await.refused(400);
        assert!(why.contains("spec.triggers[0].configuration.callbackUrl"), "{why}");
    }
}

/// Waits until a condition holds, or fails.
async fn eventually(done: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(tokio::time::Instant::now() < end, "it did not come to pass");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
