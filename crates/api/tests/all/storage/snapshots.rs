//! Snapshots of sandboxes, on a pretended machine.

use crate::common::machine::{IMAGE, Pretended};
use crate::common::snapshots::PretendedSnapshots;
use crate::common::volumes::PretendedVolumes;
use crate::common::{Cloud, settings};
use control::machine::{LaunchFault, Machine};
use http::Method;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use types::KindName;
use types::ids::ResourceId;
use types::instance::Outcome;

/// Returns a machine that keeps as many snapshots as a test needs.
pub(crate) fn kept() -> (PretendedSnapshots, Arc<Pretended>) {
    let snapshots = PretendedSnapshots::new(1000);
    let volumes = PretendedVolumes::new(10_000);
    let machine = Pretended::new(|_| Ok(Outcome::SUCCESS));
    let machine = machine.with_snapshots(&snapshots).with_volumes(&volumes);
    (snapshots, Arc::new(machine))
}

pub(crate) async fn cloud() -> (Cloud, PretendedSnapshots, Arc<Pretended>) {
    let (snapshots, machine) = kept();
    let mut settings = settings();
    settings.snapshots.tidy_every = Duration::from_millis(20);
    settings.snapshots.pending_max = 2;
    (Cloud::start_on_machine(machine.clone(), settings).await, snapshots, machine)
}

pub(crate) fn sandbox(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"of": name}}, "spec": {"runtime": {
        "image": IMAGE, "memory": 512, "storageMb": 300, "ports": [{"target": 3000}],
        "envs": [{"name": "KEY", "value": "s3cret", "secret": true}, {"name": "A", "value": "1"}],
    }}})
}

pub(crate) fn to_sandbox(name: &str) -> Value {
    json!({"targetType": "sandbox", "targetName": name})
}

pub(crate) fn last_message(object: &Value) -> String {
    let events = object["events"].as_array().unwrap();
    events.last().unwrap()["message"].as_str().unwrap().to_owned()
}

/// Returns the id of a snapshot's row.
pub(crate) fn row(snapshot: &Value) -> ResourceId {
    ResourceId::known(snapshot["id"].as_str().unwrap().replace("snap_", "res_"))
}

#[tokio::test]
async fn a_snapshot_is_ready_when_it_is_answered_and_outlives_its_sandbox() {
    // Each has its own machine: a control plane removes what is on its machine but not in its
    // store.
    let own = RefCell::new(Vec::new());
    let machine = || {
        let (snapshots, machine) = kept();
        own.borrow_mut().insert(0, snapshots);
        machine as Arc<dyn Machine>
    };
    let clouds = Cloud::start_on_machines(machine).await;
    // The second machine is made first.
    for (cloud, snapshots) in clouds.into_iter().zip(own.into_inner()) {
        cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
        let made = cloud.post("/v0/sandboxes/one/snapshots", json!({"name": "before"})).await.ok();
        assert_eq!((&made["status"], &made["name"]), (&json!("ready"), &json!("before")));
        assert_eq!((&made["sandboxName"], &made["workspace"]), (&json!("one"), &json!("main")));
        assert_eq!(made["source"], json!({"kind": "sandbox", "name": "one", "deleted": false}));
        assert_eq!(made["spec"]["memory"], 512);
        assert!(!made.to_string().contains("s3cret"), "{made}");
        assert!(made.get("origin").is_none(), "{made}");
        assert!(made["id"].as_str().unwrap().starts_with("snap_"), "{made}");
        assert_eq!(snapshots.ids(), [row(&made)]);
        let said = last_message(&cloud.get("/v0/sandboxes/one").await.ok());
        assert!(said.contains("not its memory and processes"), "{said}");
        let again = cloud.post("/v0/sandboxes/one/snapshots", json!({"name": "before"})).await;
        again.refused(409);
        let unnamed = cloud.post("/v0/snapshots", json!({"source": {"name": "one"}})).await.ok();
        assert_eq!(unnamed["name"], unnamed["id"]);
        let listed = cloud.get("/v0/sandboxes/one/snapshots").await.ok();
        assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
        cloud.delete("/v0/sandboxes/one").await.ok();
        let all = cloud.get("/v0/snapshots").await.ok();
        assert_eq!(all["data"].as_array().unwrap().len(), 2, "{all}");
        assert_eq!(all["data"][0]["source"]["deleted"], true, "{all}");
        let id = made["id"].as_str().unwrap();
        assert_eq!(cloud.get(&format!("/v0/snapshots/{id}")).await.ok()["id"], id);
        assert_eq!(cloud.get("/v0/snapshots/before").await.ok()["id"], id);
        // The sandbox that has this name now is another one.
        cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
        assert_eq!(cloud.get("/v0/sandboxes/one/snapshots").await.ok(), json!([]));
        cloud.delete(&format!("/v0/sandboxes/one/snapshots/{id}")).await.refused(404);
        for path in [
            format!("/v0/snapshots/{id}"),
            format!("/v0/snapshots/{}", unnamed["id"].as_str().unwrap()),
        ] {
            assert_eq!(cloud.delete(&path).await.status, 204);
            cloud.get(&path).await.refused(404);
        }
        snapshots.until_kept(0).await;
    }
}

