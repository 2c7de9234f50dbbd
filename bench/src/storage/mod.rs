//! What a sandbox keeps: the speed of its volumes beside the bare disk, what forks cost, and drives
//! beside other ways to share files.

mod disk;
mod drive;
mod forks;
mod s3;
mod seaweed;
mod signed;

use crate::cloud::{Client, IMAGE, wait_for, with_cloud};
use crate::machine;
use crate::report::Goal;
use anyhow::ensure;
use serde_json::{Value, json};
use std::time::Duration;

const PARTS: [&str; 4] = ["volume", "fork", "drive", "s3"];
/// No sandbox sleeps while it is measured.
const STANDBY: Duration = Duration::from_secs(600);
const TIMEOUT: Duration = Duration::from_secs(60);
const MEMORY_MB: u32 = 4_096;

/// Measures the named parts, or all.
pub(crate) async fn run(parts: &[String]) -> anyhow::Result<()> {
    for part in parts {
        let known = PARTS.contains(&part.as_str());
        ensure!(known, "there is no part `{part}`; there are: {}", PARTS.join(", "));
    }
    let chosen = |part: &str| parts.is_empty() || parts.iter().any(|chosen| chosen == part);
    let place = tempfile::Builder::new().prefix("holm-bench-storage-").tempdir()?;
    let mut report = machine::begin(place.path()).await?;
    if chosen("volume") {
        with_cloud(STANDBY, async |cloud| disk::measure(&mut report, cloud, place.path()).await)
            .await?;
    }
    if chosen("fork") {
        with_cloud(STANDBY, async |cloud| forks::measure(&mut report, cloud).await).await?;
    }
    if chosen("drive") {
        with_cloud(STANDBY, async |cloud| drive::measure(&mut report, cloud, place.path()).await)
            .await?;
    }
    if chosen("s3") {
        with_cloud(STANDBY, async |cloud| s3::measure(&mut report, cloud, place.path()).await)
            .await?;
    }
    for metric in ["fork_10gb_ms", "fork_depth20_ms", "snapshot_pause_ms"] {
        report.set_goal(metric, Goal::AtMost(100.0));
    }
    report.set_goal("fork100_ms", Goal::AtMost(1_500.0));
    report.finish("storage")
}

/// Creates a sandbox, with volumes if there are any, and waits until it runs.
async fn make_sandbox(client: &mut Client, name: &str, volumes: &Value) -> anyhow::Result<()> {
    let runtime = json!({"generation": "mk2", "image": IMAGE, "memory": MEMORY_MB});
    let mut wish = json!({"metadata": {"name": name}, "spec": {"runtime": runtime}});
    if !volumes.is_null() {
        wish["spec"]["volumes"] = volumes.clone();
    }
    client.ask("POST", "/v0/sandboxes", &wish).await?;
    let ready = async || {
        let path = format!("/v0/sandboxes/{name}");
        Ok(client.ask("GET", &path, &Value::Null).await?["status"] == "DEPLOYED")
    };
    wait_for(TIMEOUT, "the sandbox is not ready", ready).await
}

/// Escapes text for single quotes in a shell.
fn quoted(text: &str) -> String {
    text.replace('\'', r"'\''")
}
