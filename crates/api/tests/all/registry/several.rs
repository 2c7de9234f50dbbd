//! Another server on the same database, with a machine of its own: it says what it does not have.

use super::{Town, digest, keeper, refused};
use serde_json::{Value, json};
use types::edge::Serving;

const ELSEWHERE: &str = "is on another machine of this installation";

fn with_image(name: &str, image: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"runtime": {"image": image, "memory": 512}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_says_what_is_on_another_machine() {
    let mut town = Town::start().await;
    town.push("main/sandbox/a", "v1", "one").await;
    town.push("main/agent/a", "v1", "two").await;
    town.cloud.post("/v0/agents", with_image("here", "agent/a:v1")).await.ok();
    let deployed = |agent: &Value| agent["status"] == "DEPLOYED";
    town.cloud.until("/v0/agents/here", deployed).await;
    let (other, _images, _folder) = keeper("other");
    town.cloud.restart_on(other).await;

    for path in ["main/sandbox/a/manifests/v1", "main/a/manifests/v1"] {
        let manifest = town.call("GET", path, b"").await;
        refused(&manifest, 404, "MANIFEST_UNKNOWN");
        assert!(manifest.text.contains(ELSEWHERE), "{}", manifest.text);
    }
    let blob = format!("main/sandbox/a/blobs/{}", digest(b"one"));
    refused(&town.call("GET", &blob, b"").await, 404, "BLOB_UNKNOWN");
    let tags = town.call("GET", "main/sandbox/a/tags/list", b"").await;
    assert_eq!(tags.body["tags"], json!(["v1"]));

    let answer = town.cloud.post("/v0/sandboxes", with_image("s", "sandbox/a:v1")).await;
    assert_eq!((answer.status.as_u16(), &answer.body["error"]), (400, &json!("INVALID_IMAGE")));
    assert!(answer.text.contains(ELSEWHERE), "{}", answer.text);
    town.cloud.post("/v0/agents", with_image("there", "agent/a:v1")).await.ok();
    let failed = |agent: &Value| agent["status"] == "FAILED";
    let agent = town.cloud.until("/v0/agents/there", failed).await;
    assert!(agent["events"].to_string().contains(ELSEWHERE), "{agent}");

    // What the first server runs continues there, and is neither launched here nor disturbed by
    // requests.
    let why = "runs on another machine of this installation: ask its server";
    let off = Serving::Off { why: why.into() };
    town.cloud.routes.until("here", |route| route.serving == off).await;
    for path in [
        "/v0/agents/here",
        "/v0/agents/here/revisions",
        "/v0/images/agent/a",
        "/v0/observability/requests?resourceType=agents&workloadIds=here",
        "/v0/observability/logs?resourceType=agents&workloadIds=here",
    ] {
        town.cloud.get(path).await.ok();
    }
    assert_eq!(town.call("DELETE", "main/sandbox/a/manifests/v1", b"").await.status, 202);
    // What is pushed here is here.
    town.push("main/sandbox/a", "v2", "three").await;
    town.cloud.post("/v0/sandboxes", with_image("s", "sandbox/a:v2")).await.ok();
}
