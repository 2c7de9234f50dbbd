//! Deleting a workspace: nothing of it runs, is kept, is shared or is billed any more.

use super::snapshots::sandbox;
use super::volumes::until_kept;
use crate::common::machine::Pretended;
use crate::common::snapshots::PretendedSnapshots;
use crate::common::volumes::PretendedVolumes;
use crate::common::{Cloud, settings};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::KindName;
use types::instance::Outcome;

/// Returns what was used so far, by billing dimension.
async fn usage(cloud: &Cloud) -> BTreeMap<String, f64> {
    let path = format!(
        "/v0/accounts/{}/metrics?startTime=2026-04-01T00:00:00Z&endTime=2026-05-01T00:00:00Z\
         &groupBy=billing_dimension&workspace=team",
        cloud.first.account
    );
    let answer = cloud.get(&path).await.ok();
    let groups = answer["data"].as_array().unwrap().iter();
    let used = |group: &Value| {
        let dimension = group["billingDimension"].as_str().unwrap().to_owned();
        (dimension, group["summary"]["usage"].as_f64().unwrap())
    };
    groups.map(used).collect()
}

/// Gives the workspace `team` a sandbox with a volume, a snapshot of it, and a domain that `main`
/// shares.
async fn furnish(cloud: &Cloud) {
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    let team = async |path: &str, body: Value| {
        cloud.post(&format!("/v0{path}?workspace=team"), body).await.ok()
    };
    team("/volumes", json!({"metadata": {"name": "disk"}, "spec": {"size": 1024}})).await;
    let mut one = sandbox("one");
    one["spec"]["volumes"] = json!([{"name": "disk", "mountPath": "/data"}]);
    team("/sandboxes", one).await;
    let there = "/v0/sandboxes/one?workspace=team";
    cloud.until(there, |it| it["status"] == "DEPLOYED").await;
    team("/sandboxes/one/snapshots", json!({})).await;
    let made =
        team("/customdomains", json!({"metadata": {"name": "example.com"}, "spec": {}})).await;
    for (name, text) in made["spec"]["txtRecords"].as_object().unwrap() {
        cloud.dns.set_text(name, text.as_str().unwrap());
    }
    let verify = "/v0/customdomains/example.com/verify?workspace=team";
    cloud.call(Method::POST, verify, None).await.ok();
    team("/customdomains/example.com/share", json!({"targetWorkspace": "main"})).await;
    cloud.get("/v0/customdomains/example.com?workspace=main").await.ok();
}

#[tokio::test]
async fn nothing_of_a_deleted_workspace_is_billed_kept_or_shared() {
    let (volumes, snapshots) = (PretendedVolumes::new(10_000), PretendedSnapshots::new(1000));
    let machine = Pretended::new(|_| Ok(Outcome::SUCCESS));
    let machine = Arc::new(machine.with_snapshots(&snapshots).with_volumes(&volumes));
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    furnish(&cloud).await;
    cloud.clock.advance_s(10);
    let launched = machine.until_launched(1).await.remove(0);
    cloud.delete("/v0/workspaces/team").await.ok();
    machine.until_retired(launched.instance.as_str()).await;
    until_kept(&volumes, &[]).await;
    snapshots.until_kept(0).await;
    let before = usage(&cloud).await;
    for dimension in ["volume_storage_gbs", "sandbox_snapshot_storage_gbs"] {
        assert!(before[dimension] >= 10.0, "{before:?}");
    }
    assert!(before.keys().any(|dimension| dimension.starts_with("custom_domain")), "{before:?}");
    cloud.clock.advance_s(10_000);
    assert_eq!(usage(&cloud).await, before);
    cloud.get("/v0/customdomains/example.com?workspace=main").await.refused(404);
}

#[tokio::test]
async fn a_deleted_workspace_leaves_the_shares_of_a_domain() {
    for cloud in Cloud::on_both().await {
        let domain = json!({"metadata": {"name": "example.com"}, "spec": {}});
        cloud.post("/v0/customdomains", domain).await.ok();
        cloud.tell(KindName::CustomDomain, "", "example.com", json!({"status": "verified"})).await;
        let share = "/v0/customdomains/example.com/share?workspace=main";
        for _ in ["the first", "another one of the same name"] {
            cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
            cloud.post(share, json!({"targetWorkspace": "team"})).await.ok();
            cloud.delete("/v0/workspaces/team").await.ok();
            assert_eq!(cloud.get(share).await.ok(), json!([]));
        }
    }
}
