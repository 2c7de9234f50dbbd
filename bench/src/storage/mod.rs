//! What a sandbox keeps: the speed of its volumes beside the bare disk, and what forks cost.

mod disk;
mod forks;

use crate::cloud::with_cloud;
use crate::machine;
use crate::report::Goal;
use anyhow::ensure;
use std::time::Duration;

const PARTS: [&str; 2] = ["volume", "fork"];
/// No sandbox sleeps while it is measured.
const STANDBY: Duration = Duration::from_secs(600);

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
    for metric in ["fork_10gb_ms", "fork_depth20_ms", "snapshot_pause_ms"] {
        report.set_goal(metric, Goal::AtMost(100.0));
    }
    report.set_goal("fork100_ms", Goal::AtMost(1_500.0));
    report.finish("storage")
}
