//! MCP servers of the hub: what runs for a connection, and who can see what of it.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::machine::{IMAGE, Pretended, variable};
use crate::common::{Cloud, settings};
use control::machine::Launch;
use control::{Catalogue, Settings};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use types::instance::Outcome;

const CONNECTIONS: &str = "/v0/integrations/connections";

fn catalogue() -> Settings {
    let form = json!({"config": {"SCHEMA": {}}, "secrets": {"URL": {}}});
    let env = json!({"DATABASE_URL": "${secrets.URL}", "SCHEMA": "${config.SCHEMA}"});
    let server = |integration: &str, image: &str| {
        json!({"name": integration, "integration": integration, "image": image,
        "entrypoint": {"command": "serve db", "env": env}, "form": form})
    };
    let servers = json!({"servers": [server("db", IMAGE), server("other", "holm/none:latest")]});
    let catalogue: Catalogue = serde_json::from_value(servers).unwrap();
    catalogue.check().unwrap();
    Settings { catalogue, ..settings() }
}

async fn cloud() -> (Cloud, Arc<Pretended>) {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    (Cloud::start_on_machine(machine.clone(), catalogue()).await, machine)
}

fn connection(secret: &Value) -> Value {
    json!({"metadata": {"name": "k"}, "spec": {"integration": "db", "secret": secret}})
}

fn function(runtime: &Value) -> Value {
    let spec = json!({"integrationConnections": ["k"], "runtime": runtime});
    json!({"metadata": {"name": "f"}, "spec": spec})
}

fn is(status: &'static str) -> impl Fn(&Value) -> bool {
    move |object| object["status"] == status
}

fn last_message(object: &Value) -> &str {
    object["events"].as_array().unwrap().last().unwrap()["message"].as_str().unwrap()
}

fn active(object: &Value) -> &str {
    object["spec"]["revision"]["active"].as_str().unwrap()
}

