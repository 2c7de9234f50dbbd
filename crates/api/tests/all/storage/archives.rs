//! Archives and restores, and the images that they start from.

use super::snapshots::{cloud, last_message, row, sandbox, to_sandbox};
use crate::common::machine::{IMAGE, Pretended};
use crate::common::snapshots::PretendedSnapshots;
use crate::common::{Cloud, settings};
use control::snapshot_store::SnapshotStore as _;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use types::instance::Outcome;

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
        let message = cloud.post(&path, body).await.refused(400);
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
async fn nothing_begins_with_files_that_the_machine_lost() {
    let (cloud, snapshots, _) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let made = cloud.post("/v0/sandboxes/one/snapshots", json!({"name": "before"})).await.ok();
    let id = made["id"].as_str().unwrap();
    snapshots.lose_files();
    let to_app = json!({"targetType": "application", "targetName": "app"});
    let app = json!({"metadata": {"name": "app"}, "spec": {"image": IMAGE, "snapshot": id}});
    for (path, body) in [
        (format!("/v0/snapshots/{id}/fork"), to_sandbox("two")),
        (format!("/v0/snapshots/{id}/fork"), to_app),
        ("/v0/sandboxes/one/snapshots/before/restore".into(), Value::Null),
        ("/v0/applications".into(), app),
    ] {
        let message = cloud.post(&path, body).await.refused(400);
        assert!(message.contains("does not have the files"), "{path}: {message}");
    }
    for gone in ["/v0/sandboxes/two", "/v0/applications/app"] {
        cloud.get(gone).await.refused(404);
    }
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
    // It looks at the row once more, and again leaves it alone.
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

#[tokio::test]
async fn a_key_archives_unarchives_and_restores_once() {
    let (cloud, snapshots, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    cloud.post("/v0/sandboxes/one/snapshots", json!({"name": "before"})).await.ok();
    let once = async |path: &str| {
        let key = [("idempotency-key", path)];
        cloud.call_with(Method::POST, &format!("/v0/sandboxes/one{path}"), &key, None).await
    };
    let twice = async |path: &str| {
        let first = once(path).await;
        let again = once(path).await;
        assert_eq!(again.headers["idempotent-replayed"], "true");
        (first, again)
    };
    let restore = "/snapshots/before/restore";
    let (first, again) = twice(restore).await;
    assert_eq!(first.ok(), again.ok());
    let deployed = cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    let events = deployed["events"].as_array().unwrap();
    assert_eq!(events.iter().filter(|event| event["type"] == "restore").count(), 1, "{deployed}");

    let (first, again) = twice("/archive").await;
    assert_eq!(first.headers["etag"], again.headers["etag"]);
    assert_eq!(first.ok(), again.ok());
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "ARCHIVED").await;
    let (_, again) = twice("/unarchive").await;
    assert_eq!(again.ok()["status"], "DEPLOYED");
    machine.until_launched(3).await;
    // What the restore began with is gone by now, but the first answer stands.
    let before = snapshots.ids().len();
    assert_eq!(cloud.delete("/v0/snapshots/before").await.status, 204);
    snapshots.until_kept(before - 1).await;
    assert_eq!(once(restore).await.headers["idempotent-replayed"], "true");
}
