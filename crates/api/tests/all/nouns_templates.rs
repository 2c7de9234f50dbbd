//! Volume templates: uploads, versions, and the volumes that begin with them.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use crate::common::builder::PretendedBuilder;
use crate::common::machine::Pretended;
use crate::common::volumes::PretendedVolumes;
use crate::common::{Answer, Cloud, settings};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use types::ids::ResourceId;
use types::instance::{KeptFor, Outcome, VolumeName};

const PATH: &str = "/v0/volume_templates/base";

struct Stage {
    cloud: Cloud,
    builder: Arc<PretendedBuilder>,
    volumes: PretendedVolumes,
}

async fn stage_with(room_mb: u32, versions_max: usize, postgres: bool) -> Stage {
    stage_of(PretendedVolumes::new(room_mb), versions_max, postgres).await
}

async fn stage_of(volumes: PretendedVolumes, versions_max: usize, postgres: bool) -> Stage {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes));
    let builder = Arc::new(PretendedBuilder::default());
    *builder.volumes.lock() = Some(volumes.clone());
    let builds = control::builds::Settings {
        poll: Duration::from_millis(5),
        backoff: Duration::from_millis(5),
        template_versions_max: versions_max,
        ..control::builds::Settings::default()
    };
    let template_copies = control::TemplateCopies {
        tidy_every: Duration::from_millis(5),
        ..control::TemplateCopies::default()
    };
    let settings = control::Settings { builds, template_copies, ..settings() };
    let cloud = Cloud::start_building(machine, builder.clone(), settings, postgres).await;
    Stage { cloud, builder, volumes }
}

fn template(default_size: Option<i64>) -> Value {
    json!({"metadata": {"name": "base"}, "spec": {"defaultSize": default_size, "description": "data"}})
}

fn volume(name: &str, template: &str, size: Option<i64>) -> Value {
    json!({"metadata": {"name": name}, "spec": {"template": template, "size": size}})
}

#[track_caller]
fn address(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let url = answer.headers.get("x-blaxel-upload-url").expect("an address");
    let url = url.to_str().expect("a text");
    url.strip_prefix("http://localhost:8080").expect("the server's own").to_owned()
}

fn status_of<'t>(template: &'t Value, version: &str) -> &'t str {
    let versions = template["versions"].as_array().expect("versions");
    let found = versions.iter().find(|it| it["name"] == version);
    found.map_or("", |it| it["status"].as_str().expect("a status"))
}

impl Stage {
    async fn ask(&self, query: &str) -> Answer {
        self.cloud.put(&format!("{PATH}?upload=true{query}"), template(None)).await
    }

