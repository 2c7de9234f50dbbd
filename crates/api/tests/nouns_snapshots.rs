//! Snapshots, forks, archives and restores of sandboxes, on a machine that pretends.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod common;

use common::machine::{IMAGE, Pretended, variable};
use common::snapshots::PretendedSnapshots;
use common::volumes::PretendedVolumes;
use common::{Answer, Cloud, settings};
use control::machine::{LaunchFault, Machine};
use control::snapshot_store::SnapshotStore as _;
use http::Method;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use types::KindName;
use types::ids::ResourceId;
use types::instance::Outcome;

/// A machine that keeps as many snapshots as a test needs.
fn kept() -> (PretendedSnapshots, Arc<Pretended>) {
    let snapshots = PretendedSnapshots::new(1000);
    let volumes = PretendedVolumes::new(10_000);
    let machine = Pretended::new(|_| Ok(Outcome::SUCCESS));
    let machine = machine.with_snapshots(&snapshots).with_volumes(&volumes);
    (snapshots, Arc::new(machine))
}

async fn cloud() -> (Cloud, PretendedSnapshots, Arc<Pretended>) {
    let (snapshots, machine) = kept();
    let mut settings = settings();
    settings.snapshots.tidy_every = Duration::from_millis(20);
    settings.snapshots.pending_max = 2;
    (Cloud::start_on_machine(machine.clone(), settings).await, snapshots, machine)
}

fn sandbox(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"of": name}}, "spec": {"runtime": {
        "image": IMAGE, "memory": 512, "storageMb": 300, "ports": [{"target": 3000}],
        "envs": [{"name": "KEY", "value": "s3cret", "secret": true}, {"name": "A", "value": "1"}],
    }}})
}

fn to_sandbox(name: &str) -> Value {
    json!({"targetType": "sandbox", "targetName": name})
}

fn last_message(object: &Value) -> String {
    let events = object["events"].as_array().unwrap();
    events.last().unwrap()["message"].as_str().unwrap().to_owned()
}

/// The row of a snapshot.
fn row(snapshot: &Value) -> ResourceId {
    ResourceId::known(snapshot["id"].as_str().unwrap().replace("snap_", "res_"))
}

