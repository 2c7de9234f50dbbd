//! Turns to create sandboxes, of which each workspace has a share.

use crate::common::machine::{Pretended, variable};
use crate::common::{Cloud, settings};
use control::machine::Launch;
use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use std::sync::Arc;
use types::instance::Outcome;

async fn create(cloud: &Cloud, workspace: &str, name: &str) {
    let body = json!({
        "metadata": {"name": name},
        "spec": {"runtime": {"image": "holm/python:latest", "memory": 512}},
    });
    let headers = [("x-blaxel-workspace", workspace)];
    cloud.call_with(Method::POST, "/v0/sandboxes", &headers, Some(body)).await.ok();
}

fn of_team(launch: &Launch) -> bool {
    variable(launch, "BL_WORKSPACE").as_deref() == Some("team")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_that_creates_many_sandboxes_leaves_turns_to_another() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    machine.set_held(true);
    let names: Vec<_> = (0..12).map(|number| format!("greedy-{number}")).collect();
    let greedy = join_all(names.iter().map(|name| create(&cloud, "main", name)));
    let others = async {
        machine.until_launched(8).await;
        tokio::join!(create(&cloud, "team", "a"), async {
            let launched = machine.until(|launched| launched.iter().any(of_team)).await;
            assert_eq!(launched.len(), 9, "four of the greedy ones wait");
            machine.set_held(false);
        });
    };
    tokio::join!(greedy, others);
    machine.until_launched(13).await;
}