    /// Sends content as published tools do: without credentials.
    async fn send(&self, address: &str, content: &str) {
        let headers = [("content-type", "application/x-tar")];
        let answer = self.cloud.raw(Method::PUT, address, &headers, content.into()).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    async fn upload(&self, query: &str, content: &str) {
        let address = address(&self.ask(query).await);
        self.send(&address, content).await;
    }

    async fn until(&self, version: &str, status: &str) -> Value {
        self.cloud.until(PATH, |template| status_of(template, version) == status).await
    }

    /// Waits until volumes of these sizes, in megabytes, are kept.
    async fn until_kept(&self, wanted: &[u32]) {
        let sizes = || {
            let mut sizes = self.volumes.sizes();
            sizes.sort_unstable();
            sizes
        };
        until(|| sizes() == wanted, || format!("{:?} are kept, not {wanted:?}", sizes())).await;
    }

    /// Waits until the object service has the content with these numbers.
    async fn until_copied(&self, wanted: &[u64]) {
        let numbers = || numbers(&self.volumes.copied());
        until(|| numbers() == wanted, || format!("{:?} are copied, not {wanted:?}", numbers()))
            .await;
    }

    /// Starts the server anew with these volumes, on a machine of this name.
    async fn restart(&mut self, name: &'static str, volumes: PretendedVolumes) {
        let machine = Pretended::new(|_| Ok(Outcome::SUCCESS)).named(name).with_volumes(&volumes);
        *self.builder.volumes.lock() = Some(volumes.clone());
        self.volumes = volumes;
        self.cloud.restart_on(Arc::new(machine)).await;
    }
}

async fn until(holds: impl Fn() -> bool, otherwise: impl Fn() -> String) {
    let held = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let held = tokio::time::timeout(Duration::from_secs(60), held).await;
    assert!(held.is_ok(), "{}", otherwise());
}

fn numbers(names: &[VolumeName]) -> Vec<u64> {
    let number = |name: &VolumeName| match name.kept_for() {
        Some(KeptFor::Template { number, .. }) => Some(number),
        _ => None,
    };
    names.iter().filter_map(number).collect()
}

#[tokio::test]
async fn what_is_uploaded_becomes_a_version_that_volumes_begin_with() {
    for postgres in [false, true] {
        let stage = stage_with(10_000, 10, postgres).await;
        let cloud = &stage.cloud;
        let asked = cloud.post("/v0/volume_templates?upload=true", template(Some(700))).await;
        let to = address(&asked);
        assert_eq!(status_of(&asked.body, "1"), "CREATED", "{}", asked.body);
        assert_eq!(asked.body["state"]["status"], "created");
        let message = cloud.post("/v0/volumes", volume("early", "base", None)).await.refused(400);
        assert!(message.contains("no content yet"), "{message}");
        stage.send(&to, "data 300").await;
        let seen = stage.until("1", "READY").await;
        assert_eq!(
            (&seen["state"]["status"], &seen["state"]["latestVersion"]),
            (&json!("ready"), &json!("1"))
        );
        assert_eq!(seen["state"]["versionCount"], 1);
        assert!(seen["state"]["lastVersionUploadedAt"].is_string(), "{seen}");
        assert_eq!(seen["versions"][0]["contentSize"], 8);
        let again = cloud.raw(Method::PUT, &to, &[], b"data".to_vec()).await;
        assert!(again.status.is_client_error(), "an address works once");

        let made = cloud.post("/v0/volumes", volume("one", "base:latest", None)).await.ok();
        assert_eq!(made["spec"]["size"], 700);
        let begun = stage.volumes.origins();
        let (_, origin) = begun.first_key_value().expect("a copy");
        assert!(matches!(origin.kept_for(), Some(KeptFor::Template { number: 1, .. })));
        let message =
            cloud.post("/v0/volumes", volume("small", "base:1", Some(299))).await.refused(400);
        assert!(message.contains("299") && message.contains("300"), "{message}");
        cloud.post("/v0/volumes", volume("none", "base:9", None)).await.refused(400);
        cloud.post("/v0/volumes", volume("none", "other:1", None)).await.refused(400);
        cloud.get("/v0/volumes/none").await.refused(404);
        cloud.delete(PATH).await.ok();
        stage.until_kept(&[700]).await;
        cloud.get("/v0/volumes/one").await.ok();
    }
}

#[tokio::test]
async fn versions_are_counted_named_limited_and_removed() {
    let stage = stage_with(10_000, 2, false).await;
    let cloud = &stage.cloud;
    stage.upload("", "data 100").await;
    stage.until("1", "READY").await;
    stage.upload("&version=blue", "data 200").await;
    stage.until("blue", "READY").await;
    stage.ask("&version=blue").await.refused(409);
    for bad in ["latest", "..", "a/b", "%20", &"x".repeat(64)] {
        stage.ask(&format!("&version={bad}")).await.refused(400);
    }
    stage.upload("", "data 300").await;
    let seen = stage.until("2", "READY").await;
    assert_eq!((status_of(&seen, "1"), status_of(&seen, "blue")), ("", "READY"), "{seen}");
    assert_eq!(
        (&seen["state"]["versionCount"], &seen["state"]["latestVersion"]),
        (&json!(2), &json!("2"))
    );
    stage.until_kept(&[200, 300]).await;
    let version = |name: &str| format!("{PATH}/versions/{name}");
    cloud.delete(&version("1")).await.refused(404);
    let rest = cloud.delete(&version("2")).await.ok();
    assert_eq!(rest["template"]["state"]["latestVersion"], "blue", "{rest}");
    let message = cloud.delete(&version("blue")).await.refused(400);
    assert!(message.contains("only version"), "{message}");
    stage.until_kept(&[200]).await;
    stage.upload("", "data 100").await;
    assert_eq!(status_of(&stage.until("3", "READY").await, "2"), "", "no number comes again");
}

#[tokio::test]
async fn what_cannot_be_unpacked_says_why_and_leaves_nothing() {
    let stage = stage_with(1_000, 10, true).await;
    stage.upload("", "link").await;
    let seen = stage.until("1", "FAILED").await;
    assert_eq!(seen["versions"][0]["reason"], "it has a link");
    assert_eq!(seen["state"]["status"], "error");
    let message = stage.cloud.post("/v0/volumes", volume("v", "base:1", None)).await.refused(400);
    assert!(message.contains("no version `1` that is ready"), "{message}");
    stage.upload("", "data 2000").await;
    let seen = stage.until("2", "FAILED").await;
    let why = seen["versions"][1]["reason"].as_str().expect("a reason");
    assert!(why.contains("1000 MB"), "{seen}");
    stage.until_kept(&[]).await;
    let again = stage.ask("").await;
    assert_eq!(status_of(&again.body, "3"), "CREATED", "{}", again.body);
    stage.send(&address(&again), "data 100").await;
    let seen = stage.until("3", "READY").await;
    assert_eq!((status_of(&seen, "1"), status_of(&seen, "2")), ("FAILED", "FAILED"), "{seen}");
    assert_eq!(seen["versions"][0]["reason"], "it has a link", "{seen}");
    assert_eq!(
        (&seen["state"]["status"], &seen["state"]["latestVersion"]),
        (&json!("ready"), &json!("3"))
    );
}

#[tokio::test]
async fn the_last_failed_versions_stay_until_their_names_are_ready() {
    let stage = stage_with(1_000, 1, false).await;
    let names = |seen: &Value| {
        let versions = seen["versions"].as_array().expect("versions").iter();
        versions.map(|it| it["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    stage.upload("&version=blue", "link").await;
    stage.until("blue", "FAILED").await;
    stage.upload("", "data 100").await;
    stage.until("1", "READY").await;
    for number in ["2", "3"] {
        stage.upload("", "link").await;
        stage.until(number, "FAILED").await;
    }
    let again = stage.ask("&version=blue").await;
    assert_eq!(status_of(&again.body, "blue"), "CREATED", "not the failure before");
    stage.send(&address(&again), "data 100").await;
    let seen = stage.until("blue", "READY").await;
    // Failed versions do not take the place of ready ones, of which there may be one.
    assert_eq!(names(&seen), ["2", "3", "blue"], "{seen}");
    for number in ["4", "5"] {
        stage.upload("", "link").await;
        stage.until(number, "FAILED").await;
    }
    let seen = stage.cloud.delete(&format!("{PATH}/versions/4")).await.ok();
    assert_eq!(names(&seen["template"]), ["3", "blue", "5"], "{seen}");
    stage.cloud.delete(&format!("{PATH}/versions/blue")).await.refused(400);
}

#[tokio::test]
async fn another_upload_takes_the_place_of_the_one_before() {
    let stage = stage_with(1_000, 10, false).await;
    let first = address(&stage.ask("").await);
    let second = address(&stage.ask("").await);
    let late = stage.cloud.raw(Method::PUT, &first, &[], b"data".to_vec()).await;
    assert!(late.status.is_client_error(), "{}", late.status);
    stage.send(&second, "waits 100").await;
    let third = address(&stage.ask("").await);
    stage.builder.open();
    stage.send(&third, "data 200").await;
    stage.until("1", "READY").await;
    stage.until_kept(&[200]).await;
    // Deleted while content is being unpacked for it.
    stage.builder.close();
    stage.upload("", "waits 300").await;
    stage.cloud.delete(PATH).await.ok();
    stage.builder.open();
    stage.until_kept(&[]).await;
}

#[tokio::test]
async fn a_template_of_another_workspace_does_not_exist() {
    let stage = stage_with(1_000, 10, false).await;
    stage.upload("", "data 100").await;
    stage.until("1", "READY").await;
    let (friend, _) = stage.cloud.stranger("friend@example.com").await;
    friend.post("/v0/workspaces", json!({"name": "theirs"})).await.ok();
    friend.get(PATH).await.refused(404);
    friend.post("/v0/volumes", volume("v", "base:latest", None)).await.refused(400);
    friend.delete(&format!("{PATH}/versions/1")).await.refused(404);
}

#[tokio::test]
async fn the_next_start_removes_content_that_no_version_has() {
    let mut stage = stage_with(1_000, 10, false).await;
    stage.upload("", "data 100").await;
    stage.until("1", "READY").await;
    let kept = stage.volumes.names();
    let Some(KeptFor::Template { id, .. }) = kept[0].kept_for() else { panic!("{kept:?}") };
    for left in [
        KeptFor::Template { id, number: 0 },
        KeptFor::Template { id: types::ids::ResourceId::known("res_gone"), number: 1 },
    ] {
        stage.volumes.leave(&types::instance::VolumeName::of(&left));
    }
    let machine = Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&stage.volumes);
    stage.cloud.restart_on(Arc::new(machine)).await;
    stage.until_kept(&[100]).await;
}

#[tokio::test]
async fn a_server_without_a_machine_takes_no_content() {
    let cloud = Cloud::start().await;
    cloud.put(PATH, template(None)).await.ok();
    cloud.put(&format!("{PATH}?upload=true"), template(None)).await.refused(501);
    cloud
        .post(
            "/v0/volume_templates?upload=true&version=3",
            json!({"metadata": {"name": "new"}, "spec": {}}),
        )
        .await
        .refused(501);
    cloud.get("/v0/volume_templates/new").await.refused(404);
}

#[tokio::test]
async fn a_version_with_the_largest_number_leaves_numbers_for_the_next() {
    let stage = stage_with(1_000, 10, false).await;
    stage.upload("&version=18446744073709551615", "data 100").await;
    stage.until("18446744073709551615", "READY").await;
    stage.upload("&version=7", "data 100").await;
    stage.until("7", "READY").await;
    stage.upload("", "data 100").await;
    stage.until("8", "READY").await;
}

#[tokio::test]
async fn a_version_with_a_copy_serves_every_machine() {
    for postgres in [false, true] {
        let mut stage = stage_of(PretendedVolumes::new(1_000).with_service(), 10, postgres).await;
        stage.upload("", "data 100").await;
        stage.until("1", "READY").await;
        stage.until_copied(&[1]).await;
        // Unused, it is only at the service, and comes back for the next volume.
        stage.volumes.release_unused();
        stage.until_kept(&[]).await;
        stage.cloud.post("/v0/volumes", volume("one", "base", Some(100))).await.ok();
        assert_eq!(numbers(&stage.volumes.origins().into_values().collect::<Vec<_>>()), [1]);
        // The machine is lost with all that it had.
        let other = stage.volumes.other_machine();
        stage.restart("another", other).await;
        stage.cloud.post("/v0/volumes", volume("two", "base:1", Some(100))).await.ok();
        assert_eq!(numbers(&stage.volumes.origins().into_values().collect::<Vec<_>>()), [1]);
        stage.until_kept(&[100, 100]).await;
    }
}

#[tokio::test]
async fn without_a_copy_a_version_stays_on_its_machine() {
    let mut stage = stage_with(1_000, 10, false).await;
    stage.upload("", "data 100").await;
    stage.until("1", "READY").await;
    let other = stage.volumes.other_machine().with_service();
    stage.restart("another", other).await;
    let message = stage.cloud.post("/v0/volumes", volume("one", "base", None)).await.refused(400);
    assert!(message.contains("another machine"), "{message}");
    assert!(stage.volumes.copied().is_empty(), "only the machine that has it can copy it");
}

#[tokio::test]
async fn a_copy_that_no_version_has_is_removed() {
    let stage = stage_of(PretendedVolumes::new(1_000).with_service(), 2, false).await;
    for version in ["1", "2", "3"] {
        stage.upload("", "data 100").await;
        stage.until(version, "READY").await;
    }
    stage.until_copied(&[2, 3]).await;
    let kept = stage.volumes.names();
    let Some(KeptFor::Template { id, .. }) = kept[0].kept_for() else { panic!("{kept:?}") };
    // What a kill, or an upload that came too late, has left.
    for (id, number) in [(id, 1), (ResourceId::known("res_gone"), 7)] {
        stage.volumes.leave_copy(&VolumeName::of(&KeptFor::Template { id, number }));
    }
    stage.until_copied(&[2, 3]).await;
    // What is awaited may be on its way.
    stage.upload("", "waits 100").await;
    stage.cloud.delete(&format!("{PATH}/versions/3")).await.ok();
    stage.until_copied(&[2]).await;
    stage.builder.open();
    stage.until("4", "READY").await;
    stage.until_copied(&[2, 4]).await;
    stage.cloud.delete(PATH).await.ok();
    stage.until_copied(&[]).await;
}

#[tokio::test]
async fn versions_from_before_there_was_a_service_are_copied() {
    let mut stage = stage_with(1_000, 10, false).await;
    stage.upload("", "data 100").await;
    stage.until("1", "READY").await;
    let same = stage.volumes.clone().with_service();
    stage.restart("pretended", same).await;
    stage.until_copied(&[1]).await;
    // Its row knows: it may leave this machine now.
    stage.volumes.release_unused();
    stage.until_kept(&[]).await;
    stage.cloud.post("/v0/volumes", volume("one", "base", Some(100))).await.ok();
}
