//! Forks: objects that begin with a snapshot.

use super::snapshots::{cloud, kept, last_message, row, sandbox, to_sandbox};
use crate::common::machine::{IMAGE, variable};
use crate::common::{Answer, Cloud, settings};
use http::Method;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use types::KindName;

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
    // A snapshot of another sandbox.
    let mut other = body;
    other["target_name"] = json!("four");
    cloud.post("/v0/sandboxes/two/fork", other).await.refused(404);
    for bad in ["Two", "", "a/b", "x\u{0}", "-"] {
        cloud.post("/v0/sandboxes/one/fork", to_sandbox(bad)).await.refused(400);
    }
    let shop = json!({"targetType": "application", "targetName": "shop", "customDomain": "a b"});
    let message = cloud.post("/v0/sandboxes/one/fork", shop).await.refused(400);
    assert!(message.contains("`customDomain` must be a domain name"), "{message}");
    assert_eq!(snapshots.ids().len(), 1, "nothing was taken for what is refused");
}

#[tokio::test]
async fn a_fork_keeps_the_secrets_whose_masks_it_is_asked_with() {
    let (cloud, _, machine) = cloud().await;
    let one = cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let mut shown = one["spec"]["runtime"]["envs"].as_array().unwrap().clone();
    shown.push(json!({"name": "MORE", "value": "1"}));
    // Some clients send back only what they were shown, without the mark.
    let bare = json!([{"name": "KEY", "value": "***"}]);
    for (at, (name, envs)) in [("two", json!(shown)), ("three", bare)].into_iter().enumerate() {
        let body = json!({"targetType": "sandbox", "targetName": name, "envs": envs});
        cloud.post("/v0/sandboxes/one/fork", body).await.ok();
        let launch = machine.until_launched(at + 2).await.remove(at + 1);
        assert_eq!(variable(&launch, "KEY").as_deref(), Some("s3cret"), "{name}");
        let made = cloud.get(&format!("/v0/sandboxes/{name}")).await.ok();
        let key = json!({"name": "KEY", "value": "***", "secret": true});
        assert!(made["spec"]["runtime"]["envs"].as_array().unwrap().contains(&key), "{made}");
    }
    let unknown = json!([{"name": "OTHER", "value": "***", "secret": true}]);
    let body = json!({"targetType": "sandbox", "targetName": "four", "envs": unknown});
    cloud.post("/v0/sandboxes/one/fork", body).await.refused(400);
}

#[tokio::test]
async fn a_fork_is_in_the_region_of_its_sandbox_even_if_that_has_another_name_now() {
    let (mut cloud, _, machine) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    cloud.settings.regions[0].name = Some("berlin".into());
    cloud.restart_on(machine).await;
    cloud.post("/v0/sandboxes/one/fork", to_sandbox("two")).await.ok();
    let app = json!({"targetType": "application", "targetName": "app"});
    for _ in ["new", "a revision more"] {
        cloud.post("/v0/sandboxes/one/fork", app.clone()).await.ok();
    }
    for path in ["/v0/sandboxes/two", "/v0/applications/app"] {
        assert_eq!(cloud.get(path).await.ok()["spec"]["region"], "local", "{path}");
    }
    let three = cloud.post("/v0/sandboxes", sandbox("three")).await.ok();
    assert_eq!(three["spec"]["region"], "berlin");
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
    // The snapshot that a revision begins with stays, although its row was deleted.
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
async fn a_fork_to_an_application_that_is_refused_leaves_no_snapshot() {
    let (cloud, snapshots, _) = cloud().await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let wrong = json!({"targetType": "application", "targetName": "app", "port": 70_000});
    for _ in 0..2 {
        cloud.post("/v0/sandboxes/one/fork", wrong.clone()).await.refused(400);
    }
    assert_eq!(cloud.get("/v0/snapshots").await.ok()["data"], json!([]));
    snapshots.until_kept(0).await;
    // One that something else begins with is not touched.
    let answer = cloud.post("/v0/sandboxes/one/fork", to_sandbox("two")).await.ok();
    let mut named = wrong;
    named["snapshotId"] = answer["snapshotId"].clone();
    cloud.post("/v0/sandboxes/one/fork", named).await.refused(400);
    assert_eq!(snapshots.ids().len(), 1);
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

/// Generates bodies from the members that the calls know, with any values.
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

/// Callers cannot delete what forks leave behind, so it must not keep them from new snapshots.
#[tokio::test]
async fn hidden_snapshots_are_not_counted_but_limited() {
    let (snapshots, machine) = kept();
    let quotas = [(KindName::Snapshot, 1)].into();
    let mut settings = control::Settings { quotas, ..settings() };
    settings.snapshots.tidy_every = Duration::from_millis(20);
    let cloud = Cloud::start_on_machine(machine, settings).await;
    cloud.post("/v0/sandboxes", sandbox("one")).await.ok();
    let fork = async |name: &str| cloud.post("/v0/sandboxes/one/fork", to_sandbox(name)).await;
    for number in 0..10 {
        fork(&format!("fork-{number}")).await.ok();
    }
    assert_eq!(snapshots.ids().len(), 10);
    let quotas = cloud.get("/v0/quotas").await.ok();
    let of_snapshots = quotas.as_array().unwrap().iter().find(|it| it["kind"] == "snapshot");
    assert_eq!(of_snapshots.unwrap()["used"], 0, "{quotas}");
    let counted = cloud.get("/v0/workspaces/main?countResources=true").await.ok();
    assert!(counted["resourceCounts"].get("snapshots").is_none(), "{counted}");
    let message = fork("late").await.refused(403);
    assert!(message.contains("delete some of these"), "{message}");
    // Others may begin with a snapshot for some time after the fork that it was taken for.
    cloud.clock.advance_s(700);
    cloud.delete("/v0/sandboxes/fork-0").await.ok();
    snapshots.until_kept(9).await;
    cloud.post("/v0/sandboxes/one/snapshots", json!({})).await.ok();
    cloud.post("/v0/sandboxes/one/snapshots", json!({})).await.refused(403);
}
