//! Runners for workflows of a code host, from the webhook to the execution, with a stand-in for the
//! code host.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed step is a failed test")]

#[expect(dead_code, reason = "the tests of the crate `jobs` use more of it")]
#[path = "../../../jobs/tests/runners/code_host.rs"]
mod code_host;

use crate::common::{Answer, Cloud};
use code_host::{CodeHost, TOKEN};
use hmac::{Hmac, KeyInit, Mac};
use http::Method;
use jobs::runners::{Runners, Settings, WEBHOOK_BYTES_MAX};
use serde_json::{Value, json};
use sha2::Sha256;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

const SECRET: &str = "hook secret";
const PATH: &str = "/v0/webhooks/github/main";

/// Starts a control plane with a runner job and a connection to the code host.
async fn start() -> (Cloud, Runners, CodeHost) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut cloud = Cloud::start().await;
    let host = CodeHost::start(Arc::new(AtomicI64::new(0))).await;
    let settings = Settings { api_url: host.url.clone(), ..Settings::default() };
    let runners = control::workloads::runners(&cloud.control, settings).unwrap();
    let app = api::App::new(cloud.control.clone());
    cloud.router = cloud.router.clone().merge(api::webhooks(runners.clone(), &app));
    let secret = json!({"token": TOKEN, "webhookSecret": SECRET});
    let connection =
        json!({"metadata": {"name": "code"}, "spec": {"integration": "github", "secret": secret}});
    let made = cloud.post("/v0/integrations/connections", connection).await.ok();
    assert!(!made.to_string().contains(TOKEN) && !made.to_string().contains(SECRET));
    let spec = json!({"githubRunner": {"repositories": ["me/repo"]}, "runtime": {"image": "runner:1", "maxRetries": 3}});
    cloud.post("/v0/jobs", json!({"metadata": {"name": "builder"}, "spec": spec})).await.ok();
    (cloud, runners, host)
}

fn sign(body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body);
    mac.finalize()
        .into_bytes()
        .iter()
        .fold("sha256=".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

async fn send(cloud: &Cloud, path: &str, delivery: &str, signature: &str, body: Vec<u8>) -> Answer {
    let headers = [
        ("x-github-event", "workflow_job"),
        ("x-github-delivery", delivery),
        ("x-hub-signature-256", signature),
    ];
    cloud.raw(Method::POST, path, &headers, body).await
}

async fn tell(cloud: &Cloud, runners: &Runners, host: &CodeHost, delivery: &str) {
    let body = host.webhook(11);
    assert_eq!(send(cloud, PATH, delivery, &sign(&body), body).await.status, 200);
    while runners.turn().await.unwrap() > 0 {}
}

async fn executions(cloud: &Cloud) -> Vec<Value> {
    let listed = cloud.get("/v0/jobs/builder/executions").await.ok();
    listed["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_signed_webhook_starts_one_execution_of_the_job_and_another_ends_it() {
    let (cloud, runners, host) = start().await;
    host.queue(11, &["main/builder"]);
    tell(&cloud, &runners, &host, "a").await;
    tell(&cloud, &runners, &host, "a").await;
    let [execution] = executions(&cloud).await.try_into().unwrap();
    let name = execution["metadata"]["id"].as_str().unwrap();
    let execution = cloud.get(&format!("/v0/jobs/builder/executions/{name}")).await.ok();
    assert_eq!(
        execution["spec"]["envOverride"],
        json!({"ACTIONS_RUNNER_INPUT_JITCONFIG": "***"}),
        "{execution}"
    );
    assert_eq!(execution["stats"]["total"], 1, "{execution}");
    assert_eq!(host.runner_names().len(), 1);
    host.complete(11);
    tell(&cloud, &runners, &host, "b").await;
    assert_eq!(host.runner_names(), Vec::<String>::new());
    let [execution] = executions(&cloud).await.try_into().unwrap();
    assert_eq!(execution["status"], "cancelled", "no machine had begun it");
}

#[tokio::test]
async fn a_webhook_that_is_not_signed_right_learns_nothing() {
    let (cloud, runners, host) = start().await;
    host.queue(11, &["main/builder"]);
    let body = host.webhook(11);
    let mut refusals = Vec::new();
    for (path, signature) in
        [(PATH, "sha256=00"), (PATH, ""), ("/v0/webhooks/github/nobody", &sign(&body))]
    {
        let answer = send(&cloud, path, "a", signature, body.clone()).await;
        assert_eq!(answer.status, 401);
        refusals.push((answer.headers, answer.body));
    }
    assert!(refusals.iter().all(|refusal| *refusal == refusals[0]), "{refusals:?}");
    host.state.lock().jobs.clear();
    while runners.turn().await.unwrap() > 0 {}
    assert_eq!(executions(&cloud).await, Vec::<Value>::new());
    cloud.raw(Method::GET, PATH, &[], Vec::new()).await.refused(405);
    send(&cloud, PATH, "a", "", vec![b'x'; WEBHOOK_BYTES_MAX + 1]).await.refused(413);
}