#[tokio::test]
async fn files_that_allow_no_snapshot_are_a_mistake_of_the_caller() {
    let (cloud, snapshots, _) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    snapshots.refuse("more than 7 files");
    for (path, body) in
        [("/v0/sandboxes/one/snapshots", json!({})), ("/v0/sandboxes/one/fork", to_sandbox("two"))]
    {
        let message = cloud.post(path, body).await.refused(400);
        assert!(message.contains("more than 7 files"), "{path}: {message}");
    }
    assert_eq!(cloud.get("/v0/snapshots").await.ok()["meta"]["total"], 0);
    cloud.get("/v0/sandboxes/two").await.refused(404);
}

#[tokio::test]
async fn what_cannot_be_taken_says_why_and_leaves_nothing_pending() {
    let snapshots = PretendedSnapshots::new(1);
    let machine = Pretended::new(|_| Ok(Outcome::SUCCESS)).with_snapshots(&snapshots);
    let cloud = Cloud::start_on_machine(Arc::new(machine), settings()).await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    cloud.post("/v0/sandboxes/one/snapshots", json!({})).await.ok();
    let message = cloud.post("/v0/sandboxes/one/snapshots", json!({})).await.refused(403);
    assert!(message.contains("at most 1 snapshots"), "{message}");
    cloud.post("/v0/sandboxes/one/fork", to_sandbox("two")).await.refused(403);
    cloud.get("/v0/sandboxes/two").await.refused(404);
    assert_eq!(cloud.get("/v0/snapshots").await.ok()["meta"]["total"], 1);
    let said = last_message(&cloud.get("/v0/sandboxes/one").await.ok());
    assert!(said.contains("could not be taken"), "{said}");
    for (path, body, status) in [
        ("/v0/sandboxes/none/snapshots", json!({}), 404),
        ("/v0/snapshots", json!({}), 400),
        ("/v0/snapshots", json!({"source": {"name": ""}}), 400),
        ("/v0/snapshots", json!({"source": {"name": "none"}}), 404),
        ("/v0/snapshots", json!({"source": {"name": "one", "kind": "job"}}), 400),
        ("/v0/snapshots", json!({"name": "x".repeat(64), "source": {"name": "one"}}), 400),
        ("/v0/sandboxes/one/snapshots", json!({"name": ".."}), 400),
        ("/v0/sandboxes/one/snapshots", json!({"name": "a\u{9b}2J"}), 400),
        ("/v0/snapshots/none/fork", to_sandbox("two"), 404),
        ("/v0/sandboxes/one/snapshots/none/restore", json!({}), 404),
    ] {
        cloud.post(path, body).await.refused(status);
    }
    cloud.get(&format!("/v0/snapshots/{}", "x".repeat(300))).await.refused(404);
}

#[tokio::test]
async fn a_name_that_means_several_snapshots_means_none() {
    let (cloud, snapshots, _) = cloud().await;
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        cloud.post("/v0/sandboxes", sandbox(name)).await.ok();
        let taken = format!("/v0/sandboxes/{name}/snapshots");
        let made = cloud.post(&taken, json!({"name": "before"})).await.ok();
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    let message = cloud.delete("/v0/snapshots/before").await.refused(409);
    assert!(message.contains("by its id"), "{message}");
    cloud.get("/v0/snapshots/before").await.refused(409);
    cloud.post("/v0/snapshots/before/fork", to_sandbox("three")).await.refused(409);
    assert_eq!(snapshots.ids().len(), 2);
    // With the sandbox, or once there is one only, it is clear which is meant.
    assert_eq!(cloud.delete("/v0/sandboxes/two/snapshots/before").await.status, 204);
    assert_eq!(cloud.get("/v0/snapshots/before").await.ok()["id"], ids[0]);
}

