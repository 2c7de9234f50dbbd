//! Volumes, templates, drives and images.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod common;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::machine::{IMAGE, Pretended};
use common::volumes::{BUSY, DRIVE_MB, PretendedVolumes, REFUSED};
use common::{Cloud, settings};
use control::drives;
use control::machine::Machine;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use store::resources;
use types::drive_mounts::{DriveOrder, DriveRefusal, MountedDrive};
use types::ids::ResourceId;
use types::instance::{KeptFor, Outcome, VolumeName};
use types::{KindName, Timestamp};

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {}})
}

fn holder(name: &str, volume: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"volumes": [{"name": volume, "mountPath": "/data"}]}})
}

impl Cloud {
    /// An image with two tags, as a build leaves it.
    async fn image(&self, name: &'static str) {
        let workspace = self.workspace("main").await;
        let work = move |tx: &mut store::Tx<'_>| {
            let now = Timestamp::from_ms(1_776_300_000_000);
            let tags = json!({"tags": [{"name": "v1"}, {"name": "v2"}], "size": 10});
            let wish = json!({"metadata": {"name": name, "resourceType": "agent"}, "spec": {}});
            let image = resources::Stored {
                id: ResourceId::new(tx.world()),
                workspace: workspace.clone(),
                kind: KindName::Image,
                parent: "agent".into(),
                name: name.into(),
                external_id: None,
                status: None,
                search: name.into(),
                wish: wish.to_string(),
                state: json!({"tags": tags["tags"], "size": 10}).to_string(),
                seal_key: None,
                version: 0,
                created_at: now,
                updated_at: now,
                created_by: "a build".into(),
                updated_by: "a build".into(),
            };
            resources::insert(tx, image).map(drop)
        };
        self.store.write(work).await.unwrap();
    }
}

#[tokio::test]
async fn a_volume_belongs_to_one_sandbox_as_long_as_that_lives() {
    for cloud in Cloud::on_both().await {
        cloud.post("/v0/volumes", named("disk")).await.ok();
        let attached_to =
            async || cloud.get("/v0/volumes/disk").await.ok()["state"]["attachedTo"].clone();
        assert!(attached_to().await.is_null());
        cloud.post("/v0/sandboxes", holder("one", "none")).await.refused(400);
        cloud.post("/v0/sandboxes", holder("one", "disk")).await.ok();
        assert_eq!(attached_to().await, "sandbox:one");
        let message = cloud.post("/v0/sandboxes", holder("two", "disk")).await.refused(409);
        assert!(message.contains("sandbox:one"), "{message}");
        cloud.get("/v0/sandboxes/two").await.refused(404);
        cloud.delete("/v0/volumes/disk").await.refused(409);
        let read = cloud.get("/v0/sandboxes/one").await.ok();
        cloud.put("/v0/sandboxes/one", read).await.ok();
        cloud.delete("/v0/sandboxes/one").await.ok();
        assert!(attached_to().await.is_null());
        cloud.post("/v0/sandboxes", holder("two", "disk")).await.ok();
        cloud.delete("/v0/sandboxes/two").await.ok();
        cloud.delete("/v0/volumes/disk").await.ok();
    }
}

#[tokio::test]
async fn a_volume_only_grows() {
    let cloud = Cloud::start().await;
    let sized = |size: i64| json!({"metadata": {"name": "disk", "externalId": "d-1"}, "spec": {"size": size}});
    cloud.post("/v0/volumes", sized(2048)).await.ok();
    let message = cloud.put("/v0/volumes/disk", sized(1024)).await.refused(400);
    assert!(message.contains("`spec.size`"), "{message}");
    assert_eq!(cloud.put("/v0/volumes/disk", sized(4096)).await.ok()["spec"]["size"], 4096);
    for bad in [0, -1, i64::MAX] {
        cloud.put("/v0/volumes/disk", sized(bad)).await.refused(400);
    }
    assert_eq!(cloud.get("/v0/volumes/by-external-id/d-1").await.ok()["metadata"]["name"], "disk");
    cloud.get("/v0/volumes/by-external-id/d-2").await.refused(404);
    let refusal = cloud.post("/v0/volumes", sized(2048)).await;
    assert_eq!(refusal.body["error"], "VOLUME_ALREADY_EXISTS");
}

