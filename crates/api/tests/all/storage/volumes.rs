//! Volumes and templates.

use crate::common::machine::{IMAGE, Pretended};
use crate::common::volumes::PretendedVolumes;
use crate::common::{Cloud, settings};
use control::machine::{Launch, LaunchFault, Machine};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use types::KindName;
use types::ids::ResourceId;
use types::instance::{KeptFor, Outcome, VolumeName};

pub(crate) fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {}})
}

fn holder(name: &str, volume: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"volumes": [{"name": volume, "mountPath": "/data"}]}})
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
        let message = cloud.post("/v0/sandboxes", holder("two", "disk")).await.refused(400);
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
pub(crate) async fn until_kept(volumes: &PretendedVolumes, sizes: &[u32]) {
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
        let message = cloud.post("/v0/sandboxes", mounting("two", "disk")).await.refused(400);
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
    // The clock of a test also advances by itself.
    assert!((30.0..45.0).contains(&usage), "10 s of 1 GB and 10 s of 2 GB: {answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_metered_whichever_server_was_asked_for_it() {
    let volumes = PretendedVolumes::new(5_000);
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes));
    let mut cloud = Cloud::start().await;
    cloud.post("/v0/volumes", sized("disk", 512)).await.ok();
    // Nothing is stored yet.
    cloud.put("/v0/volumes/disk", sized("disk", 1_024)).await.ok();
    until_metered(&cloud, 0).await;
    cloud.restart_on(machine).await;
    until_metered(&cloud, 1).await;
    // A server without a machine, beside the one that keeps the volume.
    cloud.restart().await;
    cloud.put("/v0/volumes/disk", sized("disk", 2_048)).await.ok();
    until_metered(&cloud, 2).await;
    until_kept(&volumes, &[2_048]).await;
}

/// Waits until the meter has been told of the volume `disk` so many times.
async fn until_metered(cloud: &Cloud, wanted: u64) {
    let (workspace, mut commits) = (cloud.workspace("main").await, cloud.store.commits());
    loop {
        commits.mark_unchanged();
        let of = workspace.clone();
        let find = move |tx: &mut store::Tx<'_>| {
            store::resources::find(tx, &of, KindName::Volume, "", "disk")
        };
        let row = cloud.store.read(find).await.unwrap().unwrap();
        let state: Value = serde_json::from_str(&row.state).unwrap();
        if state["metered"].as_u64().unwrap_or_default() == wanted {
            return;
        }
        let changed = tokio::time::timeout(Duration::from_secs(60), commits.changed());
        changed.await.unwrap().unwrap();
    }
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
    // As after a kill that followed a change of the row.
    cloud.tell_wish(KindName::Volume, "early", json!({"size": 900})).await;
    until_kept(&volumes, &[900]).await;
    // Nobody is billed for a size that there is no room for.
    cloud.tell_wish(KindName::Volume, "early", json!({"size": 9_000})).await;
    cloud.until("/v0/volumes/early", |volume| volume["spec"]["size"] == 900).await;
    until_kept(&volumes, &[900]).await;
}

/// Returns an agent that mounts a volume.
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
    cloud.post("/v0/sandboxes", mounting("box", "disk")).await.refused(400);
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
    assert_eq!(attached_to("other").await, "agent:bot");
    cloud.until("/v0/agents/bot", |it| it["status"] == "DEPLOYED").await;
    assert!(attached_to("disk").await.is_null());
    cloud.delete("/v0/agents/bot").await.ok();
    assert!(attached_to("other").await.is_null());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_stays_with_the_revision_that_serves() {
    let volumes = PretendedVolumes::new(2_000);
    let fails_without = |launch: &Launch| match launch.volumes.is_empty() {
        true => Err(LaunchFault::Broken("it needs its files".to_owned())),
        false => Ok(Outcome::SUCCESS),
    };
    let machine = Arc::new(Pretended::new(fails_without).with_volumes(&volumes));
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    let disk = json!({"metadata": {"name": "disk"}, "spec": {"size": 100, "region": "local"}});
    cloud.post("/v0/volumes", disk).await.ok();
    let attached_to =
        async || cloud.get("/v0/volumes/disk").await.ok()["state"]["attachedTo"].clone();
    cloud.post("/v0/agents", agent("disk", json!({"minScale": 1}))).await.ok();
    cloud.until("/v0/agents/bot", |it| it["status"] == "DEPLOYED").await;

    let mut without = agent("disk", json!({"minScale": 2, "maxScale": 2}));
    without["spec"]["volumes"] = json!([]);
    for runtime in [json!(1000), json!(1001)] {
        without["spec"]["runtime"]["memory"] = runtime;
        cloud.put("/v0/agents/bot", without.clone()).await.ok();
        cloud.until("/v0/agents/bot", |it| it["status"] == "FAILED").await;
        assert_eq!(attached_to().await, "agent:bot");
        cloud.delete("/v0/volumes/disk").await.refused(409);
    }
    let serving = machine.until(|all| all.last().is_some_and(|last| !last.volumes.is_empty()));
    assert_eq!(serving.await.last().unwrap().volumes.len(), 1, "what served starts again");

    without["spec"]["enabled"] = json!(false);
    cloud.put("/v0/agents/bot", without).await.ok();
    cloud.until("/v0/agents/bot", |it| it["status"] == "DEACTIVATED").await;
    assert!(attached_to().await.is_null());
    cloud.delete("/v0/volumes/disk").await.ok();
}
