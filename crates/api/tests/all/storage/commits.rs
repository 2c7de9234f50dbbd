//! Objects with something outside the database, whose commit is not answered.

use super::volumes::{named, until_kept};
use crate::common::machine::{IMAGE, Pretended};
use crate::common::volumes::{DRIVE_MB, PretendedVolumes};
use crate::common::{Answer, Cloud};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use testing::{Cut, Way};
use types::instance::Outcome;

/// A control plane whose next commit that concerns `NAME` is cut.
struct Scene {
    cloud: Cloud,
    machine: Arc<Pretended>,
    volumes: PretendedVolumes,
    way: Way,
}

const NAME: &str = "cut-in-two";

impl Scene {
    async fn with(cut: Cut) -> Self {
        let volumes = PretendedVolumes::new(2_000);
        let machine = Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes);
        let machine = Arc::new(machine);
        let way = Way::to(&testing::postgres());
        let cloud = Cloud::start_over(way.url(), machine.clone()).await;
        way.cut_commit_of(NAME, cut);
        Self { cloud, machine, volumes, way }
    }

    async fn create(&self, path: &str, wish: &Value) -> Answer {
        let key = [("idempotency-key", "one")];
        self.cloud.call_with(Method::POST, path, &key, Some(wish.clone())).await
    }

    /// Asks for an object, and checks what is said when its commit is not answered.
    async fn create_cut(&self, path: &str, wish: &Value) {
        let answer = self.create(path, wish).await;
        assert!(self.way.has_cut(), "another commit was meant: {}", answer.body);
        assert_eq!(answer.headers["retry-after"], "1");
        let message = answer.refused(503);
        assert!(message.contains("it may have been done"), "{message}");
    }
}

/// Checks that an object has its row and its file system, or neither, and that there is one of each
/// after a repetition of the request.
async fn check_kept(path: &str, wish: Value, size_mb: u32) {
    for cut in [Cut::Before, Cut::After] {
        let scene = Scene::with(cut).await;
        scene.create_cut(path, &wish).await;
        let object = format!("{path}/{NAME}");
        match cut {
            Cut::Before => {
                scene.cloud.get(&object).await.refused(404);
                until_kept(&scene.volumes, &[]).await;
            }
            Cut::After => {
                scene.cloud.get(&object).await.ok();
                assert_eq!(scene.volumes.sizes(), [size_mb]);
            }
        }
        scene.create(path, &wish).await.ok();
        scene.cloud.get(&object).await.ok();
        until_kept(&scene.volumes, &[size_mb]).await;
        scene.cloud.delete(&object).await.ok();
        until_kept(&scene.volumes, &[]).await;
    }
}

#[tokio::test]
async fn a_volume_keeps_its_files_if_its_row_may_be_there() {
    let wish = json!({"metadata": {"name": NAME}, "spec": {"size": 700}});
    check_kept("/v0/volumes", wish, 700).await;
}

#[tokio::test]
async fn a_drive_keeps_its_files_if_its_row_may_be_there() {
    check_kept("/v0/drives", named(NAME), DRIVE_MB).await;
}

#[tokio::test]
async fn a_sandbox_keeps_its_instance_if_its_row_may_be_there() {
    let wish = json!({"metadata": {"name": NAME}, "spec": {"runtime": {"image": IMAGE}}});
    for cut in [Cut::Before, Cut::After] {
        let scene = Scene::with(cut).await;
        scene.create_cut("/v0/sandboxes", &wish).await;
        let first = scene.machine.until_launched(1).await.remove(0).instance;
        let sandbox = format!("/v0/sandboxes/{NAME}");
        match cut {
            Cut::Before => {
                scene.cloud.get(&sandbox).await.refused(404);
                scene.machine.until_retired(first.as_str()).await;
                let gone = async {
                    while scene.cloud.routes.has(NAME) {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
            }
            Cut::After => {
                let serves = |route: &types::edge::WorkloadRoute| {
                    format!("{:?}", route.serving).contains(first.as_str())
                };
                scene.cloud.routes.until(NAME, serves).await;
                assert_eq!(scene.machine.names(), [first.to_string()]);
            }
        }
        scene.create("/v0/sandboxes", &wish).await.ok();
        let seen = scene.cloud.until(&sandbox, |it| it["status"] == "DEPLOYED").await;
        assert!(seen["errors"].is_null(), "{seen}");
        assert_eq!(scene.machine.names().len(), 1);
    }
}
