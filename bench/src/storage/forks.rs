//! Forks: of a sandbox with ten gigabytes on its disk, of one at the end of a chain, and a hundred
//! of one at once; each until the output of a first command in it.

use crate::cloud::{Client, Cloud, IMAGE, wait_for};
use crate::report::Report;
use crate::samples::Samples;
use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const DISK_MB: u32 = 12_288;
const DATA_MB: u32 = 10_240;
const DEPTH: usize = 20;
const AT_ONCE: usize = 100;
const CALLERS: usize = 16;
const FORKS: usize = 10;
const READY_MAX: Duration = Duration::from_secs(120);
/// Prints, once asked to end, the longest time in milliseconds in which it did not run.
const TICKER: &str = r#"python3 -c "
import os, time
longest, last = 0, time.monotonic()
open('/tmp/ticks', 'w').close()
while os.path.exists('/tmp/ticks'):
    time.sleep(0.001)
    now = time.monotonic()
    longest, last = max(longest, now - last), now
print(longest * 1000)
""#;

pub(crate) async fn measure(report: &mut Report, cloud: &Cloud) -> anyhow::Result<()> {
    let mut client = cloud.client().await?;
    make(&mut client, "large", Some(DISK_MB)).await?;
    let fill = format!("dd if=/dev/zero of=/large bs=1M count={DATA_MB} 2>&1; sync");
    client.run("large", &fill).await?;
    report.add("fork_10gb_ms", several(&mut client, "large").await?.percentile_ms(50)?, "ms");
    cloud.clear().await?;

    let mut client = cloud.client().await?;
    make(&mut client, "chain-0", None).await?;
    for depth in 0..DEPTH {
        let (from, to) = (format!("chain-{depth}"), format!("chain-{}", depth + 1));
        client.run(&from, &format!("head -c 1000000 /dev/urandom > /file-{depth}")).await?;
        fork(&mut client, &from, &to).await?;
    }
    let last = format!("chain-{DEPTH}");
    report.add("fork_depth20_ms", several(&mut client, &last).await?.percentile_ms(50)?, "ms");
    pause(report, cloud, &mut client, &last).await?;
    hundred(report, cloud, &mut client, &last).await?;
    cloud.clear().await
}

async fn make(client: &mut Client, name: &str, disk_mb: Option<u32>) -> anyhow::Result<()> {
    let mut runtime = json!({"generation": "mk2", "image": IMAGE, "memory": 1_024});
    if let Some(disk_mb) = disk_mb {
        runtime["storageMb"] = json!(disk_mb);
    }
    let wish = json!({"metadata": {"name": name}, "spec": {"runtime": runtime}});
    client.ask("POST", "/v0/sandboxes", &wish).await?;
    let ready = async || {
        let path = format!("/v0/sandboxes/{name}");
        Ok(client.ask("GET", &path, &Value::Null).await?["status"] == "DEPLOYED")
    };
    wait_for(READY_MAX, "the sandbox is not ready", ready).await
}

/// Measures from the request to what a first command in the fork prints.
async fn fork(client: &mut Client, from: &str, to: &str) -> anyhow::Result<Duration> {
    from_snapshot(client, from, to, None).await
}

async fn from_snapshot(
    client: &mut Client,
    from: &str,
    to: &str,
    snapshot: Option<&str>,
) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let mut wish = json!({"targetType": "sandbox", "targetName": to});
    if let Some(snapshot) = snapshot {
        wish["snapshotId"] = json!(snapshot);
    }
    client.ask("POST", &format!("/v0/sandboxes/{from}/fork"), &wish).await?;
    let said = client.run(to, "echo up").await?;
    ensure!(said == "up\n", "the fork said {said}");
    Ok(begun.elapsed())
}

async fn several(client: &mut Client, from: &str) -> anyhow::Result<Samples> {
    let mut times = Samples::default();
    for number in 0..FORKS {
        let to = format!("{from}-fork-{number}");
        times.add(fork(client, from, &to).await?);
        client.remove(&to).await?;
    }
    Ok(times)
}

/// Measures how long the sandbox stands still, as a program in it sees that.
async fn pause(
    report: &mut Report,
    cloud: &Cloud,
    client: &mut Client,
    name: &str,
) -> anyhow::Result<()> {
    let mut beside = cloud.client().await?;
    let snapshots = async {
        client.run(name, "until [ -e /tmp/ticks ]; do sleep 0.05; done").await?;
        snapshot(client, name).await?;
        client.run(name, "rm /tmp/ticks").await
    };
    let (told, taken) = tokio::join!(beside.run(name, TICKER), snapshots);
    taken?;
    let told = told?;
    let ms = told.trim().parse().with_context(|| format!("`{told}` is no number"))?;
    report.add("snapshot_pause_ms", ms, "ms");
    Ok(())
}

/// Takes a snapshot and returns its id once it is ready.
async fn snapshot(client: &mut Client, name: &str) -> anyhow::Result<String> {
    let path = format!("/v0/sandboxes/{name}/snapshots");
    let taken = client.ask("POST", &path, &json!({})).await?;
    let id = taken["id"].as_str().context("a snapshot without id")?.to_owned();
    let ready = async || {
        let all = client.ask("GET", &path, &Value::Null).await?;
        let mut all = all.as_array().context("no list of snapshots")?.iter();
        Ok(all.any(|one| one["id"] == id.as_str() && one["status"] == "ready"))
    };
    wait_for(READY_MAX, "the snapshot is not ready", ready).await?;
    Ok(id)
}

/// Makes many forks of one snapshot, requested by several callers at the same time.
async fn hundred(
    report: &mut Report,
    cloud: &Cloud,
    client: &mut Client,
    from: &str,
) -> anyhow::Result<()> {
    let id = snapshot(client, from).await?;
    let mut callers = cloud.clients(CALLERS).await?;
    let begun = Instant::now();
    let each = callers.iter_mut().enumerate().map(|(first, caller)| {
        let id = &id;
        async move {
            for number in (first..AT_ONCE).step_by(CALLERS) {
                let to = format!("many-{number}");
                from_snapshot(caller, from, &to, Some(id)).await?;
            }
            anyhow::Ok(())
        }
    });
    try_join_all(each).await?;
    report.add("fork100_ms", begun.elapsed().as_secs_f64() * 1e3, "ms");
    Ok(())
}