#[tokio::test]
async fn a_workspace_has_so_many_pending() {
    let (cloud, snapshots, _) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    snapshots.close();
    let take = || cloud.post("/v0/sandboxes/one/snapshots", json!({}));
    let more = async {
        snapshots.until_taken(2).await;
        let pending = cloud.get("/v0/sandboxes/one/snapshots").await.ok();
        assert_eq!(
            (&pending[0]["status"], &pending[1]["status"]),
            (&json!("pending"), &json!("pending"))
        );
        let id = pending[0]["id"].as_str().unwrap();
        let early = json!({"targetType": "sandbox", "targetName": "two", "snapshotId": id});
        cloud.post("/v0/sandboxes/one/fork", early).await.refused(409);
        let message = take().await.refused(403);
        snapshots.open();
        message
    };
    let (one, two, message) = tokio::join!(take(), take(), more);
    assert!(message.contains("2 snapshots"), "{message}");
    assert_eq!(
        (one.ok()["status"].clone(), two.ok()["status"].clone()),
        (json!("ready"), json!("ready"))
    );
}

#[tokio::test]
async fn a_kill_leaves_no_snapshot_pending() {
    let (mut cloud, snapshots, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let mut ids = Vec::new();
    for name in ["taken", "lost"] {
        let made = cloud.post("/v0/sandboxes/one/snapshots", json!({"name": name})).await.ok();
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    let lost = ids[1].clone();
    cloud.restart().await;
    for id in ids {
        let id: &'static str = id.leak();
        cloud.tell(KindName::Snapshot, "", id, json!({"status": "pending"})).await;
    }
    let left = ResourceId::known("res_left");
    snapshots.leave(&left);
    control::snapshot_store::SnapshotStore::remove(
        &snapshots,
        &ResourceId::known(lost.replace("snap_", "res_")),
    )
    .await
    .unwrap();
    cloud.restart_on(machine).await;
    let path = format!("/v0/snapshots/{lost}");
    let failed = cloud.until(&path, |it| it["status"] != "pending").await;
    assert_eq!(failed["status"], "failed");
    assert!(failed["message"].as_str().unwrap().contains("was stopped"), "{failed}");
    cloud.until("/v0/snapshots/taken", |it| it["status"] == "ready").await;
    snapshots.until_kept(1).await;
    let refusal = json!({"targetType": "sandbox", "targetName": "two", "snapshotId": lost});
    cloud.post("/v0/sandboxes/one/fork", refusal).await.refused(409);
    assert_eq!(cloud.delete(&path).await.status, 204);
}

#[tokio::test]
async fn a_snapshot_is_billed_until_its_bytes_are_gone() {
    let (cloud, snapshots, _) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let made = cloud.post("/v0/sandboxes/one/snapshots", json!({})).await.ok();
    cloud.clock.advance_s(100);
    cloud.delete(&format!("/v0/snapshots/{}", made["id"].as_str().unwrap())).await;
    snapshots.until_kept(0).await;
    cloud.clock.advance_s(1_000);
    let path = format!(
        "/v0/accounts/{}/metrics?startTime=2026-04-01T00:00:00Z&endTime=2026-05-01T00:00:00Z\
         &groupBy=billing_dimension&resourceName=one",
        cloud.first.account
    );
    let answer = cloud.get(&path).await.ok();
    let groups = answer["data"].as_array().unwrap();
    let of_snapshots =
        groups.iter().find(|group| group["billingDimension"] == "sandbox_snapshot_storage_gbs");
    let usage = of_snapshots.unwrap()["summary"]["usage"].as_f64().unwrap();
    assert!((100.0..115.0).contains(&usage), "100 s of 1 GB: {answer}");
}

#[tokio::test]
async fn a_key_takes_one_snapshot_and_makes_one_fork() {
    let (cloud, snapshots, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let with = async |path: &str, key: &str, body: Value| {
        cloud.call_with(Method::POST, path, &[("idempotency-key", key)], Some(body)).await
    };
    let path = "/v0/sandboxes/one/snapshots";
    snapshots.close();
    let opened = async {
        snapshots.until_taken(1).await;
        snapshots.open();
    };
    // Both at the same time, and once more afterwards.
    let (first, second, ()) =
        tokio::join!(with(path, "k1", json!({})), with(path, "k1", json!({})), opened);
    let third = with(path, "k1", json!({})).await;
    assert_eq!(third.headers["idempotent-replayed"], "true");
    let (first, second, third) = (first.ok(), second.ok(), third.ok());
    assert_eq!((&first["status"], &first), (&json!("ready"), &second));
    assert_eq!((first["id"].clone(), snapshots.ids().len()), (third["id"].clone(), 1));
    with(path, "k1", json!({"name": "x"})).await.refused(409);

    let fork = "/v0/sandboxes/one/fork";
    let made = with(fork, "k2", to_sandbox("two")).await.ok();
    let again = with(fork, "k2", to_sandbox("two")).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(again.ok(), made);
    assert_eq!((snapshots.ids().len(), machine.launched.borrow().len()), (2, 2));
    with(fork, "k2", to_sandbox("three")).await.refused(409);
    with(fork, "k3", to_sandbox("two")).await.refused(409);

    let to_app = json!({"targetType": "application", "targetName": "app"});
    let from = format!("/v0/snapshots/{}/fork", first["id"].as_str().unwrap());
    let made = with(&from, "k4", to_app.clone()).await.ok();
    assert_eq!(with(&from, "k4", to_app).await.ok(), made);
    let app = cloud.get("/v0/applications/app").await.ok();
    assert_eq!(app["spec"]["revisions"].as_array().unwrap().len(), 1, "{app}");
}

#[tokio::test]
async fn a_key_whose_snapshot_failed_with_the_server_takes_it_anew() {
    let (cloud, _, _) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let take = async || {
        let key = [("idempotency-key", "k")];
        let body = Some(json!({"name": "nightly"}));
        cloud.call_with(Method::POST, "/v0/sandboxes/one/snapshots", &key, body).await
    };
    let first = take().await.ok();
    // What the next start writes about a snapshot that a kill has interrupted.
    let id: &'static str = first["id"].as_str().unwrap().to_owned().leak();
    cloud.tell(KindName::Snapshot, "", id, json!({"status": "failed"})).await;
    let (second, third) = tokio::join!(take(), take());
    let (second, third) = (second.ok(), third.ok());
    assert_eq!((&second["status"], &second["id"]), (&json!("ready"), &third["id"]));
    assert_ne!(second["id"], first["id"]);
    cloud.get(&format!("/v0/snapshots/{id}")).await.refused(404);
    // One that was deleted is not taken again.
    cloud.delete(&format!("/v0/snapshots/{}", second["id"].as_str().unwrap())).await;
    let again = take().await;
    assert!(again.status != 200 || again.body["id"] == second["id"], "{}", again.body);
}

#[tokio::test]
async fn a_key_under_which_nothing_came_about_may_be_used_again() {
    let snapshots = PretendedSnapshots::new(0);
    let machine = Pretended::new(|launch| match launch.snapshot {
        Some(_) => Err(LaunchFault::Full("no memory".into())),
        None => Ok(Outcome::SUCCESS),
    });
    let cloud =
        Cloud::start_on_machine(Arc::new(machine.with_snapshots(&snapshots)), settings()).await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let with = async |path: &str, body: Value| {
        cloud.call_with(Method::POST, path, &[("idempotency-key", "k")], Some(body)).await
    };
    for _ in 0..2 {
        with("/v0/sandboxes/one/snapshots", json!({})).await.refused(403);
    }
    snapshots.allow(1);
    let made = with("/v0/sandboxes/one/snapshots", json!({})).await.ok();
    let fork = format!("/v0/snapshots/{}/fork", made["id"].as_str().unwrap());
    for _ in 0..2 {
        let key = [("idempotency-key", "f")];
        let answer = cloud.call_with(Method::POST, &fork, &key, Some(to_sandbox("two"))).await;
        assert!(answer.status.is_server_error(), "{}", answer.body);
    }
    cloud.get("/v0/sandboxes/two").await.refused(404);
}
