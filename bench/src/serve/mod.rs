//! Agents that answer requests: the way to a warm one beside nginx, the first answer of one that
//! was scaled to zero, and whether any request is lost while revisions change.

pub(crate) mod agents;
mod cold;
mod python;
mod rollout;

use crate::cloud::{Cloud, Setting, with_setting};
use crate::gateway::beside_nginx;
use crate::machine;
use crate::program::{self, Parts};
use crate::report::{Goal, Report};
use agents::{Agent, IMAGE};
use anyhow::ensure;
use images::{Config, Overlay, Settings, Store};
use std::fs;
use std::path::Path;
use std::time::Duration;

const PARTS: [&str; 4] = ["warm", "cold", "python", "rollout"];
/// A replica stays for the whole measurement.
const LONG: Duration = Duration::from_secs(600);
/// A replica goes as soon as it has nothing to do.
const SHORT: Duration = Duration::from_millis(50);

/// Measures the named parts, or all.
pub(crate) async fn run(parts: &[String]) -> anyhow::Result<()> {
    for part in parts {
        let known = PARTS.contains(&part.as_str());
        ensure!(known, "there is no part `{part}`; there are: {}", PARTS.join(", "));
    }
    let chosen = |part: &str| parts.is_empty() || parts.iter().any(|chosen| chosen == part);
    println!("Agents of a small static server, which answers 1 KiB; a key is checked each time.");
    println!("nginx      {}", machine::said_aside("nginx", &["-v"]));
    let place = tempfile::Builder::new().prefix("holm-bench-serve-").tempdir()?;
    program::build()?;
    program::find_guest()?;
    make_image(place.path())?;
    let mut report = machine::begin(place.path()).await?;
    if chosen("warm") {
        let setting = setting(place.path(), LONG)?;
        report = with_setting(setting, async |cloud| warm(report, cloud).await).await?;
    }
    if chosen("cold") {
        let setting = setting(place.path(), SHORT)?;
        with_setting(setting, async |cloud| cold::measure(&mut report, cloud).await).await?;
    }
    if chosen("python") {
        let parts = Parts::find(&program::build()?, python::IMAGE)?;
        let setting = Setting { parts, ..setting(place.path(), SHORT)? };
        with_setting(setting, async |cloud| python::measure(&mut report, cloud).await).await?;
    }
    if chosen("rollout") {
        let setting = setting(place.path(), LONG)?;
        with_setting(setting, async |cloud| rollout::measure(&mut report, cloud).await).await?;
    }
    report.set_goal("added_p50_us", Goal::AtMost(100.0));
    report.add_ratio_to("rps_per_nginx", "rps", "nginx", Goal::AtLeast(0.7));
    report.set_goal("cold_p50_ms", Goal::AtMost(25.0));
    for metric in ["first_request_failures", "rollout_failures", "rollback_failures"] {
        report.set_goal(metric, Goal::AtMost(0.0));
    }
    report.set_goal("canary_off_percent", Goal::AtMost(1.0));
    report.finish("serve")
}

async fn warm(report: Report, cloud: &Cloud) -> anyhow::Result<Report> {
    let agent = Agent::deploy(cloud, "warm", "x").await?;
    agent.ask(&mut agent.http(cloud).await?).await?;
    let report = beside_nginx(report, cloud, agents::PORT, agent.path()).await;
    agent.remove(cloud).await?;
    report
}

/// Configures a server whose replicas stay for `stay` without requests.
fn setting(place: &Path, stay: Duration) -> anyhow::Result<Setting> {
    let parts = Parts { guest: program::find_guest()?, images: place.join("images") };
    let stay = format!("{}ms", stay.as_millis());
    let more =
        vec![("HOLM_DEPLOYMENTS__EXTRA_IDLE", stay.clone()), ("HOLM_DEPLOYMENTS__LAST_IDLE", stay)];
    Ok(Setting { program: program::build()?, parts, database: None, more })
}

fn make_image(place: &Path) -> anyhow::Result<()> {
    let workload = program::build_workload()?;
    let root = place.join("root");
    fs::create_dir_all(root.join("bin"))?;
    fs::create_dir_all(root.join("tmp"))?;
    fs::copy(workload, root.join("bin/workload"))?;
    let archive = place.join("root.tar");
    crate::peers::finish(
        std::process::Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg("."),
    )?;
    let settings = Settings { overlay: Overlay::User, ..Settings::default() };
    let store = Store::open(&place.join("images"), settings)?;
    let config = Config { entrypoint: vec!["/bin/workload".to_owned()], ..Config::default() };
    store.import_rootfs(fs::read(archive)?.as_slice(), &config, &IMAGE.parse()?)?;
    Ok(())
}