#[tokio::test]
async fn a_volume_takes_the_size_of_its_template() {
    let cloud = Cloud::start().await;
    cloud
        .put(
            "/v0/volume_templates/base",
            json!({"metadata": {"name": "base"}, "spec": {"defaultSize": 3072}}),
        )
        .await
        .ok();
    let from =
        |template: &str| json!({"metadata": {"name": "disk"}, "spec": {"template": template}});
    cloud.post("/v0/volumes", from("none:latest")).await.refused(400);
    assert_eq!(cloud.post("/v0/volumes", from("base:latest")).await.ok()["spec"]["size"], 3072);
    cloud.delete("/v0/volume_templates/base").await.ok();
    cloud.get("/v0/volumes/disk").await.ok();
    assert_eq!(cloud.post("/v0/volumes", named("plain")).await.ok()["spec"]["size"], 1024);
}

fn sized(name: &str, size: i64) -> Value {
    json!({"metadata": {"name": name}, "spec": {"size": size}})
}

fn mounting(name: &str, volume: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "runtime": {"image": IMAGE, "storageMb": 500},
        "volumes": [{"name": volume, "mountPath": "/data//in/", "readOnly": true},
                    {"name": "scratch", "mountPath": "/scratch", "type": "ephemeral", "sizeMb": 8}],
    }})
}

/// Waits until the store keeps file systems of these sizes.
async fn until_kept(volumes: &PretendedVolumes, sizes: &[u32]) {
    let kept = async {
        while volumes.sizes() != sizes {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let kept = tokio::time::timeout(Duration::from_secs(60), kept).await;
    assert!(kept.is_ok(), "{:?} are kept, not {sizes:?}", volumes.sizes());
}

#[tokio::test]
async fn a_sandbox_is_launched_with_its_volumes_once_its_row_has_them() {
    let volumes = PretendedVolumes::new(2_000);
    let machine = || {
        Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes))
            as Arc<dyn Machine>
    };
    for cloud in Cloud::start_on_machines(machine).await {
        cloud.post("/v0/volumes", sized("disk", 700)).await.ok();
        assert_eq!(volumes.sizes(), [700], "it is there when it is answered");
        cloud.post("/v0/sandboxes", mounting("one", "disk")).await.ok();
        let seen = cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
        assert!(seen["errors"].is_null(), "{seen}");
        let message = cloud.post("/v0/sandboxes", mounting("two", "disk")).await.refused(409);
        assert!(message.contains("sandbox:one"), "{message}");
        cloud.delete("/v0/volumes/disk").await.refused(409);
        cloud.delete("/v0/sandboxes/one").await.ok();
        assert!(cloud.get("/v0/volumes/disk").await.ok()["state"]["attachedTo"].is_null());
        cloud.delete("/v0/volumes/disk").await.ok();
        until_kept(&volumes, &[]).await;
    }
}

#[tokio::test]
async fn the_machine_is_told_what_to_mount() {
    let volumes = PretendedVolumes::new(2_000);
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes));
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    cloud.post("/v0/volumes", sized("disk", 700)).await.ok();
    cloud.post("/v0/sandboxes", mounting("one", "disk")).await.ok();
    let launch = machine.until_launched(1).await.remove(0);
    let [mount] = &launch.volumes[..] else { panic!("{:?}", launch.volumes) };
    assert_eq!((mount.path.as_str(), mount.size_mb, mount.read_only), ("/data/in", 700, true));
    assert!(matches!(mount.volume.kept_for(), Some(KeptFor::Volume(_))));
    assert_eq!((launch.scratch.len(), launch.scratch[0].path.as_str()), (1, "/scratch"));
    assert!(matches!(launch.root.unwrap().kept_for(), Some(KeptFor::Root(_))));
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    for bad in ["/", "/etc", "/proc/x", "/usr/bin/"] {
        let mut sandbox = mounting("bad", "disk");
        sandbox["spec"]["volumes"][0]["mountPath"] = json!(bad);
        cloud.post("/v0/sandboxes", sandbox).await.refused(400);
    }
}

