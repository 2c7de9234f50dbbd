//! Drives.

use super::volumes::{named, until_kept};
use crate::common::machine::{IMAGE, Pretended};
use crate::common::volumes::{BUSY, DRIVE_MB, PretendedVolumes, REFUSED};
use crate::common::{Cloud, settings};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use control::drives;
use control::machine::Machine;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use store::resources;
use types::KindName;
use types::drive_mounts::{DriveOrder, DriveRefusal, MountedDrive};
use types::ids::ResourceId;
use types::instance::Outcome;

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
        // A mount that the machine refuses is not recorded; one that it cannot undo is.
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
    // The whole drive is not this folder, and a folder of another drive is unrelated.
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
    // A folder next to it whose name begins alike, and one below it.
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
async fn a_mount_that_a_kill_interrupted_is_completed_at_the_next_start() {
    let volumes = PretendedVolumes::new(5_000);
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes));
    let mut cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    cloud.post("/v0/drives", named("files")).await.ok();
    cloud.post("/v0/sandboxes", boxed("one", 512)).await.ok();
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    cloud.mount("one", "files", "/mnt/files").await.unwrap();
    // As after a kill between the row and the mount.
    let interrupted = std::mem::take(&mut *volumes.mounted.lock());
    cloud.restart_on(machine).await;
    tokio::time::timeout(Duration::from_secs(60), async {
        while *volumes.mounted.lock() != interrupted {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the drive is mounted");
}