#[tokio::test]
async fn a_snapshot_is_ready_when_it_is_answered_and_outlives_its_sandbox() {
    for postgres in [false, true] {
        let (snapshots, machine) = kept();
        let [first, second] =
            Cloud::start_on_machines(|| machine.clone() as Arc<dyn Machine>).await;
        let cloud = if postgres { second } else { first };
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
        // The sandbox of that name now is another one.
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
        ("/v0/snapshots/none/fork", to_sandbox("two"), 404),
        ("/v0/sandboxes/one/snapshots/none/restore", json!({}), 404),
    ] {
        cloud.post(path, body).await.refused(status);
    }
    cloud.get(&format!("/v0/snapshots/{}", "x".repeat(300))).await.refused(404);
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
async fn a_fork_begins_with_the_files_of_a_sandbox_and_is_itself() {
    let (cloud, snapshots, machine) = cloud().await;
    let one = cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let answer = cloud.post("/v0/sandboxes/one/fork", to_sandbox("two")).await.ok();
    assert_eq!((&answer["type"], &answer["name"]), (&json!("sandbox"), &json!("two")));
    let snapshot = answer["snapshotId"].as_str().unwrap().to_owned();
    let launch = machine.until_launched(2).await.remove(1);
    assert_eq!(launch.snapshot, Some(row(&json!({"id": snapshot}))));
    assert_eq!((launch.hostname.as_str(), launch.memory_mb), ("two", 512));
    assert_eq!(launch.storage_mb, Some(300));
    assert_eq!(variable(&launch, "KEY").as_deref(), Some("s3cret"));
    assert_eq!(variable(&launch, "BL_NAME").as_deref(), Some("two"));
    let two = cloud.get("/v0/sandboxes/two").await.ok();
    assert_eq!(two["status"], "DEPLOYED");
    assert_ne!(two["metadata"]["url"], one["metadata"]["url"]);
    assert!(two["metadata"]["labels"].is_null(), "{two}");
    assert!(last_message(&two).contains("files of a snapshot"), "{two}");
    assert_eq!(cloud.get("/v0/snapshots").await.ok()["data"], json!([]), "nobody asked for one");

    cloud.post("/v0/sandboxes/one/fork", to_sandbox("two")).await.refused(409);
    assert_eq!(snapshots.ids().len(), 1, "nothing was taken for what is refused");
    let body = json!({"target_name": "three", "type": "sandbox", "memory": 1024, "port": 4000,
        "traffic": 0, "envs": [{"name": "A", "value": "2"}], "snapshotId": snapshot});
    cloud.post("/v0/sandboxes/one/fork", body.clone()).await.ok();
    let launch = machine.until_launched(3).await.remove(2);
    assert_eq!((launch.memory_mb, launch.snapshot), (1024, Some(row(&json!({"id": snapshot})))));
    let three = cloud.get("/v0/sandboxes/three").await.ok();
    assert_eq!(three["spec"]["runtime"]["ports"].as_array().unwrap().len(), 2, "{three}");
    // Of another sandbox.
    let mut other = body;
    other["target_name"] = json!("four");
    cloud.post("/v0/sandboxes/two/fork", other).await.refused(404);
    for bad in ["Two", "", "a/b", "x\u{0}", "-"] {
        cloud.post("/v0/sandboxes/one/fork", to_sandbox(bad)).await.refused(400);
    }
}

#[tokio::test]
async fn a_fork_begins_with_its_snapshot_again_until_its_image_is_another() {
    let (cloud, snapshots, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let made = cloud.post("/v0/sandboxes/one/snapshots", json!({})).await.ok();
    let id = made["id"].as_str().unwrap();
    cloud.post(&format!("/v0/snapshots/{id}/fork"), to_sandbox("two")).await.ok();
    assert_eq!(cloud.delete(&format!("/v0/snapshots/{id}")).await.status, 204);
    cloud.get(&format!("/v0/snapshots/{id}")).await.refused(404);
    cloud.post(&format!("/v0/snapshots/{id}/fork"), to_sandbox("three")).await.refused(404);
    cloud.delete("/v0/sandboxes/one").await.ok();
    let mut wish = cloud.get("/v0/sandboxes/two").await.ok();
    wish["spec"]["runtime"]["memory"] = json!(1024);
    cloud.put("/v0/sandboxes/two", wish.clone()).await.ok();
    let launch = machine.until_launched(3).await.remove(2);
    assert_eq!(launch.snapshot, Some(row(&made)), "its bytes stay as long as the fork");
    assert_eq!(snapshots.ids(), [row(&made)]);
    cloud.until("/v0/sandboxes/two", |it| it["status"] == "DEPLOYED").await;
    cloud.delete("/v0/sandboxes/two").await.ok();
    snapshots.until_kept(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_forks_of_one_share_what_is_taken() {
    let (cloud, snapshots, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    snapshots.close();
    let fork = |number: u32| {
        let cloud = &cloud;
        async move {
            let body = to_sandbox(&format!("fork-{number}"));
            cloud.post("/v0/sandboxes/one/fork", body).await.ok()["snapshotId"].clone()
        }
    };
    let opened = async {
        snapshots.until_taken(1).await;
        snapshots.open();
    };
    let (ids, ()) = tokio::join!(futures_util::future::join_all((0..100).map(fork)), opened);
    let ids: BTreeSet<String> = ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect();
    assert!(ids.len() <= 3, "{ids:?}");
    assert_eq!(machine.until_launched(101).await.len(), 101);
    let of_forks = machine.launched.borrow().iter().skip(1).all(|launch| launch.snapshot.is_some());
    assert!(of_forks);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_to_an_application_is_a_revision_that_begins_with_a_snapshot() {
    let (cloud, snapshots, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let fork = json!({"targetType": "application", "targetName": "app"});
    let answer = cloud.post("/v0/sandboxes/one/fork", fork.clone()).await.ok();
    assert_eq!(answer["type"], "application");
    let first = answer["snapshotId"].as_str().unwrap().to_owned();
    let launch = machine.until_launched(2).await.remove(1);
    assert_eq!(
        (launch.snapshot.clone(), launch.serves),
        (Some(row(&json!({"id": first}))), Some(3000))
    );
    assert_eq!(variable(&launch, "KEY").as_deref(), Some("s3cret"));
    let app = cloud.until("/v0/applications/app", |it| it["status"] == "DEPLOYED").await;
    assert_eq!(app["spec"]["snapshot"], first.as_str());
    assert_eq!(app["spec"]["revisions"][0]["snapshot"], first.as_str(), "{app}");
    let mut more = fork.clone();
    (more["traffic"], more["port"]) = (json!(10), json!(4000));
    let second = cloud.post("/v0/sandboxes/one/fork", more).await.ok()["snapshotId"].clone();
    let app = cloud.get("/v0/applications/app").await.ok();
    assert_eq!(app["spec"]["revision"]["canaryPercent"], 10, "{app}");
    assert_eq!(app["spec"]["revisions"][0]["snapshot"], second, "{app}");
    assert_ne!(app["spec"]["revision"]["active"], app["spec"]["revision"]["canary"]);
    let launch = machine.until_launched(3).await.remove(2);
    assert_eq!((launch.snapshot, launch.serves), (Some(row(&json!({"id": second}))), Some(4000)));
    // What a revision begins with stays, though its row was deleted.
    assert_eq!(cloud.delete(&format!("/v0/snapshots/{first}")).await.status, 204);
    cloud.get(&format!("/v0/snapshots/{first}")).await.refused(404);
    let mut wish = cloud.get("/v0/applications/app").await.ok();
    wish["spec"]["envs"] = json!([{"name": "B", "value": "1"}]);
    let after = cloud.put("/v0/applications/app", wish).await.ok();
    assert_eq!(after["spec"]["snapshot"], second, "{after}");
    assert_eq!(snapshots.ids().len(), 2);
    let mut stolen = cloud.get("/v0/applications/app").await.ok();
    stolen["spec"]["snapshot"] = json!("snap_unknown");
    cloud.put("/v0/applications/app", stolen).await.refused(404);
    let lost = json!({"targetType": "application", "targetName": "app", "prefix": "p"});
    cloud.post("/v0/sandboxes/one/fork", lost).await.refused(400);
}

#[tokio::test]
async fn another_workspace_sees_and_forks_nothing() {
    let (cloud, _, _) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let made = cloud.post("/v0/sandboxes/one/snapshots", json!({"name": "mine"})).await.ok();
    let id = made["id"].as_str().unwrap();
    cloud.post("/v0/workspaces", json!({"name": "other"})).await.ok();
    let key = format!("Bearer {}", cloud.first.api_key);
    let there = |method: Method, path: String, body: Value| {
        let headers = [
            ("authorization", key.as_str()),
            ("blaxel-version", "2026-04-28"),
            ("x-blaxel-workspace", "other"),
        ];
        let cloud = &cloud;
        async move {
            let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
            let answer: Answer = cloud.raw(method, &path, &headers, body).await;
            answer
        }
    };
    let sandboxes = there(Method::GET, "/v0/snapshots".into(), Value::Null).await;
    if sandboxes.status == 200 {
        assert_eq!(sandboxes.ok()["data"], json!([]));
        there(Method::POST, "/v0/sandboxes".into(), sandbox("one")).await.ok();
        for name in [id, "mine"] {
            let at = format!("/v0/snapshots/{name}");
            there(Method::GET, at.clone(), Value::Null).await.refused(404);
            there(Method::DELETE, at.clone(), Value::Null).await.refused(404);
            there(Method::POST, format!("{at}/fork"), to_sandbox("two")).await.refused(404);
            let restore = format!("/v0/sandboxes/one/snapshots/{name}/restore");
            there(Method::POST, restore, Value::Null).await.refused(404);
            let mut fork = to_sandbox("two");
            fork["snapshotId"] = json!(name);
            there(Method::POST, "/v0/sandboxes/one/fork".into(), fork).await.refused(404);
        }
        let app = json!({"metadata": {"name": "app"}, "spec": {"image": IMAGE, "snapshot": id}});
        there(Method::POST, "/v0/applications".into(), app).await.refused(404);
    } else {
        panic!("the key does not open the other workspace: {}", sandboxes.body);
    }
    let main = [("x-blaxel-workspace", "main")];
    let mine = cloud.call_with(Method::GET, "/v0/snapshots/mine", &main, None).await.ok();
    assert_eq!(mine["id"], id);
}

#[tokio::test]
async fn a_restore_begins_anew_with_the_files_of_a_snapshot() {
    let (cloud, _, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let first = machine.until_launched(1).await.remove(0);
    let made = cloud.post("/v0/sandboxes/one/snapshots", json!({"name": "before"})).await.ok();
    let answer = cloud.post("/v0/sandboxes/one/snapshots/before/restore", Value::Null).await.ok();
    assert_eq!(answer, json!({"name": "one", "snapshotId": made["id"]}));
    machine.until_retired(first.instance.as_str()).await;
    let second = machine.until_launched(2).await.remove(1);
    assert_ne!(second.instance, first.instance);
    assert_eq!(second.snapshot, Some(row(&made)));
    let one = cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    let set_back = one["events"].as_array().unwrap().iter().any(|event| event["type"] == "restore");
    assert!(set_back, "{one}");
}

#[tokio::test]
async fn an_archived_sandbox_has_no_instance_and_comes_back_with_its_files() {
    let (cloud, snapshots, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let first = machine.until_launched(1).await.remove(0);
    cloud.post("/v0/sandboxes/one/unarchive", Value::Null).await.refused(409);
    let archiving = cloud.post("/v0/sandboxes/one/archive", Value::Null).await.ok();
    assert_eq!(archiving["status"], "ARCHIVING");
    let archived = cloud.until("/v0/sandboxes/one", |it| it["status"] == "ARCHIVED").await;
    assert!(archived["archive"]["size"].is_number(), "{archived}");
    machine.until_retired(first.instance.as_str()).await;
    cloud.post("/v0/sandboxes/one/archive", Value::Null).await.refused(409);
    cloud.post("/v0/sandboxes/one/snapshots", json!({})).await.refused(409);
    let mut wish = archived.clone();
    wish["spec"]["runtime"]["memory"] = json!(1024);
    cloud.put("/v0/sandboxes/one", wish).await.refused(409);
    let mut wish = archived;
    wish["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(cloud.put("/v0/sandboxes/one", wish).await.ok()["status"], "ARCHIVED");
    assert_eq!(cloud.get("/v0/snapshots").await.ok()["data"], json!([]));
    let back = cloud.post("/v0/sandboxes/one/unarchive", Value::Null).await.ok();
    assert_eq!(back["status"], "DEPLOYED", "{back}");
    assert!(back["archive"].is_null(), "{back}");
    let second = machine.until_launched(2).await.remove(1);
    assert_eq!(second.snapshot.map(|id| vec![id]), Some(snapshots.ids()));
    assert_ne!(second.instance, first.instance);
}

#[tokio::test]
async fn what_cannot_be_archived_goes_on() {
    let snapshots = PretendedSnapshots::new(0);
    let machine = Pretended::new(|_| Ok(Outcome::SUCCESS)).with_snapshots(&snapshots);
    let cloud = Cloud::start_on_machine(Arc::new(machine), settings()).await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    cloud.post("/v0/sandboxes/one/archive", Value::Null).await.ok();
    let one = cloud.until("/v0/sandboxes/one", |it| it["status"] != "ARCHIVING").await;
    assert_eq!(one["status"], "DEPLOYED", "{one}");
    assert!(last_message(&one).contains("could not be archived"), "{one}");
}

#[tokio::test]
async fn a_service_that_is_away_leaves_a_sandbox_as_it_is() {
    let (cloud, snapshots, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    snapshots.serve(false);
    cloud.post("/v0/sandboxes/one/archive", Value::Null).await.ok();
    let one = cloud.until("/v0/sandboxes/one", |it| it["status"] != "ARCHIVING").await;
    assert_eq!(one["status"], "DEPLOYED", "{one}");
    assert!(last_message(&one).contains("the service is away"), "{one}");
    snapshots.until_kept(0).await;

    snapshots.serve(true);
    cloud.post("/v0/sandboxes/one/archive", Value::Null).await.ok();
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "ARCHIVED").await;
    snapshots.serve(false);
    cloud.post("/v0/sandboxes/one/unarchive", Value::Null).await.ok();
    let one = cloud.until("/v0/sandboxes/one", |it| it["status"] != "UNARCHIVING").await;
    assert_eq!(one["status"], "ARCHIVED", "{one}");
    assert!(last_message(&one).contains("the service is away"), "{one}");
    assert_eq!(snapshots.ids().len(), 1);

    snapshots.serve(true);
    cloud.post("/v0/sandboxes/one/unarchive", Value::Null).await.ok();
    let one = cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    assert!(one["archive"].is_null(), "{one}");
    let second = machine.until_launched(2).await.remove(1);
    assert_eq!(second.snapshot.map(|id| vec![id]), Some(snapshots.ids()));
}

#[tokio::test]
async fn a_restore_changes_nothing_before_the_files_are_there() {
    let (cloud, snapshots, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let taken = cloud.post("/v0/sandboxes/one/snapshots", json!({})).await.ok();
    snapshots.serve(true);
    for id in snapshots.ids() {
        snapshots.offload("any", &id).await.unwrap();
    }
    snapshots.serve(false);
    let id = taken["id"].as_str().unwrap();
    let path = format!("/v0/sandboxes/one/snapshots/{id}/restore");
    let refused = cloud.post(&path, Value::Null).await;
    assert!(refused.status.is_server_error(), "{}", refused.text);
    let one = cloud.get("/v0/sandboxes/one").await.ok();
    assert_eq!(one["status"], "DEPLOYED", "{one}");
    snapshots.serve(true);
    cloud.post(&path, Value::Null).await.ok();
    machine.until_launched(2).await;
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
    // Both at once, and once more afterwards.
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

#[tokio::test]
async fn nothing_begins_with_files_over_an_image_that_is_lost() {
    let (cloud, snapshots, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let made = cloud.post("/v0/sandboxes/one/snapshots", json!({"name": "before"})).await.ok();
    let id = made["id"].as_str().unwrap();
    snapshots.lose_images();
    let to_app = json!({"targetType": "application", "targetName": "app"});
    let app = json!({"metadata": {"name": "app"}, "spec": {"image": IMAGE, "snapshot": id}});
    for (path, body) in [
        (format!("/v0/snapshots/{id}/fork"), to_sandbox("two")),
        (format!("/v0/snapshots/{id}/fork"), to_app),
        ("/v0/sandboxes/one/snapshots/before/restore".into(), Value::Null),
        ("/v0/applications".into(), app),
    ] {
        let message = cloud.post(&path, body).await.refused(409);
        assert!(message.contains("over another image"), "{path}: {message}");
    }
    let one = cloud.get("/v0/sandboxes/one").await.ok();
    assert_eq!(one["status"], "DEPLOYED", "a restore that is refused changes nothing: {one}");
    for gone in ["/v0/sandboxes/two", "/v0/applications/app"] {
        cloud.get(gone).await.refused(404);
    }
    assert_eq!(machine.names().len(), 1, "{:?}", machine.names());
}

#[tokio::test]
async fn an_archive_comes_back_on_the_machine_that_keeps_it() {
    let (mut cloud, snapshots, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    cloud.post("/v0/sandboxes/one/archive", Value::Null).await.ok();
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "ARCHIVED").await;
    let first = machine.until_launched(1).await.remove(0);
    machine.until_retired(first.instance.as_str()).await;

    // Another server on the same database, whose machine has none of it.
    let empty = PretendedSnapshots::new(10);
    let other = Pretended::new(|_| Ok(Outcome::SUCCESS)).named("other").with_snapshots(&empty);
    let other = Arc::new(other);
    cloud.restart_on(other.clone()).await;
    let asked = cloud.post("/v0/sandboxes/one/unarchive", Value::Null).await.ok();
    assert_eq!(asked["status"], "UNARCHIVING", "{asked}");
    // It looks at the row once more, and leaves it alone again.
    cloud.restart_on(other.clone()).await;
    cloud.post("/v0/sandboxes", sandbox("two")).await.ok();
    cloud.until("/v0/sandboxes/two", |it| it["status"] == "DEPLOYED").await;
    let launched = other.launched.borrow().iter().filter(|it| it.snapshot.is_some()).count();
    assert_eq!(
        (launched, cloud.get("/v0/sandboxes/one").await.ok()["status"].clone()),
        (0, json!("UNARCHIVING"))
    );

    cloud.restart_on(machine.clone()).await;
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    let second = machine.until_launched(2).await.remove(1);
    assert_eq!(second.snapshot.map(|id| vec![id]), Some(snapshots.ids()));
}

/// Bodies out of the members that the calls know, with any values.
fn any_body() -> impl Strategy<Value = Value> {
    let value = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..200i64).prop_map(Value::from),
        "\\PC{0,70}".prop_map(Value::from),
        prop::sample::select(vec!["one", "sandbox", "application", "a.example", "snap_x", "../x"])
            .prop_map(Value::from),
        "[a-z]{1,8}".prop_map(|name| json!({"name": name, "kind": "sandbox"})),
        "[A-Z]{0,4}".prop_map(|name| json!([{"name": name, "value": "1"}])),
    ];
    let member = prop::sample::select(vec![
        "name",
        "source",
        "targetName",
        "target_name",
        "targetType",
        "type",
        "snapshotId",
        "port",
        "traffic",
        "memory",
        "customDomain",
        "prefix",
        "envs",
        "lifecycle",
    ]);
    let known = (0..3u8).prop_map(|sort| match sort {
        0 => json!({}),
        1 => json!({"targetType": "sandbox", "targetName": "two"}),
        _ => json!({"targetType": "application", "targetName": "app"}),
    });
    (known, prop::collection::vec((member, value), 0..4)).prop_map(|(mut body, members)| {
        for (member, value) in members {
            body[member] = value;
        }
        body
    })
}

#[tokio::test]
async fn any_body_is_taken_or_refused() {
    let (cloud, _, _) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let mut runner = TestRunner::deterministic();
    for _ in 0..100 {
        let body = any_body().new_tree(&mut runner).unwrap().current();
        for path in [
            "/v0/sandboxes/one/snapshots",
            "/v0/snapshots",
            "/v0/sandboxes/one/fork",
            "/v0/snapshots/none/fork",
        ] {
            let answer = cloud.post(path, body.clone()).await;
            assert!(answer.status.as_u16() < 500, "{path} {body}: {}", answer.body);
        }
    }
    let left = cloud.get("/v0/sandboxes/one/snapshots").await.ok();
    let settled = left.as_array().unwrap().iter().all(|snapshot| snapshot["status"] == "ready");
    assert!(settled, "{left}");
}
