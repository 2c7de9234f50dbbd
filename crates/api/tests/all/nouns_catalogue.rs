//! The operator's offers, known providers, logs, and what is not implemented yet.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::samples::samples;
use crate::common::{Cloud, settings};
use control::{Catalogue, Missing, Settings};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::wire::Region;

fn catalogue() -> Settings {
    let file = json!({
        "templates": [{"name": "chat", "url": "https://git.example/chat", "topics": ["agent"]}],
        "sandboxes": [{"name": "base", "image": "blaxel/base-image:latest", "memory": 4096}],
        "servers": [{"name": "search", "integration": "search", "image": "x"}],
        "changelog": [{"title": "First", "date": "2026-04-16", "content": "It begins."}],
        "features": {"dark": true, "slow": false},
        "public_ips": {"local": {"ipv4Cidrs": ["192.0.2.0/24"]}, "far": {"ipv4Cidrs": ["198.51.100.0/24"]}},
    });
    let region = |name: &str, country: &str| Region {
        name: Some(name.into()),
        country: Some(country.into()),
        continent: Some("eu".into()),
        ..Region::default()
    };
    let catalogue: Catalogue = serde_json::from_value(file).unwrap();
    Settings { catalogue, regions: vec![region("local", "de"), region("far", "fr")], ..settings() }
}

#[tokio::test]
async fn what_the_operator_offers_is_readable() {
    let cloud = Cloud::start_with(catalogue()).await;
    let configuration = cloud.get("/v0/configuration").await.ok();
    assert_eq!(configuration["regions"].as_array().unwrap().len(), 2);
    assert_eq!(configuration["countries"][1]["name"], "fr");
    assert_eq!(
        (configuration["continents"].as_array().unwrap().len(), &configuration["detectedRegion"]),
        (1, &json!("local"))
    );
    let locations = cloud.get("/v0/locations").await.ok();
    assert_eq!(
        (&locations[0]["region"], &locations[0]["status"]),
        (&json!("local"), &json!("healthy"))
    );
    assert_eq!(cloud.get("/v0/features").await.ok(), json!({"features": {"dark": true}}));
    assert_eq!(cloud.get("/v0/features/slow").await.ok()["enabled"], false);
    assert!(cloud.get("/v0/features/dark").await.ok()["evaluatedAt"].is_string());
    cloud.get("/v0/features/none").await.refused(404);
    assert_eq!(
        cloud.get("/v0/templates/chat").await.ok(),
        cloud.get("/v0/templates").await.ok()[0]
    );
    cloud.get("/v0/templates/none").await.refused(404);
    assert_eq!(cloud.get("/v0/sandbox/hub").await.ok()[0]["name"], "base");
    assert_eq!(cloud.get("/v0/mcp/hub").await.ok()[0]["integration"], "search");
    assert_eq!(cloud.get("/v0/publicIps").await.ok().as_object().unwrap().len(), 2);
    assert_eq!(
        cloud.get("/v0/publicIps?region=far").await.ok()["far"]["ipv4Cidrs"][0],
        "198.51.100.0/24"
    );
    let news = cloud.raw(Method::GET, "/v0/changelog", &[], Vec::new()).await.ok();
    assert_eq!(news["entries"][0]["title"], "First");
}

#[tokio::test]
async fn what_is_known_of_providers_is_readable() {
    let cloud = Cloud::start().await;
    let openai = cloud.get("/v0/integrations/openai").await.ok();
    let endpoints = openai["endpoints"].as_object().unwrap();
    assert!(endpoints.values().any(|endpoint| endpoint["token"]["total"].is_string()), "{openai}");
    cloud.get("/v0/integrations/none").await.refused(404);
    let connection = |integration: &str| json!({"metadata": {"name": "key"}, "spec": {"integration": integration}});
    cloud.post("/v0/integrations/connections", connection("none")).await.refused(400);
    cloud.post("/v0/integrations/connections", connection("openai")).await.ok();
    let path = "/v0/integrations/connections/key";
    assert_eq!(
        cloud.get(&format!("{path}/endpointConfigurations")).await.ok(),
        openai["endpoints"]
    );
    cloud.get("/v0/integrations/connections/none/models").await.refused(404);
}

