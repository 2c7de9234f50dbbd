//! Deployments at the paths of their triggers, and calls that nobody waits for.

use crate::stage::{Stage, deployment, request, settings, to};
use bytes::Bytes;
use http::Request;
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