#[tokio::test]
async fn what_has_no_room_is_refused_and_leaves_nothing() {
    let volumes = PretendedVolumes::new(1_000);
    let machine = || {
        Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes))
            as Arc<dyn Machine>
    };
    for cloud in Cloud::start_on_machines(machine).await {
        let message = cloud.post("/v0/volumes", sized("huge", 1_001)).await.refused(403);
        assert!(message.contains("1000 MB"), "{message}");
        cloud.get("/v0/volumes/huge").await.refused(404);
        cloud.post("/v0/volumes", sized("disk", 600)).await.ok();
        let refusal = cloud.post("/v0/volumes", sized("disk", 300)).await;
        assert_eq!(refusal.body["error"], "VOLUME_ALREADY_EXISTS");
        cloud.put("/v0/volumes/disk", sized("disk", 1_100)).await.refused(403);
        assert_eq!(cloud.get("/v0/volumes/disk").await.ok()["spec"]["size"], 600);
        assert_eq!(
            cloud.put("/v0/volumes/disk", sized("disk", 900)).await.ok()["spec"]["size"],
            900
        );
        assert_eq!(volumes.sizes(), [900]);
        cloud.put("/v0/volumes/disk", sized("disk", 800)).await.refused(400);
        cloud.delete("/v0/volumes/disk").await.ok();
        until_kept(&volumes, &[]).await;
    }
}

#[tokio::test]
async fn a_volume_is_billed_for_its_size_as_long_as_it_is_there() {
    let volumes = PretendedVolumes::new(5_000);
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes));
    let cloud = Cloud::start_on_machine(machine, settings()).await;
    cloud.post("/v0/volumes", sized("disk", 1_024)).await.ok();
    cloud.clock.advance_s(10);
    cloud.put("/v0/volumes/disk", sized("disk", 2_048)).await.ok();
    cloud.clock.advance_s(10);
    cloud.put("/v0/volumes/disk", sized("disk", 9_000)).await.refused(403);
    cloud.delete("/v0/volumes/disk").await.ok();
    cloud.clock.advance_s(1_000);
    let path = format!(
        "/v0/accounts/{}/metrics?startTime=2026-04-01T00:00:00Z&endTime=2026-05-01T00:00:00Z\
         &groupBy=billing_dimension&resourceName=disk",
        cloud.first.account
    );
    let answer = cloud.get(&path).await.ok();
    let billed = &answer["data"][0];
    assert_eq!(billed["billingDimension"], "volume_storage_gbs", "{answer}");
    let usage = billed["summary"]["usage"].as_f64().unwrap();
    // The clock of a test also goes on by itself.
    assert!((30.0..45.0).contains(&usage), "10 s of 1 GB and 10 s of 2 GB: {answer}");
}

#[tokio::test]
async fn the_next_start_removes_what_has_no_row_and_makes_what_has_none() {
    let volumes = PretendedVolumes::new(5_000);
    let mut cloud = Cloud::start().await;
    cloud.post("/v0/volumes", sized("early", 700)).await.ok();
    for left in [
        KeptFor::Volume(ResourceId::known("res_left")),
        KeptFor::Root(ResourceId::known("res_gone")),
    ] {
        volumes.leave(&VolumeName::of(&left));
    }
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes));
    cloud.restart_on(machine).await;
    until_kept(&volumes, &[700]).await;
    // As a kill after a change of the row leaves it.
    cloud.tell_wish(KindName::Volume, "early", json!({"size": 900})).await;
    until_kept(&volumes, &[900]).await;
}

#[tokio::test]
async fn a_drive_token_is_signed_with_the_published_key() {
    let cloud = Cloud::start().await;
    cloud
        .post("/v0/drives", json!({"metadata": {"name": "files", "externalId": "f-1"}, "spec": {}}))
        .await
        .ok();
    let answer = cloud.call(Method::POST, "/v0/drives/files/access-token", None).await.ok();
    assert_eq!((&answer["token_type"], &answer["expires_in"]), (&json!("Bearer"), &json!(3600)));
    let keys = cloud.raw(Method::GET, "/v0/drives/jwks.json", &[], Vec::new()).await.ok();
    let key = URL_SAFE_NO_PAD.decode(keys["keys"][0]["x"].as_str().unwrap()).unwrap();
    let (signed, signature) = answer["access_token"].as_str().unwrap().rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, key)
        .verify(signed.as_bytes(), &signature)
        .unwrap();
    let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!((&claims["drive"], &claims["workspace"]), (&json!("files"), &json!("main")));
    cloud.call(Method::POST, "/v0/drives/none/access-token", None).await.refused(404);
    assert_eq!(cloud.get("/v0/drives/by-external-id/f-1").await.ok()["metadata"]["name"], "files");
    let deleted = cloud.delete("/v0/drives/files").await.ok();
    assert_eq!(deleted["name"], "files");
    assert!(deleted["message"].is_string());
    let four = json!([{}, {}, {}, {}]);
    cloud
        .post("/v0/drives", json!({"metadata": {"name": "x"}, "spec": {"permissions": four}}))
        .await
        .refused(400);
}

