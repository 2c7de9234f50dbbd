//! Objects on a machine in real use: a mounted drive, a volume, a template with a version,
//! snapshots and an archive. Nobody from another workspace can reach any of them, by name or by id.

use super::operations::{assert_same, reach};
use super::stage::{ABSENT, Attacker, HOME, HONEST, MARK, Names, Stage, at_home, missing};
use crate::common::builder::PretendedBuilder;
use crate::common::machine::{IMAGE, Pretended};
use crate::common::snapshots::PretendedSnapshots;
use crate::common::volumes::PretendedVolumes;
use crate::common::{Cloud, settings};
use control::drives;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use store::resources;
use types::KindName;
use types::drive_mounts::DriveOrder;
use types::ids::ResourceId;
use types::instance::Outcome;

/// Name of what an attacker has.
const MINE: &str = "mine-alone";

async fn cloud() -> Cloud {
    let volumes = PretendedVolumes::new(100_000);
    let machine = Pretended::new(|_| Ok(Outcome::SUCCESS))
        .with_volumes(&volumes)
        .with_snapshots(&PretendedSnapshots::new(1000));
    let builder = Arc::new(PretendedBuilder::default());
    *builder.volumes.lock() = Some(volumes);
    let mut settings = settings();
    settings.builds.poll = Duration::from_millis(5);
    Cloud::start_building(Arc::new(machine), builder, settings, false).await
}

fn boxed(name: &str) -> Value {
    json!({"metadata": {"name": name, "displayName": MARK}, "spec": {"runtime": {"image": IMAGE}}})
}

async fn id_of(cloud: &Cloud, workspace: &'static str, kind: KindName, name: &str) -> ResourceId {
    let (workspace, name) = (cloud.workspace(workspace).await, name.to_owned());
    let find = move |tx: &mut store::Tx<'_>| resources::find(tx, &workspace, kind, "", &name);
    cloud.store.read(find).await.unwrap().unwrap().id
}

fn order(drive: &str, folder: &str) -> DriveOrder {
    DriveOrder {
        drive_name: drive.into(),
        mount_path: "/mnt/it".into(),
        drive_path: Some(folder.into()),
        ..DriveOrder::default()
    }
}

