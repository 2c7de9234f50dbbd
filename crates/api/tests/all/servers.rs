//! Servers of one installation, each with a machine and addresses of its own.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::machine::{IMAGE, PASSWORD, PRIVATE, Pretended};
use crate::common::{Cloud, settings};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use types::edge::Serving;
use types::instance::Outcome;

const PATHS: [&str; 5] = [
    "/v0/sandboxes/box",
    "/v0/agents/one",
    "/v0/functions/one",
    "/v0/applications/one",
    "/v0/sandboxes/box/previews/one",
];

/// Starts the server on this machine in place of the one before.
async fn turn_to(cloud: &mut Cloud, name: &'static str, machine: &Arc<Pretended>) {
    cloud.settings.public_url = format!("http://{name}.test:8700");
    cloud.settings.content_url = format!("http://{name}.test:8701");
    cloud.restart_on(machine.clone()).await;
}

fn url(object: &Value) -> &str {
    object["metadata"]["url"].as_str().or(object["spec"]["url"].as_str()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workload_is_found_at_the_server_on_whose_machine_it_runs() {
    let [first, second] = ["first", "second"]
        .map(|name| Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).named(name)));
    let mut cloud = Cloud::start_on_machine(first.clone(), settings()).await;
    turn_to(&mut cloud, "a", &first).await;
    for path in &PATHS[..4] {
        let spec = match path.contains("applications") {
            true => json!({"image": IMAGE}),
            false => json!({"runtime": {"image": IMAGE, "memory": 512}}),
        };
        let (list, name) = path.rsplit_once('/').unwrap();
        cloud.post(list, json!({"metadata": {"name": name}, "spec": spec})).await.ok();
        cloud.until(path, |it| it["status"] == "DEPLOYED").await;
    }
    let preview = json!({"metadata": {"name": "one"}, "spec": {"port": 3000, "public": true}});
    cloud.post("/v0/sandboxes/box/previews", preview).await.ok();

    turn_to(&mut cloud, "b", &second).await;
    for path in PATHS {
        let found = cloud.get(path).await.ok();
        assert!(url(&found).contains("a.test:870"), "{path}: {found}");
    }
    let why = "runs on another machine of this installation: ask http://a.test:8700".to_owned();
    let off = Serving::Off { why };
    for name in ["box", "one"] {
        cloud.routes.until(name, |route| route.serving == off).await;
    }
    let wish = json!({"metadata": {"name": "two"}, "spec": {"runtime": {"image": IMAGE}}});
    cloud.post("/v0/sandboxes", wish).await.ok();
    let two = cloud.until("/v0/sandboxes/two", |it| it["status"] == "DEPLOYED").await;
    assert!(url(&two).starts_with("http://b.test:8700/"), "{two}");

    // While the other machine is away, nobody waits here for what it has to start again.
    let runtime = json!({"image": IMAGE, "memory": 512, "envs": [{"name": "A", "value": "b"}]});
    let changed = json!({"metadata": {"name": "box"}, "spec": {"runtime": runtime}});
    cloud.put("/v0/sandboxes/box", changed).await.ok();
    turn_to(&mut cloud, "b", &second).await;
    let wish = json!({"metadata": {"name": "three"}, "spec": {"runtime": {"image": IMAGE}}});
    cloud.post("/v0/sandboxes", wish).await.ok();
    cloud.routes.until("three", |_| true).await;
    assert_eq!(cloud.get("/v0/sandboxes/box").await.ok()["status"], "DEPLOYING");
    cloud.routes.until("box", |route| route.serving == off).await;

    // Now the first is reached elsewhere.
    turn_to(&mut cloud, "c", &first).await;
    turn_to(&mut cloud, "b", &second).await;
    let found = cloud.get("/v0/sandboxes/box").await.ok();
    assert!(url(&found).starts_with("http://c.test:8700/"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_machine_names_the_one_that_runs_what_is_made_there() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).named("first"));
    let mut cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    turn_to(&mut cloud, "a", &machine).await;
    cloud.settings.public_url = "http://b.test:8700".into();
    cloud.settings.content_url = "http://b.test:8701".into();
    let _running = cloud.turn_to_one_without_machine().await;
    for path in &PATHS[..4] {
        let key = [("idempotency-key", *path)];
        let spec = match path.contains("applications") {
            true => json!({"image": IMAGE}),
            false => json!({"runtime": {"image": IMAGE, "memory": 512}}),
        };
        let (list, name) = path.rsplit_once('/').unwrap();
        let wish = json!({"metadata": {"name": name}, "spec": spec});
        for _ in ["made", "told again"] {
            let made = cloud.call_with(Method::POST, list, &key, Some(wish.clone())).await.ok();
            assert!(url(&made).contains("a.test:870"), "{path}: {made}");
        }
    }
    let again = json!({"metadata": {"name": "box"}, "spec": {"runtime": {"image": IMAGE}}});
    let found = cloud.post("/v0/sandboxes?createIfNotExist=true", again).await.ok();
    assert!(url(&found).contains("a.test:8700"), "{found}");
    let why = "runs on another machine of this installation: ask http://a.test:8700".to_owned();
    let off = Serving::Off { why };
    for name in ["box", "one"] {
        cloud.routes.until(name, |route| route.serving == off).await;
    }
    // Nobody takes what is not to run, so nobody waits for that.
    let spec = json!({"enabled": false, "runtime": {"image": IMAGE}});
    let rests = json!({"metadata": {"name": "rests"}, "spec": spec});
    let made = cloud.post("/v0/sandboxes", rests).await.ok();
    assert!(url(&made).contains("b.test:8700"), "{made}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_notices_one_that_joins_later() {
    let [first, second] = ["first", "second"]
        .map(|name| Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).named(name)));
    let mut cloud = Cloud::start_on_machine(first.clone(), settings()).await;
    let before = (cloud.router.clone(), cloud.control.clone());
    turn_to(&mut cloud, "later", &second).await;
    let wish = json!({"metadata": {"name": "one"}, "spec": {"runtime": {"image": IMAGE}}});
    cloud.post("/v0/sandboxes", wish).await.ok();
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    (cloud.router, cloud.control) = before;
    let ending = tokio_util::sync::CancellationToken::new();
    drop(control::start(&cloud.control, &ending));
    let _running = ending.drop_guard();
    let named = |it: &Value| url(it).starts_with("http://later.test:8700/");
    cloud.until("/v0/sandboxes/one", named).await;
    let why = "runs on another machine of this installation: ask http://later.test:8700".to_owned();
    let off = Serving::Off { why };
    cloud.routes.until("one", |route| route.serving == off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_that_did_not_start_on_one_machine_may_start_on_another() {
    let [first, second] = ["first", "second"]
        .map(|name| Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).named(name)));
    let mut cloud = Cloud::start_on_machine(first.clone(), settings()).await;
    turn_to(&mut cloud, "a", &first).await;
    let mut wish = json!({"metadata": {"name": "box"}, "spec": {"runtime": {"image": PRIVATE}}});
    cloud.post("/v0/sandboxes", wish.clone()).await.ok();
    cloud.until("/v0/sandboxes/box", |it| it["status"] == "FAILED").await;
    let preview = json!({"metadata": {"name": "one"}, "spec": {"port": 3000, "public": true}});
    cloud.post("/v0/sandboxes/box/previews", preview).await.ok();

    turn_to(&mut cloud, "b", &second).await;
    wish["spec"]["runtime"]["dockerConfig"] = json!(PASSWORD);
    cloud.put("/v0/sandboxes/box", wish).await.ok();
    cloud.until("/v0/sandboxes/box", |it| it["status"] == "DEPLOYED").await;

    turn_to(&mut cloud, "a", &first).await;
    for path in ["/v0/sandboxes/box", "/v0/sandboxes/box/previews/one"] {
        let found = cloud.get(path).await.ok();
        assert!(url(&found).contains("b.test:870"), "{path}: {found}");
    }
}