impl Cloud {
    async fn id_of(&self, sandbox: &'static str) -> ResourceId {
        let main = self.workspace("main").await;
        let find = move |tx: &mut store::Tx<'_>| {
            resources::find(tx, &main, KindName::Sandbox, "", sandbox)
        };
        self.store.read(find).await.unwrap().unwrap().id
    }

    async fn mount(
        &self,
        sandbox: &'static str,
        drive: &str,
        place: &str,
    ) -> Result<MountedDrive, DriveRefusal> {
        let order = DriveOrder {
            drive_name: drive.into(),
            mount_path: place.into(),
            ..DriveOrder::default()
        };
        drives::mount(&self.control, &self.id_of(sandbox).await, order).await
    }

    async fn unmount(&self, sandbox: &'static str, place: &str) -> Result<(), DriveRefusal> {
        drives::unmount(&self.control, &self.id_of(sandbox).await, place).await
    }
}

fn boxed(name: &str, memory: i64) -> Value {
    json!({"metadata": {"name": name, "labels": {"team": "a"}}, "spec": {"runtime": {"image": IMAGE, "memory": memory}}})
}

#[tokio::test]
async fn a_sandbox_keeps_its_drives_until_they_are_unmounted_or_it_is_gone() {
    let volumes = PretendedVolumes::new(DRIVE_MB * 2);
    let machine = || {
        Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes))
            as Arc<dyn Machine>
    };
    for cloud in Cloud::start_on_machines(machine).await {
        cloud.post("/v0/drives", named("files")).await.ok();
        cloud.post("/v0/drives", named("more")).await.ok();
        cloud.post("/v0/drives", named("none")).await.refused(403);
        cloud.get("/v0/drives/none").await.refused(404);
        cloud.post("/v0/sandboxes", boxed("one", 512)).await.ok();
        cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;

        let mounted = cloud.mount("one", "files", "/mnt//files/").await.unwrap();
        assert_eq!((mounted.mount_path.as_str(), mounted.drive_path.as_str()), ("/mnt/files", "/"));
        assert_eq!(cloud.mount("one", "files", "/mnt/files").await.unwrap(), mounted);
        for place in ["/mnt/files", "/mnt", "/mnt/files/in"] {
            let refused = cloud.mount("one", "more", place).await.unwrap_err();
            assert!(matches!(refused, DriveRefusal::Busy(_)), "{place}: {refused}");
        }
        for place in ["/", "/etc", "/proc/x", "relative", "/a/../b"] {
            let refused = cloud.mount("one", "more", place).await.unwrap_err();
            assert!(matches!(refused, DriveRefusal::Bad(_)), "{place}: {refused}");
        }
        // What the machine refuses is not remembered; what it cannot take back is.
        let refused = cloud.mount("one", "more", REFUSED).await.unwrap_err();
        assert_eq!(refused, DriveRefusal::Bad("not there".into()));
        cloud.mount("one", "more", BUSY).await.unwrap();
        assert!(matches!(cloud.unmount("one", BUSY).await, Err(DriveRefusal::Failed(_))));
        let id = cloud.id_of("one").await;
        assert_eq!(drives::list(&cloud.control, &id).await.unwrap().len(), 2);
        for number in 0..2 {
            cloud.mount("one", "more", &format!("/data/{number}")).await.unwrap();
        }
        let refused = cloud.mount("one", "more", "/data/9").await.unwrap_err();
        assert!(refused.to_string().contains("4 drives"), "{refused}");

        let message = cloud.delete("/v0/drives/files").await.refused(409);
        assert!(message.contains("`one`"), "{message}");
        cloud.unmount("one", "/mnt/files").await.unwrap();
        let again = cloud.unmount("one", "/mnt/files").await.unwrap_err();
        assert!(matches!(again, DriveRefusal::Failed(_)), "{again}");
        cloud.delete("/v0/drives/files").await.ok();
        assert_eq!(volumes.sizes(), [DRIVE_MB], "its files go with it");
        cloud.delete("/v0/drives/more").await.refused(409);
        cloud.delete("/v0/drives/more/folders?path=/there").await;
        cloud.delete("/v0/drives/more/folders?path=/gone").await.refused(404);
        cloud.delete("/v0/drives/more/folders?path=there").await.refused(400);
        cloud.delete("/v0/sandboxes/one").await.ok();
        cloud.delete("/v0/drives/more").await.ok();
        until_kept(&volumes, &[]).await;
    }
}

