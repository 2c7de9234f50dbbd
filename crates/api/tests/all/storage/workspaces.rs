//! Deleting a workspace: nothing of it runs, is kept, is shared or is billed any more.

use super::snapshots::sandbox;
use super::volumes::until_kept;
use crate::common::machine::Pretended;
use crate::common::snapshots::PretendedSnapshots;
use crate::common::volumes::PretendedVolumes;
use crate::common::{Cloud, settings};
use auth::{Denied, Identity};
use control::context::as_admin;
use control::kinds::image::{self, TagContent};
use control::machine::Machine;
use control::workloads::create::{self, NewSandbox};
use control::{Context, Error, engine};
use http::Method;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Tx;
use store::identity::workspaces;
use store::resources;
use types::KindName;
use types::instance::Outcome;
use types::kinds::{Agent, Sandbox};

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

/// Starts one control plane on each database, each with a machine of its own.
pub(super) async fn on_machines() -> Vec<(Cloud, Arc<Pretended>)> {
    let own = RefCell::new(Vec::new());
    let machine = || {
        let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
        own.borrow_mut().insert(0, Arc::clone(&machine));
        machine as Arc<dyn Machine>
    };
    let clouds = Cloud::start_on_machines(machine).await;
    // The second machine is made first.
    clouds.into_iter().zip(own.into_inner()).collect()
}

/// The callers were let in, and then the workspace was deleted.
#[tokio::test]
async fn nothing_is_made_in_a_workspace_that_was_deleted_meanwhile() {
    for (cloud, machine) in on_machines().await {
        cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
        let find = |tx: &mut Tx<'_>| workspaces::find_by_name(tx, "team");
        let team = cloud.store.read(find).await.unwrap().unwrap();
        let member = as_admin(&Arc::new(Identity::system()), &team);
        let context = Context { control: cloud.control.clone(), member };
        cloud.delete("/v0/workspaces/team").await.ok();

        let wish: Sandbox = serde_json::from_value(sandbox("late")).unwrap();
        let new =
            NewSandbox { context: context.clone(), wish, reuse: false, key: None, begins: None };
        let made = create::create(new).await.map(drop);
        let of = context.clone();
        let pushed = move |tx: &mut Tx<'_>| {
            let content = TagContent { digest: format!("sha256:{:064}", 1), size_bytes: 1 };
            image::put_tag(&of, tx, "agent", "bot", "v1", &content).map(drop)
        };
        let pushed = cloud.store.write(pushed).await;
        let agent = move |tx: &mut Tx<'_>| {
            let wish = json!({"metadata": {"name": "bot"}, "spec": {"runtime": {"image": "a"}}});
            let wish: Agent = serde_json::from_value(wish).unwrap();
            engine::create(&context, tx, &[], wish).map(drop)
        };
        let agent = cloud.store.write(agent).await;
        for refused in [made, pushed, agent] {
            assert!(matches!(refused, Err(Error::Denied(Denied::NotMember { .. }))), "{refused:?}");
        }
        let left = cloud.store.read(move |tx| resources::counts(tx, &team.id)).await.unwrap();
        assert_eq!((left, machine.names()), (Vec::new(), Vec::new()));
    }
}

#[tokio::test]
async fn what_a_deleted_workspace_left_behind_is_cleared() {
    for (cloud, machine) in on_machines().await {
        cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
        cloud.post("/v0/sandboxes?workspace=team", sandbox("one")).await.ok();
        cloud.post("/v0/sandboxes?workspace=main", sandbox("one")).await.ok();
        let launched = machine.until_launched(2).await;
        let (team, main) = (cloud.workspace("team").await, cloud.workspace("main").await);
        let of_team = launched.iter().find(|launch| launch.workspace == team.as_str()).unwrap();
        let gone = team.clone();
        // As a deletion did that missed what was made at the same moment.
        cloud.store.write(move |tx| workspaces::delete(tx, &gone, "usr_test")).await.unwrap();
        machine.until_retired(of_team.instance.as_str()).await;
        let left = move |tx: &mut Tx<'_>| {
            let objects = resources::lock_some(tx, &team, KindName::Vpc, 10)?.len();
            Ok::<_, Error>((objects, resources::count(tx, &main, KindName::Sandbox)?))
        };
        assert_eq!(cloud.store.write(left).await.unwrap(), (0, 1));
        cloud.get("/v0/sandboxes/one").await.ok();
    }
}