fn arguments(launch: &Launch) -> Vec<String> {
    launch.work.as_ref().unwrap().arguments.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_the_hub_runs_with_the_secrets_of_its_connection() {
    let (cloud, machine) = cloud().await;
    let offered = cloud.get("/v0/mcp/hub").await.ok();
    assert_eq!(offered.as_array().unwrap().len(), 1, "the other image is not here");
    assert_eq!(offered[0]["integration"], "db");
    assert_eq!(cloud.get("/v0/integrations/db").await.ok()["name"], "db");
    cloud.post(CONNECTIONS, connection(&json!({}))).await.ok();
    cloud.post("/v0/functions", function(&json!({"memory": 512}))).await.ok();
    let failed = cloud.until("/v0/functions/f", is("FAILED")).await;
    assert_eq!(last_message(&failed), "its connection `k` lacks `spec.secret.URL`");

    // Once it has its secret, it is tried again without further requests.
    let path = &format!("{CONNECTIONS}/k");
    let shown = cloud.put(path, connection(&json!({"URL": "first", "MORE": "unasked"}))).await.ok();
    let first = cloud.until("/v0/functions/f", is("DEPLOYED")).await;
    let [launch] = &machine.until_launched(1).await[..] else { panic!("one is enough") };
    assert_eq!((launch.image.as_str(), launch.memory_mb), (IMAGE, 512));
    assert_eq!(arguments(launch), ["serve", "db"]);
    assert_eq!(variable(launch, "DATABASE_URL").as_deref(), Some("first"));
    assert_eq!((variable(launch, "SCHEMA"), variable(launch, "MORE")), (None, None));
    let revisions = cloud.get("/v0/functions/f/revisions").await.ok();
    for seen in
        [&format!("{launch:?}"), &shown.to_string(), &first.to_string(), &revisions.to_string()]
    {
        assert!(!seen.contains("first") && !seen.contains("unasked"), "{seen}");
    }

    // A write without changes starts nothing; another secret starts a new revision.
    let masked = connection(&json!({"URL": "***", "MORE": "***"}));
    cloud.put(path, masked.clone()).await.ok();
    let mut titled = masked;
    titled["metadata"]["displayName"] = json!("The database");
    cloud.put(path, titled).await.ok();
    assert_eq!(active(&cloud.get("/v0/functions/f").await.ok()), active(&first));
    cloud.put(path, connection(&json!({"URL": "second"}))).await.ok();
    let [old, new] = &machine.until_launched(2).await[..] else { panic!("two are enough") };
    assert_eq!(variable(new, "DATABASE_URL").as_deref(), Some("second"));
    machine.until_retired(old.instance.as_str()).await;
    let now = cloud.until("/v0/functions/f", is("DEPLOYED")).await;
    assert_ne!(active(&now), active(&first));

    let message = cloud.delete(path).await.refused(409);
    assert!(message.contains("`f`"), "{message}");
    cloud.delete("/v0/functions/f").await.ok();
    cloud.delete(path).await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_server_of_the_hub_is_given_a_secret() {
    let (cloud, machine) = cloud().await;
    cloud.post(CONNECTIONS, connection(&json!({"URL": "hidden"}))).await.ok();
    // An image of the user's own, who may use the connection but not read it.
    cloud.post("/v0/functions", function(&json!({"image": IMAGE}))).await.ok();
    cloud.until("/v0/functions/f", is("DEPLOYED")).await;
    let launched = machine.until_launched(1).await;
    let told = format!("{:?}", launched[0].environment);
    assert!(!told.contains("hidden") && arguments(&launched[0]).is_empty());
    let path = &format!("{CONNECTIONS}/k");
    cloud.put(path, connection(&json!({"URL": "hidden too"}))).await.ok();

    // This variable could redirect the secret.
    let envs = json!({"envs": [{"name": "HTTPS_PROXY", "value": "http://elsewhere"}]});
    cloud.put("/v0/functions/f", function(&envs)).await.ok();
    let failed = cloud.until("/v0/functions/f", is("FAILED")).await;
    let why = "a server of the hub takes no `spec.runtime.envs`: its connection says all";
    assert_eq!(last_message(&failed), why);
    assert_eq!(machine.until_launched(1).await.len(), 1, "only what has an image has run");
    cloud.delete("/v0/functions/f").await.ok();

    // A connection for which the hub has nothing.
    let model = json!({"metadata": {"name": "m"}, "spec": {"integration": "openai"}});
    cloud.post(CONNECTIONS, model).await.ok();
    let wish = json!({"metadata": {"name": "f"}, "spec": {"integrationConnections": ["m", "k"]}});
    cloud.post("/v0/functions", wish).await.ok();
    let failed = cloud.until("/v0/functions/f", is("FAILED")).await;
    let why = "the hub has no MCP server for connections to `openai`; it has: db, other";
    assert_eq!(last_message(&failed), why);
    let unknown = json!({"metadata": {"name": "n"}, "spec": {"integration": "nothing"}});
    assert!(cloud.post(CONNECTIONS, unknown).await.refused(400).contains("db"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_another_workspace_is_nobody_elses() {
    let (cloud, machine) = cloud().await;
    cloud.post(CONNECTIONS, connection(&json!({"URL": "hidden"}))).await.ok();
    cloud.post("/v0/workspaces", json!({"name": "second"})).await.ok();
    let there = [("x-blaxel-workspace", "second")];
    let post = async |path: &str, body: Value| {
        cloud.call_with(Method::POST, path, &there, Some(body)).await
    };
    let message = post("/v0/functions", function(&json!({}))).await.refused(400);
    assert!(message.contains("does not exist"), "{message}");
    // One with the same name in another workspace is a different one.
    post(CONNECTIONS, connection(&json!({"URL": "theirs"}))).await.ok();
    post("/v0/functions", function(&json!({}))).await.ok();
    let launched = machine.until_launched(1).await;
    assert_eq!(variable(&launched[0], "DATABASE_URL").as_deref(), Some("theirs"));
}

/// The server gets the access token of the connection, and neither of its secrets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_the_hub_finds_an_access_token() {
    let secrets = json!({"CLIENT_ID": {}, "CLIENT_SECRET": {}, "REFRESH_TOKEN": {}});
    let server = json!({"name": "mail", "integration": "mail", "image": IMAGE,
        "entrypoint": {"command": "serve", "env": {"TOKEN": "Bearer ${secrets.ACCESS_TOKEN}"}},
        "form": {"config": {"tokenUrl": {}}, "secrets": secrets}});
    let catalogue: Catalogue = serde_json::from_value(json!({"servers": [server]})).unwrap();
    catalogue.check().unwrap();
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let settings = Settings { catalogue, ..settings() };
    let cloud = Cloud::start_on_machine(machine.clone(), settings).await;
    cloud.routes.answer(|_| Ok((200, json!({"access_token": "at", "expires_in": 9}).to_string())));
    let secret = json!({"CLIENT_ID": "c", "CLIENT_SECRET": "s", "REFRESH_TOKEN": "r-hidden"});
    let config = json!({"tokenUrl": "https://token.example/"});
    let spec = json!({"integration": "mail", "config": config, "secret": secret});
    let wish = json!({"metadata": {"name": "k"}, "spec": spec});
    cloud.post(CONNECTIONS, wish.clone()).await.ok();
    cloud.post("/v0/functions", function(&json!({}))).await.ok();
    cloud.until("/v0/functions/f", is("DEPLOYED")).await;
    let [launch] = &machine.until_launched(1).await[..] else { panic!("one is enough") };
    assert_eq!(variable(launch, "TOKEN").as_deref(), Some("Bearer at"));
    assert!(!format!("{:?}", launch.environment).contains("r-hidden"));

    // Without a token it does not run, and says why.
    cloud.routes.answer(|_| Ok((400, r#"{"error": "invalid_grant"}"#.to_owned())));
    let mut other = wish;
    other["spec"]["secret"]["REFRESH_TOKEN"] = json!("taken back");
    cloud.put(&format!("{CONNECTIONS}/k"), other).await.ok();
    let failed = cloud.until("/v0/functions/f", is("FAILED")).await;
    let why = last_message(&failed);
    assert!(why.contains("connection `k`") && why.contains("invalid_grant"), "{why}");
}