#[tokio::test]
async fn a_folder_that_a_sandbox_has_mounted_is_not_removed() {
    let volumes = PretendedVolumes::new(5_000);
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes));
    let cloud = Cloud::start_on_machine(machine, settings()).await;
    for drive in ["files", "other"] {
        cloud.post("/v0/drives", named(drive)).await.ok();
    }
    for name in ["one", "two"] {
        cloud.post("/v0/sandboxes", boxed(name, 512)).await.ok();
        cloud.until(&format!("/v0/sandboxes/{name}"), |it| it["status"] == "DEPLOYED").await;
    }
    let part = |drive: &str, folder: &str| DriveOrder {
        drive_name: drive.into(),
        mount_path: format!("/mnt{folder}"),
        drive_path: Some(folder.into()),
        ..DriveOrder::default()
    };
    // All of the drive is not this folder, and one of another drive is none of this one.
    cloud.mount("one", "files", "/data").await.unwrap();
    let one = cloud.id_of("one").await;
    drives::mount(&cloud.control, &one, part("other", "/there")).await.unwrap();
    let remove =
        async |path: &str| cloud.delete(&format!("/v0/drives/files/folders?path={path}")).await;
    assert!(remove("/there").await.status.is_success());

    let two = cloud.id_of("two").await;
    drives::mount(&cloud.control, &two, part("files", "/there/in")).await.unwrap();
    for path in ["/there", "/there/", "/there/in", "//there//in"] {
        let message = remove(path).await.refused(409);
        assert!(message.contains("`two`"), "{message}");
    }
    // A folder beside it that begins alike, and one below it.
    for path in ["/ther", "/there/i", "/there/in/side"] {
        remove(path).await.refused(404);
    }
    cloud.unmount("two", "/mnt/there/in").await.unwrap();
    assert!(remove("/there").await.status.is_success());
}

#[tokio::test]
async fn an_instance_that_starts_anew_gets_the_drives_that_rules_still_give() {
    let volumes = PretendedVolumes::new(5_000);
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes));
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    let ruled = |team: &str, mode: &str| {
        let rule =
            json!({"labels": {"team": team, "blaxel-name": "one"}, "mode": mode, "path": "/a"});
        json!({"metadata": {"name": "ruled"}, "spec": {"permissions": [rule]}})
    };
    cloud.post("/v0/drives", ruled("a", "read-write")).await.ok();
    cloud.post("/v0/drives", named("open")).await.ok();
    cloud.post("/v0/sandboxes", boxed("one", 512)).await.ok();
    cloud.post("/v0/sandboxes", boxed("two", 512)).await.ok();
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    cloud.until("/v0/sandboxes/two", |it| it["status"] == "DEPLOYED").await;
    let denied = cloud.mount("two", "ruled", "/mnt/r").await.unwrap_err();
    assert!(denied.to_string().contains("permission denied"), "{denied}");
    let mounted = cloud.mount("one", "ruled", "/mnt/r").await.unwrap();
    assert_eq!((mounted.drive_path.as_str(), mounted.read_only), ("/a", false));
    cloud.mount("one", "open", "/mnt/o").await.unwrap();

    let launched = async |count: usize| {
        let launch = machine.until_launched(count).await.pop().unwrap();
        let mounts = launch.drives.iter();
        mounts.map(|it| (it.place.clone(), it.folder.clone(), it.read_only)).collect::<Vec<_>>()
    };
    let of =
        |place: &str, folder: &str, read_only| (place.to_owned(), folder.to_owned(), read_only);
    cloud.put("/v0/drives/ruled", ruled("a", "read")).await.ok();
    cloud.put("/v0/sandboxes/one", boxed("one", 1_024)).await.ok();
    assert_eq!(launched(3).await, [of("/mnt/r", "/a", true), of("/mnt/o", "", false)]);
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    cloud.put("/v0/drives/ruled", ruled("b", "read")).await.ok();
    cloud.put("/v0/sandboxes/one", boxed("one", 512)).await.ok();
    assert_eq!(launched(4).await, [of("/mnt/o", "", false)], "the rule is for others now");
}

