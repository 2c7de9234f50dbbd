//! Many sandboxes on one machine: what a sleeping one costs, and how long it takes until all are
//! awake again.

use crate::cloud::{Client, Cloud, IMAGE, Setting, wait_for, with_cloud, with_setting};
use crate::machine;
use crate::program::{self, Parts};
use crate::report::{Goal, Report};
use anyhow::Context as _;
use futures_util::future::join_all;
use std::fs;
use std::time::{Duration, Instant};

const SANDBOXES: usize = 1000;
/// How many sleep while a server starts.
const SLEEPERS: usize = 4000;
const MAKERS: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(300);
const STANDBY: Duration = Duration::from_secs(2);
/// Time for released memory to become available.
const REST: Duration = Duration::from_secs(5);
/// The kernel takes some seconds to dismantle networks and mounts after their last user is gone.
const LONG_REST: Duration = Duration::from_secs(20);
const MIB: f64 = 1024.0 * 1024.0;

pub(crate) async fn run() -> anyhow::Result<()> {
    println!(
        "{SANDBOXES} sandboxes of {IMAGE} with 2048 MB each, made by {MAKERS} callers. Each has answered a command."
    );
    program::prepare(IMAGE)?;
    let report = machine::begin(&std::env::temp_dir()).await?;
    let report = with_cloud(STANDBY, async |cloud| measure(report, cloud).await).await?;
    // A server of its own: what the first one did must not count against the second.
    let program = program::build()?;
    let parts = Parts::find(&program, IMAGE)?;
    let more = vec![
        ("HOLM_GATEWAY__STANDBY", format!("{}ms", STANDBY.as_millis())),
        // All of them belong to one workspace.
        ("HOLM_NODE__WORKSPACE_SHARE_PERCENT", "100".to_owned()),
    ];
    let setting = Setting { program, parts, database: None, more };
    let mut report = with_setting(setting, async |cloud| start_again(report, cloud).await).await?;
    report.set_goal("mk2_asleep_mib", Goal::AtMost(2.0));
    report.set_goal("asleep_count", Goal::AtLeast(1000.0));
    report.set_goal("wake_all_s", Goal::AtMost(5.0));
    report.set_goal("failures", Goal::AtMost(0.0));
    report.set_goal("left_server_mib", Goal::AtMost(60.0));
    report.set_goal("start_ready_ms", Goal::AtMost(1000.0));
    report.finish("density")
}

async fn measure(mut report: Report, cloud: &mut Cloud) -> anyhow::Result<Report> {
    // What the first sandbox creates for all others is not counted.
    let mut client = cloud.client().await?;
    client.make("first").await?;
    client.run("first", "/bin/true").await?;
    tokio::time::sleep(REST).await;
    let before = Memory::now(cloud)?;

    let begun = Instant::now();
    let made = make_all(&mut cloud.clients(MAKERS).await?, SANDBOXES).await;
    report.add("make_all_s", begun.elapsed().as_secs_f64(), "s");
    wait_for(TIMEOUT, "not all sandboxes sleep", async || Ok(cloud.asleep().await? > made)).await?;
    tokio::time::sleep(REST).await;
    let asleep = Memory::now(cloud)?;
    let each = |now: f64, then: f64| (now - then) / made as f64 / MIB;
    report.add("mk2_asleep_mib", each(asleep.groups, before.groups), "MiB");
    report.add("mk2_asleep_machine_mib", each(before.available, asleep.available), "MiB");
    report.add("mk2_asleep_server_mib", each(asleep.server, before.server), "MiB");
    report.add("asleep_count", made as f64, "");

    let mut visitors = cloud.clients(made).await?;
    let begun = Instant::now();
    let each = visitors
        .iter_mut()
        .enumerate()
        .map(|(number, visitor)| async move { visitor.run(&name(number), "/bin/true").await });
    let answers = join_all(each).await;
    report.add("wake_all_s", begun.elapsed().as_secs_f64(), "s");
    let failed: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    failed.iter().take(5).for_each(|error| report.note(format!("not woken: {error:#}")));
    report.add("failures", (SANDBOXES - made + failed.len()) as f64, "");

    drop(visitors);
    let begun = Instant::now();
    cloud.clear().await?;
    report.add("delete_all_s", begun.elapsed().as_secs_f64(), "s");
    tokio::time::sleep(LONG_REST).await;
    let left = Memory::now(cloud)?;
    report.add("left_machine_mib", (before.available - left.available) / MIB, "MiB");
    report.add("left_server_mib", (left.server - before.server) / MIB, "MiB");
    Ok(report)
}

/// Measures how long a server that was killed with many sandboxes asleep takes until it passes a
/// request to one of them, which is after it has told the gateway about all of them.
async fn start_again(mut report: Report, cloud: &mut Cloud) -> anyhow::Result<Report> {
    let made = make_all(&mut cloud.clients(MAKERS).await?, SLEEPERS).await;
    anyhow::ensure!(made == SLEEPERS, "{made} of {SLEEPERS} were made");
    wait_for(TIMEOUT, "not all sandboxes sleep", async || Ok(cloud.asleep().await? == made))
        .await?;
    cloud.stop();
    let begun = Instant::now();
    cloud.start_again()?;
    let mut client = cloud.client().await?;
    client.knock(&name(SLEEPERS / 2)).await?;
    report.add("start_ready_ms", begun.elapsed().as_secs_f64() * 1e3, "ms");
    Ok(report)
}

fn name(number: usize) -> String {
    format!("dense-{number}")
}

/// Returns how many were created and answered.
async fn make_all(makers: &mut [Client], count: usize) -> usize {
    let each = makers.iter_mut().enumerate().map(|(first, maker)| async move {
        let mut made = 0;
        for number in (first..count).step_by(MAKERS) {
            let name = name(number);
            match maker.make(&name).await {
                Ok(()) if maker.run(&name, "/bin/true").await.is_ok() => made += 1,
                Ok(()) => eprintln!("{name} does not answer"),
                Err(error) => eprintln!("{name} was not made: {error:#}"),
            }
        }
        made
    });
    join_all(each).await.into_iter().sum()
}

/// Bytes of memory, in three different counts.
struct Memory {
    /// What the kernel charges to all sandboxes.
    groups: f64,
    /// What is still available on the whole machine.
    available: f64,
    server: f64,
}

impl Memory {
    fn now(cloud: &Cloud) -> anyhow::Result<Self> {
        let mut groups = 0.0;
        for instance in cloud.instances()? {
            let files = ["memory.usage_in_bytes", "memory.current"].map(|file| instance.join(file));
            let usage = files
                .iter()
                .find_map(|file| fs::read_to_string(file).ok())
                .context("a group without usage")?;
            groups += usage.trim().parse::<f64>()?;
        }
        let machine = fs::read_to_string("/proc/meminfo")?;
        let line = machine
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:"))
            .context("no MemAvailable")?;
        let available_kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(Self {
            groups,
            available: available_kib * 1024.0,
            server: cloud.process().resident_bytes()? as f64,
        })
    }
}
