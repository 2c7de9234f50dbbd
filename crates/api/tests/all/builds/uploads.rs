//! Upload addresses: who owns them, how long they work, and what is sent there.

use super::{DEPLOYED, Stage, address, agent, quick, stage, stage_on};
use crate::mcp::{call, speak};
use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::json;
use std::io;
use tower::ServiceExt;

/// Starts an upload and sends half of it; returns the answer and a way to send the rest.
pub(crate) async fn slow_upload(
    stage: &Stage,
    path: &str,
) -> (tokio::task::JoinHandle<u16>, tokio::sync::oneshot::Sender<()>) {
    let first = futures_util::stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"an a"))]);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let rest = futures_util::stream::once(async move {
        let _ = ended.await;
        Ok(Bytes::from_static(b"pp"))
    });
    let body = Body::from_stream(futures_util::StreamExt::chain(first, rest));
    let request = Request::put(path).body(body).expect("a request");
    let router = stage.cloud.router.clone();
    let answer =
        tokio::spawn(
            async move { router.oneshot(request).await.expect("an answer").status().as_u16() },
        );
    while stage.builder.kept() == 0 {
        tokio::task::yield_now().await;
    }
    (answer, end)
}

#[tokio::test]
async fn an_address_is_good_as_long_as_the_key_that_asked_for_it() {
    let stage = stage().await;
    let key = stage.cloud.post("/v0/api_keys", json!({"name": "laptop"})).await.ok();
    let token = format!("Bearer {}", key["apiKey"].as_str().expect("a key"));
    let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
    let asked = |name: &str| {
        let mut wish = agent();
        wish["metadata"]["name"] = name.into();
        wish.to_string()
    };
    let (path, mut addresses) = ("/v0/agents?upload=true", Vec::new());
    for name in ["b", "c"] {
        let answer = stage.cloud.raw(Method::POST, path, &headers, asked(name).into_bytes()).await;
        addresses.push(address(&answer));
    }
    assert_eq!(stage.upload(&addresses[0], "sources").await.status, 200);
    let id = key["id"].as_str().expect("an id");
    stage.cloud.delete(&format!("/v0/api_keys/{id}")).await.ok();
    assert_eq!(stage.upload(&addresses[1], "sources").await.status, 404);
    stage.until("/v0/agents/b", &DEPLOYED).await;
    assert_eq!(stage.cloud.get("/v0/agents/c").await.ok()["status"], "UPLOADING");
}

#[tokio::test]
async fn an_address_works_once_and_not_for_ever() {
    let stage = stage().await;
    stage.upload("/v0/uploads/made-up", "an app").await.refused(404);
    let asked = stage.cloud.post("/v0/agents?upload=true", agent()).await;
    let first = address(&asked);
    let second = address(&stage.cloud.put("/v0/agents/a?upload=true", agent()).await);
    let message = stage.upload(&first, "an app").await.refused(410);
    assert!(message.contains("apply the resource again"), "{message}");
    assert_eq!(stage.upload(&second, "an app").await.status, 200);
    stage.upload(&second, "another app").await.refused(410);
    stage.until("/v0/agents/a", &DEPLOYED).await;
    let third = address(&stage.cloud.put("/v0/agents/a?upload=true", agent()).await);
    assert_eq!(stage.cloud.get("/v0/agents/a").await.ok()["status"], "UPLOADING");
    stage.cloud.clock.advance_s(3601);
    stage.upload(&third, "an app").await.refused(410);
    let agent = stage.until("/v0/agents/a", &["FAILED"]).await;
    assert!(agent["events"].to_string().contains("nothing was uploaded in time"), "{agent}");
    assert_eq!(stage.builder.began.borrow().len(), 1);
}