#[tokio::test]
async fn an_image_that_runs_is_not_removed() {
    for cloud in Cloud::on_both().await {
        cloud.image("bot").await;
        let runs = |image: &str| json!({"metadata": {"name": "bot"}, "spec": {"runtime": {"image": image}}});
        cloud.post("/v0/agents", runs("agent/bot:v1")).await.ok();
        let image = cloud.get("/v0/images/agent/bot").await.ok();
        assert_eq!(image["spec"]["tags"].as_array().unwrap().len(), 2);
        assert_eq!(
            cloud.get("/v0/images/_/bot").await.ok(),
            image,
            "the command line does not know the kind"
        );
        assert_eq!(cloud.get("/v0/images").await.ok(), json!([image]));
        cloud.delete("/v0/images/agent/bot").await.refused(400);
        cloud.delete("/v0/images/agent/bot/tags/v1").await.refused(400);
        cloud.delete("/v0/images/agent/bot:v1").await.refused(400);
        let rest = cloud.delete("/v0/images/agent/bot:v2").await.ok();
        assert_eq!(rest["spec"]["tags"].as_array().unwrap().len(), 1);
        cloud.delete("/v0/images/agent/bot/tags/v2").await.refused(404);
        assert_eq!(cloud.delete("/v0/images").await.ok()["deleted"], 0);
        cloud.delete("/v0/agents/bot").await.ok();
        assert_eq!(cloud.delete("/v0/images").await.ok()["deleted"], 1);
        cloud.get("/v0/images/agent/bot").await.refused(404);
    }
}

#[tokio::test]
async fn an_image_is_shared_within_the_account_at_once() {
    let cloud = Cloud::start().await;
    cloud.image("bot").await;
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    let path = |path: &str| format!("/v0/images/agent/bot{path}?workspace=main");
    for (target, status) in [("nobody", 404), ("main", 404)] {
        cloud.post(&path("/share"), json!({"targetWorkspace": target})).await.refused(status);
    }
    cloud.post(&path("/share"), json!({"targetWorkspace": "team"})).await.ok();
    cloud.post(&path("/share"), json!({"targetWorkspace": "team"})).await.refused(409);
    let shares = cloud.get(&path("/share")).await.ok();
    assert_eq!((&shares[0]["workspace"], &shares[0]["status"]), (&json!("team"), &json!("active")));
    let copy = cloud.get("/v0/images/agent/bot?workspace=team").await.ok();
    assert_eq!(copy["metadata"]["sourceWorkspace"], "main");
    let again = cloud
        .post("/v0/images/agent/bot/share?workspace=team", json!({"targetWorkspace": "main"}))
        .await;
    again.refused(400);
    cloud.delete(&path("")).await.refused(400);
    cloud.delete(&path("/share/team")).await.ok();
    cloud.delete(&path("/share/team")).await.refused(404);
    cloud.get("/v0/images/agent/bot?workspace=team").await.refused(404);
    cloud.delete(&path("")).await.ok();
}

