//! Turns to start replicas, of which each workspace has a share.

use super::agent;
use crate::common::machine::{Pretended, variable};
use crate::common::{Cloud, settings};
use control::machine::Launch;
use http::Method;
use serde_json::json;
use std::sync::Arc;
use types::instance::Outcome;

async fn cloud(launches_max: usize) -> (Cloud, Arc<Pretended>) {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let mut settings = settings();
    settings.deployments.launches_max = launches_max;
    settings.deployments.workspace_share_percent = 50;
    let cloud = Cloud::start_on_machine(machine.clone(), settings).await;
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    (cloud, machine)
}

async fn deploy(cloud: &Cloud, workspace: &str, name: &str) {
    let mut body = agent(&json!([]));
    body["metadata"]["name"] = json!(name);
    let headers = [("x-blaxel-workspace", workspace)];
    cloud.call_with(Method::POST, "/v0/agents", &headers, Some(body)).await.ok();
}

fn of_team(launch: &Launch) -> bool {
    variable(launch, "BL_WORKSPACE").as_deref() == Some("team")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_whose_replicas_all_wait_leaves_turns_to_another() {
    let (cloud, machine) = cloud(4).await;
    machine.set_held(true);
    for number in 0..6 {
        deploy(&cloud, "main", &format!("greedy-{number}")).await;
    }
    machine.until_launched(2).await;
    deploy(&cloud, "team", "a").await;
    let launched = machine.until(|launched| launched.iter().any(of_team)).await;
    assert_eq!(launched.len(), 3);
    machine.set_held(false);
    machine.until_launched(7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_that_are_not_here_yet_take_no_turns() {
    let (cloud, machine) = cloud(1).await;
    machine.set_unready(Some("main"));
    deploy(&cloud, "main", "a").await;
    machine.until_asked().await;
    deploy(&cloud, "team", "a").await;
    let launched = machine.until_launched(1).await;
    assert!(of_team(&launched[0]));
    machine.set_unready(None);
    machine.until_launched(2).await;
}