async fn until_home(cloud: &Cloud, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let asked = async {
        loop {
            let now = at_home(cloud, Method::GET, path, None).await.ok();
            if wanted(&now) {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asked).await.unwrap()
}

/// Gives the honest tenant one of everything that a machine keeps.
async fn furnish(cloud: &Cloud) -> Stage<'_> {
    cloud.post("/v0/workspaces", json!({"name": HOME, "displayName": MARK})).await.ok();
    let post = async |path: &str, body| at_home(cloud, Method::POST, path, Some(body)).await;
    let named =
        |spec: Value| json!({"metadata": {"name": HONEST, "displayName": MARK}, "spec": spec});
    let upload = format!("/v0/volume_templates?upload=true&version={HONEST}");
    let asked = post(&upload, named(json!({"defaultSize": 300}))).await;
    let address = asked.headers["x-blaxel-upload-url"].to_str().unwrap();
    let address = address.strip_prefix("http://localhost:8080").unwrap().to_owned();
    let tar = [("content-type", "application/x-tar")];
    cloud.raw(Method::PUT, &address, &tar, b"data 100".to_vec()).await.ok();
    let template = format!("/v0/volume_templates/{HONEST}");
    until_home(cloud, &template, |it| it["versions"][0]["status"] == "READY").await;
    let of_template = named(json!({"template": format!("{HONEST}:latest")}));
    post("/v0/volumes", of_template).await.ok();
    post("/v0/drives", named(json!({}))).await.ok();
    for name in [HONEST, "archived-thing"] {
        post("/v0/sandboxes", boxed(name)).await.ok();
    }
    let taken = post(&format!("/v0/sandboxes/{HONEST}/snapshots"), json!({"name": HONEST})).await;
    let snapshot = taken.ok()["id"].as_str().unwrap().to_owned();
    post("/v0/sandboxes/archived-thing/archive", Value::Null).await.ok();
    let archive = "/v0/sandboxes/archived-thing";
    until_home(cloud, archive, |it| it["status"] == "ARCHIVED").await;
    let sandbox = id_of(cloud, HOME, KindName::Sandbox, HONEST).await;
    drives::mount(&cloud.control, &sandbox, order(HONEST, "/")).await.unwrap();
    let absent = [("snapshotId", missing("snapshotId", &snapshot))].into();
    let special = [("snapshotId", snapshot)].into();
    let honest = Names { special, other: HONEST };
    Stage { cloud, honest, absent: Names { special: absent, other: ABSENT } }
}

#[tokio::test]
async fn what_a_machine_keeps_is_nobody_elses() {
    let cloud = cloud().await;
    let by_name = furnish(&cloud).await;
    let attackers = Attacker::both(&cloud).await;
    for attacker in &attackers {
        attacker.call(Method::POST, "/v0/sandboxes", Some(boxed(MINE))).await.ok();
        let drive = json!({"metadata": {"name": MINE}, "spec": {}});
        attacker.call(Method::POST, "/v0/drives", Some(drive)).await.ok();
    }
    let before = by_name.seen().await;
    assert!(reach(&by_name, &attackers).await > 200);
    // The same with ids of rows, and with the id of the snapshot where a name may be used.
    for kind in [KindName::Sandbox, KindName::Drive, KindName::Volume, KindName::VolumeTemplate] {
        let id = id_of(&cloud, HOME, kind, HONEST).await.to_string();
        try_words(&cloud, &attackers, &id).await;
    }
    try_words(&cloud, &attackers, &by_name.honest.special["snapshotId"]).await;
    try_words(&cloud, &attackers, HONEST).await;
    assert_same(&before, &by_name.seen().await);
}

/// Uses a word of the honest tenant's wherever a request of an attacker names something, and
/// compares that with a word of the same form that means nothing.
async fn try_words(cloud: &Cloud, attackers: &[Attacker<'_>], word: &str) {
    let nothing = if word == HONEST { ABSENT.to_owned() } else { missing("id", word) };
    for attacker in attackers {
        for (method, path, body) in requests() {
            let ask = async |word: &str| {
                let body = body.as_ref().map(|body| {
                    serde_json::from_str(&body.to_string().replace("WORD", word)).unwrap()
                });
                let path = path.replace("WORD", word);
                let answer = attacker.call(method.clone(), &path, body).await;
                assert!(
                    answer.status.is_client_error(),
                    "{path}: {} {}",
                    answer.status,
                    answer.body
                );
                (answer.status, answer.body.to_string().replace(word, "<word>"))
            };
            let (theirs, absent) = (ask(word).await, ask(&nothing).await);
            assert_eq!(theirs, absent, "{path} tells {} of {word}", attacker.name());
        }
        let workspace = match attacker {
            Attacker::Stranger(_) => "thief",
            Attacker::Neighbour { .. } => "near",
        };
        let mine = id_of(cloud, workspace, KindName::Sandbox, MINE).await;
        for (folder, named) in [("/", word), ("/a/b", word), ("/", "../WORD"), ("/../WORD", MINE)] {
            let ask = async |word: &str| {
                let it = order(&named.replace("WORD", word), &folder.replace("WORD", word));
                let refused = drives::mount(&cloud.control, &mine, it).await.unwrap_err();
                refused.to_string().replace(word, "<word>")
            };
            let ask_absent = async || {
                let named = if named == word { nothing.as_str() } else { named };
                let it = order(&named.replace("WORD", &nothing), &folder.replace("WORD", &nothing));
                let refused = drives::mount(&cloud.control, &mine, it).await.unwrap_err();
                refused.to_string().replace(&nothing, "<word>")
            };
            assert_eq!(ask(word).await, ask_absent().await, "a drive is told of");
        }
        assert_eq!(drives::list(&cloud.control, &mine).await.unwrap(), []);
    }
}

/// Returns an attacker's requests about what is their own, with `WORD`.
fn requests() -> Vec<(Method, String, Option<Value>)> {
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    let mine = format!("/v0/sandboxes/{MINE}");
    let fork = |to: &str| json!({"targetType": to, "targetName": "stolen"});
    let with = |mut body: Value, member: &str| {
        body[member] = json!("WORD");
        Some(body)
    };
    let stolen = |spec: Value| Some(json!({"metadata": {"name": "stolen"}, "spec": spec}));
    let volume = json!([{"name": "WORD", "mountPath": "/data"}]);
    vec![
        (get.clone(), "/v0/snapshots/WORD".into(), None),
        (delete.clone(), "/v0/snapshots/WORD".into(), None),
        (post.clone(), "/v0/snapshots/WORD/fork".into(), Some(fork("sandbox"))),
        (post.clone(), "/v0/snapshots/WORD/fork".into(), Some(fork("application"))),
        (post.clone(), "/v0/snapshots".into(), Some(json!({"source": {"name": "WORD"}}))),
        (post.clone(), format!("{mine}/fork"), with(fork("sandbox"), "snapshotId")),
        (post.clone(), format!("{mine}/fork"), with(fork("application"), "snapshotId")),
        (post.clone(), format!("{mine}/snapshots/WORD/restore"), Some(json!({}))),
        (delete.clone(), format!("{mine}/snapshots/WORD"), None),
        (post.clone(), "/v0/sandboxes/WORD/fork".into(), Some(fork("sandbox"))),
        (post.clone(), "/v0/sandboxes/WORD/snapshots".into(), Some(json!({}))),
        (get.clone(), "/v0/sandboxes/WORD/snapshots".into(), None),
        (post.clone(), "/v0/sandboxes/WORD/archive".into(), Some(json!({}))),
        (post.clone(), "/v0/sandboxes/WORD/unarchive".into(), Some(json!({}))),
        (
            post.clone(),
            "/v0/applications".into(),
            stolen(json!({"image": IMAGE, "snapshot": "WORD"})),
        ),
        (post.clone(), "/v0/volumes".into(), stolen(json!({"template": "WORD:latest"}))),
        (
            post,
            "/v0/sandboxes".into(),
            stolen(json!({"runtime": {"image": IMAGE}, "volumes": volume})),
        ),
        (get.clone(), "/v0/volumes/WORD".into(), None),
        (delete.clone(), "/v0/volumes/WORD".into(), None),
        (get.clone(), "/v0/volume_templates/WORD".into(), None),
        (delete.clone(), "/v0/volume_templates/WORD/versions/WORD".into(), None),
        (get, "/v0/drives/WORD".into(), None),
        (delete.clone(), "/v0/drives/WORD/folders?path=/a".into(), None),
        (delete, "/v0/drives/WORD".into(), None),
    ]
}