#[tokio::test]
async fn requests_are_counted_for_kinds_that_answer_them() {
    let cloud = Cloud::start().await;
    let one = |name: &str, kind: &str| {
        format!("/v0/observability/requests?resourceType={kind}&workloadIds={name}")
    };
    let none = cloud.get(&one("bot,other", "agents")).await.ok();
    assert_eq!(none["bot"], none["other"]);
    assert_eq!((&none["bot"]["count"], &none["bot"]["revisions"]), (&json!(0), &json!({})));
    for kind in ["jobs", "agent", ""] {
        cloud.get(&one("bot", kind)).await.refused(400);
    }
    cloud.get(&one("", "agents")).await.refused(400);
    let bot = one("bot", "agents");
    let window = "start=2026-04-16T00:00:00Z&end=2026-04-16T01:00:00";
    assert_eq!(cloud.get(&format!("{bot}&{window}")).await.ok()["bot"]["count"], 0);
    for wrong in ["start=noon", "end=1970-01-01T00:00:00Z", "start=2027-01-01T00:00:00Z"] {
        cloud.get(&format!("{bot}&{wrong}")).await.refused(400);
    }
}

#[tokio::test]
async fn logs_answer_in_the_shape_that_the_command_line_reads() {
    let cloud = Cloud::start().await;
    let logs = "/v0/observability/logs?resourceType=agents&workloadIds=bot";
    let range = "start=2026-04-16T09:30:00&end=2026-04-18T09:30:00";
    let answer = cloud.get(&format!("{logs}&{range}&limit=1000&severity=INFO,ERROR")).await.ok();
    assert_eq!(answer["bot"]["logs"], json!([]), "{answer}");
    for bad in [
        "start=2026-04-16T09:30:00&end=2026-04-20T09:30:00",
        "start=2026-04-16T09:30:00&end=2026-04-15T09:30:00",
        "start=noon",
        "limit=0",
        "limit=1001",
        "offset=-1",
    ] {
        cloud.get(&format!("{logs}&{bad}")).await.refused(400);
    }
    cloud.get("/v0/observability/logs?resourceType=agents").await.refused(400);
}

/// Returns a request for each thing that is not implemented.
fn missing_acts() -> BTreeMap<&'static str, (Method, String, Value)> {
    let post = |path: &str, body: Value| (Method::POST, path.to_owned(), body);
    let named = json!({"metadata": {"name": "new"}, "spec": {}});
    let request = |missing: Missing| {
        Some(match missing {
            Missing::Build => post("/v0/agents?upload=true", named.clone()),
            Missing::ReceiveTemplate => post("/v0/volume_templates?upload=true", named.clone()),
            // Only a server that runs sandboxes refuses this; the tests of the program cover it.
            Missing::MountVolume => return None,
            Missing::Snapshot => post("/v0/sandboxes/one/snapshots", json!({})),
            Missing::Fork => {
                post("/v0/sandboxes/one/fork", json!({"targetName": "n", "targetType": "sandbox"}))
            }
        })
    };
    Missing::ALL
        .into_iter()
        .filter_map(|missing| Some((missing.act(), request(missing)?)))
        .collect()
}

#[tokio::test]
async fn what_is_missing_says_so() {
    let cloud = Cloud::start().await;
    for sample in samples() {
        cloud.post(sample.path, sample.body).await.ok();
    }
    for (act, (method, path, body)) in missing_acts() {
        let body = Some(body).filter(|body| !body.is_null());
        let answer = cloud.call(method, &path, body).await;
        assert_eq!(answer.body["error"], "not_implemented", "{path}: {}", answer.body);
        let message = answer.refused(501);
        assert!(message.ends_with(act), "{message}");
    }
    for path in [
        "/v0/agents",
        "/v0/functions",
        "/v0/jobs",
        "/v0/applications",
        "/v0/sandboxes",
        "/v0/images",
    ] {
        let body = json!({"metadata": {"name": "new"}, "spec": {}, "name": "new", "resourceType": "agent"});
        cloud.post(&format!("{path}?upload=true"), body).await.refused(501);
    }
    cloud
        .post("/v0/images?skip-build=true", json!({"name": "x", "resourceType": "agent"}))
        .await
        .refused(400);
}
