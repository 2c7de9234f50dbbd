//! The disks of sandboxes with `storageMb`.

use super::volumes::until_kept;
use crate::common::machine::{IMAGE, PASSWORD, PRIVATE, Pretended};
use crate::common::volumes::PretendedVolumes;
use crate::common::{Cloud, settings};
use control::machine::{Launch, LaunchFault};
use control::volume_store::VolumeStore;
use serde_json::{Value, json};
use std::sync::Arc;
use types::KindName;
use types::instance::Outcome;

fn with_disk(name: &str) -> Value {
    let runtime = json!({"image": IMAGE, "memory": 512, "storageMb": 300});
    json!({"metadata": {"name": name}, "spec": {"runtime": runtime}})
}

/// Returns a machine that makes the disks of what it launches. It fails afterwards if it is to
/// start a sandbox of this name.
fn making_disks(volumes: &PretendedVolumes, fails: &'static str) -> Pretended {
    let of = volumes.clone();
    let script = move |launch: &Launch| {
        if let Some((disk, mb)) = launch.root.as_ref().zip(launch.storage_mb) {
            of.fill(disk, mb).map_err(|fault| LaunchFault::OverShare(fault.to_string()))?;
        }
        match launch.hostname == fails {
            true => Err(LaunchFault::Broken("as it was told".into())),
            false => Ok(Outcome::SUCCESS),
        }
    };
    Pretended::new(script).with_volumes(volumes)
}

#[tokio::test]
async fn a_sandbox_that_is_refused_leaves_no_disk() {
    for mut cloud in Cloud::on_both().await {
        let volumes = PretendedVolumes::new(700);
        let machine = Arc::new(making_disks(&volumes, "broken"));
        cloud.settings.quotas = [(KindName::Sandbox, 1)].into();
        cloud.restart_on(machine.clone()).await;
        cloud.post("/v0/sandboxes", with_disk("one")).await.ok();
        // More often than there is room for, and what is refused has been launched.
        for _ in 0..3 {
            cloud.post("/v0/sandboxes", with_disk("two")).await.refused(400);
            assert_eq!(volumes.sizes(), [300]);
            cloud.post("/v0/sandboxes", with_disk("broken")).await.refused(400);
            assert_eq!(volumes.sizes(), [300]);
        }
        assert_eq!(machine.launched.borrow().len(), 7);
        assert_eq!(machine.names().len(), 1);
        cloud.delete("/v0/sandboxes/one").await.ok();
        until_kept(&volumes, &[]).await;
    }
}

#[tokio::test]
async fn a_sandbox_says_whether_its_files_were_lost_with_its_instance() {
    for keeps in [true, false] {
        let volumes = PretendedVolumes::new(700);
        let machine = || Arc::new(making_disks(&volumes, ""));
        let mut cloud = Cloud::start_on_machine(machine(), settings()).await;
        cloud.post("/v0/sandboxes", with_disk("one")).await.ok();
        for disk in volumes.names().iter().filter(|_| !keeps) {
            VolumeStore::remove(&volumes, disk).await.unwrap();
        }
        let later = machine();
        cloud.restart_on(later.clone()).await;
        later.until_launched(1).await;
        let seen = cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
        let events = seen["events"].as_array().unwrap();
        let said = |what: &str| {
            events.iter().any(|event| event["message"].as_str().unwrap().contains(what))
        };
        assert!(said("the machine lost it"), "{seen}");
        assert_eq!(said("with the files on its disk"), keeps, "{seen}");
        assert_eq!(said("all that was not on a volume"), !keeps, "{seen}");
    }
}

#[tokio::test]
async fn a_sandbox_says_that_it_begins_with_an_empty_disk() {
    let volumes = PretendedVolumes::new(10_000);
    let machine = Arc::new(making_disks(&volumes, ""));
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    let wish = |memory: i64, storage_mb: Option<i64>| {
        let mut wish = with_disk("one");
        wish["spec"]["runtime"] = match storage_mb {
            Some(mb) => json!({"image": IMAGE, "memory": memory, "storageMb": mb}),
            None => json!({"image": IMAGE, "memory": memory}),
        };
        wish
    };
    cloud.post("/v0/sandboxes", wish(512, None)).await.ok();
    let changes = [(1024, None, 0), (1024, Some(300), 1), (512, Some(300), 1), (512, Some(400), 1)];
    for (index, (memory, storage_mb, said)) in changes.into_iter().enumerate() {
        cloud.put("/v0/sandboxes/one", wish(memory, storage_mb)).await.ok();
        machine.until_launched(index + 2).await;
        let seen = cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
        let events = seen["events"].as_array().unwrap();
        let empty = |event: &&Value| event["message"].as_str().unwrap().contains("an empty disk");
        assert_eq!(events.iter().filter(empty).count(), said, "{seen}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_goes_with_the_name_of_its_image_and_not_with_what_the_name_means() {
    let volumes = PretendedVolumes::new(10_000);
    let machine = || Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes));
    let of = |image: &str, memory: i64, config: &str| {
        let runtime =
            json!({"image": image, "memory": memory, "storageMb": 300, "dockerConfig": config});
        json!({"metadata": {"name": "one"}, "spec": {"runtime": runtime}})
    };
    let first = machine();
    let mut cloud = Cloud::start_on_machine(first.clone(), settings()).await;
    cloud.post("/v0/sandboxes", of(PRIVATE, 512, PASSWORD)).await.ok();
    let disk = first.until_launched(1).await.remove(0).root.unwrap();
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    volumes.leave(&disk);

    // The machine has lost the instance, and the registry would not give the image any more.
    let later = machine();
    cloud.restart_on(later.clone()).await;
    later.until_launched(1).await;
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    cloud.put("/v0/sandboxes/one", of(PRIVATE, 1024, "wrong")).await.ok();
    later.until_launched(2).await;
    cloud.until("/v0/sandboxes/one", |it| it["status"] == "DEPLOYED").await;
    assert_eq!(volumes.names(), [disk]);
    cloud.put("/v0/sandboxes/one", of(IMAGE, 1024, "wrong")).await.ok();
    later.until_launched(3).await;
    assert!(volumes.names().is_empty(), "another image begins with an empty disk");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_stays_on_the_machine_of_its_disk_whichever_server_changes_it() {
    let machine = |name| {
        let volumes = PretendedVolumes::new(10_000);
        Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).named(name).with_volumes(&volumes))
    };
    let (here, other) = (machine("here"), machine("other"));
    let of = |name: &str, memory: i64| {
        let runtime = json!({"image": IMAGE, "memory": memory, "storageMb": 300});
        json!({"metadata": {"name": name}, "spec": {"runtime": runtime}})
    };
    let deployed = |sandbox: &Value| sandbox["status"] == "DEPLOYED";
    let mut cloud = Cloud::start_on_machine(here.clone(), settings()).await;
    cloud.post("/v0/sandboxes", of("one", 512)).await.ok();
    cloud.restart_on(other.clone()).await;
    let changed = cloud.put("/v0/sandboxes/one", of("one", 1024)).await.ok();
    assert_eq!(changed["status"], "DEPLOYING");
    // Whatever the other server does about the change, it does before this one has changed too.
    cloud.post("/v0/sandboxes", of("two", 512)).await.ok();
    cloud.put("/v0/sandboxes/two", of("two", 1024)).await.ok();
    cloud.until("/v0/sandboxes/two", deployed).await;
    cloud.restart_on(here.clone()).await;
    cloud.until("/v0/sandboxes/one", deployed).await;
    assert_eq!((here.launched.borrow().len(), other.launched.borrow().len()), (2, 2));
}