#[tokio::test]
async fn a_bad_upload_leaves_nothing_behind() {
    let stage = stage().await;
    let path = address(&stage.cloud.post("/v0/agents?upload=true", agent()).await);
    stage.upload(&path, &"x".repeat(101)).await.refused(413);
    stage.until("/v0/agents/a", &["FAILED"]).await;
    for end in [None, Some(Err(io::Error::other("cut"))), Some(Ok(Bytes::from(vec![b'x'; 200])))] {
        let path = address(&stage.cloud.put("/v0/agents/a?upload=true", agent()).await);
        let pieces = match end {
            None => vec![],
            Some(end) => vec![Ok(Bytes::from_static(b"an a")), end],
        };
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let request = Request::put(path.as_str()).body(body).expect("a request");
        let answer = stage.cloud.router.clone().oneshot(request).await.expect("an answer");
        assert!(answer.status().is_client_error(), "{}", answer.status());
        stage.upload(&path, "an app").await.refused(410);
        stage.until("/v0/agents/a", &["FAILED"]).await;
    }
    stage.until_nothing_is_kept().await;
    assert!(stage.builder.began.borrow().is_empty());
    assert_eq!(stage.cloud.get("/v0/agents/a/revisions").await.ok(), json!([]));
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing_behind() {
    let stage = stage().await;
    let path = address(&stage.cloud.post("/v0/agents?upload=true", agent()).await);
    let first = futures_util::stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"an a"))]);
    let body =
        Body::from_stream(futures_util::StreamExt::chain(first, futures_util::stream::pending()));
    let request = Request::put(path.as_str()).body(body).expect("a request");
    let answer = stage.cloud.router.clone().oneshot(request);
    tokio::select! {
        answer = answer => panic!("it has not ended: {answer:?}"),
        () = async { while stage.builder.kept() == 0 { tokio::task::yield_now().await } } => {}
    }
    stage.until("/v0/agents/a", &["FAILED"]).await;
    stage.until_nothing_is_kept().await;
    assert!(stage.builder.began.borrow().is_empty());
}

#[tokio::test]
async fn a_repeated_request_gets_the_same_address() {
    let stage = stage().await;
    let key = [("idempotency-key", "once")];
    let ask = async || {
        stage.cloud.call_with(Method::POST, "/v0/agents?upload=true", &key, Some(agent())).await
    };
    let (first, second) = (ask().await, ask().await);
    assert_eq!(address(&first), address(&second));
    assert_eq!(first.body, second.body);
    assert_eq!(stage.upload(&address(&first), "an app").await.status, 200);
    let app = json!({"metadata": {"name": "web"}, "spec": {"revisions": [{"image": "", "memory": 1024}]}});
    stage.deploy("/v0/applications/web", app, "an app").await;
    let made = stage.until("/v0/applications/web", &DEPLOYED).await;
    assert!(made["spec"]["image"].as_str().expect("an image").starts_with("app/web:b0b0"));
}

#[tokio::test]
async fn no_made_up_address_finds_or_breaks_anything() {
    let stage = stage().await;
    let path = address(&stage.cloud.post("/v0/agents?upload=true", agent()).await);
    let mut cases = vec!["%00".to_owned(), "..%2F..".into(), "ü".into(), "x".repeat(5000)];
    let (start, secret) = path.rsplit_once('/').expect("a secret");
    cases.extend((0..secret.len()).map(|at| secret[..at].to_owned()));
    let mut runner = TestRunner::deterministic();
    for _ in 0..200 {
        cases.push("\\PC{1,60}".new_tree(&mut runner).expect("a text").current());
    }
    cases.extend([secret.to_uppercase(), format!("{secret}a"), format!("{secret}%00")]);
    for case in cases.iter().filter(|case| !case.is_empty()) {
        let uri: String = url::form_urlencoded::byte_serialize(case.as_bytes()).collect();
        for spelt in [case.clone(), uri] {
            let Ok(request) = Request::put(format!("{start}/{spelt}")).body(Body::from("PK"))
            else {
                continue;
            };
            let answer = stage.cloud.router.clone().oneshot(request).await.expect("an answer");
            assert!(answer.status().is_client_error(), "{spelt}: {}", answer.status());
        }
    }
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let answer = stage.cloud.raw(method, &path, &[], Vec::new()).await;
        assert_eq!(answer.status, 405);
    }
    assert_eq!(stage.upload(&path, "an app").await.status, 200);
}

#[tokio::test]
async fn a_tool_answers_the_address() {
    for postgres in [false, true] {
        let stage = stage_on(quick(), postgres).await;
        let image = json!({"name": "i", "resourceType": "agent"});
        for (tool, arguments) in [
            ("CreateImage", json!({"upload": true, "body": image})),
            ("CreateAgent", json!({"upload": true, "body": agent()})),
            ("UpdateAgent", json!({"upload": true, "agentName": "a", "body": agent()})),
        ] {
            let told = speak(&stage.cloud, &stage.cloud.first.api_key, call(tool, arguments)).await;
            let told = told.ok()["result"].clone();
            let url = told["structuredContent"]["uploadUrl"].as_str().expect("an address");
            // Some clients read only the text.
            assert!(told["content"][0]["text"].as_str().expect("a text").contains(url), "{told}");
            let at = url.strip_prefix("http://localhost:8080").expect("the server's own");
            assert_eq!(stage.upload(at, "an app").await.status, 200, "{tool}");
        }
    }
}