#[tokio::test]
async fn an_image_for_another_account_waits_until_it_is_accepted() {
    for cloud in Cloud::on_both().await {
        cloud.image("bot").await;
        let (friend, account) = cloud.stranger("friend@example.com").await;
        friend.post("/v0/workspaces", json!({"name": "theirs"})).await.ok();
        let offer = json!({"targetWorkspace": "theirs", "targetAccountId": account});
        cloud
            .post("/v0/images/agent/bot/share", json!({"targetWorkspace": "theirs"}))
            .await
            .refused(404);
        let share = async || {
            let pending = cloud.post("/v0/images/agent/bot/share", offer.clone()).await;
            assert_eq!(pending.status, 202, "{}", pending.body);
            format!("/v0/pending-image-shares/{}", pending.body["id"].as_str().unwrap())
        };
        let declined = share().await;
        assert_eq!(cloud.get("/v0/images/agent/bot/share").await.ok()[0]["status"], "pending");
        friend.get("/v0/images/agent/bot").await.refused(404);
        assert_eq!(friend.get("/v0/pending-image-shares?direction=outgoing").await.ok(), json!([]));
        assert_eq!(cloud.get("/v0/pending-image-shares?direction=incoming").await.ok(), json!([]));
        let incoming = friend.get("/v0/pending-image-shares").await.ok();
        assert_eq!(
            (&incoming[0]["imageName"], &incoming[0]["hasConflict"]),
            (&json!("bot"), &json!(false))
        );
        cloud.call(Method::POST, &format!("{declined}/accept"), None).await.refused(404);
        assert_eq!(
            friend.call(Method::POST, &format!("{declined}/decline"), None).await.status,
            204
        );
        assert_eq!(cloud.get("/v0/images/agent/bot/share").await.ok(), json!([]));
        let late = share().await;
        cloud.clock.advance_s(8 * 24 * 3600);
        friend.call(Method::POST, &format!("{late}/accept"), None).await.refused(410);
        cloud.delete("/v0/images/agent/bot/share/theirs").await.ok();
        let good = share().await;
        let copy = friend.call(Method::POST, &format!("{good}/accept"), None).await.ok();
        assert_eq!(copy["metadata"]["sourceWorkspace"], "main");
        assert_eq!(friend.get("/v0/images/agent/bot").await.ok(), copy);
        assert_eq!(cloud.get("/v0/images/agent/bot/share").await.ok()[0]["status"], "active");
        friend.call(Method::POST, &format!("{good}/accept"), None).await.refused(404);
    }
}

/// An agent that mounts a volume.
fn agent(volume: &str, runtime: Value) -> Value {
    let mut agent = json!({"metadata": {"name": "bot"}, "spec": {"region": "local",
        "volumes": [{"name": volume, "mountPath": "/memory"}], "runtime": runtime}});
    agent["spec"]["runtime"]["image"] = json!(IMAGE);
    agent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_has_its_volume_alone_and_its_revisions_take_turns() {
    let volumes = PretendedVolumes::new(2_000);
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes));
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    let disk =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"size": 100, "region": "local"}});
    for name in ["disk", "other"] {
        cloud.post("/v0/volumes", disk(name)).await.ok();
    }
    let attached_to = async |name: &str| {
        let volume = cloud.get(&format!("/v0/volumes/{name}")).await.ok();
        volume["state"]["attachedTo"].clone()
    };
    for (member, value, field) in [
        ("runtime", json!({"maxScale": 2}), "spec.runtime.maxScale"),
        ("runtime", json!({"minScale": 2, "maxScale": 3}), "spec.runtime.minScale"),
        ("revision", json!({"canary": "rev"}), "spec.revision.canary"),
        ("region", Value::Null, "spec.region"),
    ] {
        let mut wish = agent("disk", json!({}));
        wish["spec"][member] = value;
        let message = cloud.post("/v0/agents", wish).await.refused(400);
        assert!(message.contains(field), "{message}");
    }
    cloud.post("/v0/agents", agent("disk", json!({"minScale": 1}))).await.ok();
    cloud.until("/v0/agents/bot", |it| it["status"] == "DEPLOYED").await;
    assert_eq!(attached_to("disk").await, "agent:bot");
    cloud.delete("/v0/volumes/disk").await.refused(409);
    cloud.post("/v0/sandboxes", mounting("box", "disk")).await.refused(409);
    let first = machine.until_launched(1).await.remove(0);
    let [mount] = &first.volumes[..] else { panic!("{:?}", first.volumes) };
    assert_eq!((mount.path.as_str(), mount.read_only), ("/memory", false));

    let next = json!({"minScale": 1, "envs": [{"name": "V", "value": "2"}]});
    cloud.put("/v0/agents/bot", agent("disk", next.clone())).await.ok();
    let second = machine.until_launched(2).await.remove(1);
    assert_eq!(second.volumes, first.volumes);
    assert!(
        !machine.names().contains(&first.instance.to_string()),
        "it began before the other had ended"
    );
    cloud.until("/v0/agents/bot", |it| it["status"] == "DEPLOYED").await;

    cloud.put("/v0/agents/bot", agent("other", next)).await.ok();
    assert!(attached_to("disk").await.is_null());
    assert_eq!(attached_to("other").await, "agent:bot");
    cloud.delete("/v0/agents/bot").await.ok();
    assert!(attached_to("other").await.is_null());
}
