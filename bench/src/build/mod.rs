//! Builds: of folders that users upload, beside `buildah`, and of this program itself.

mod buildah;
mod folder;
mod fresh;
mod uploads;

use crate::cloud::{Setting, with_setting};
use crate::machine;
use crate::program::{self, Parts};
use crate::report::Goal;
use anyhow::ensure;
pub(crate) use folder::pack;
use std::path::Path;

const PARTS: [&str; 3] = ["cached", "cold", "fresh"];

/// Measures the named parts, or all.
pub(crate) async fn run(parts: &[String]) -> anyhow::Result<()> {
    for part in parts {
        let known = PARTS.contains(&part.as_str());
        ensure!(known, "there is no part `{part}`; there are: {}", PARTS.join(", "));
    }
    let chosen = |part: &str| parts.is_empty() || parts.iter().any(|chosen| chosen == part);
    println!("Folders with a Dockerfile of {} RUN lines, on a base of busybox.", folder::RUNS);
    println!("buildah    {}", machine::said("buildah", &["--version"]));
    let place = tempfile::Builder::new().prefix("holm-bench-build-").tempdir()?;
    let setting = setting(place.path())?;
    let mut report = machine::begin(place.path()).await?;
    if chosen("cached") || chosen("cold") {
        let at = place.path();
        with_setting(setting, async |cloud| {
            if chosen("cached") {
                uploads::cached(&mut report, cloud).await?;
            }
            if chosen("cold") {
                uploads::cold(&mut report, cloud, at).await?;
            }
            Ok(())
        })
        .await?;
    }
    if chosen("fresh") {
        fresh::measure(&mut report).await?;
    }
    report.set_goal("build_cached_ms", Goal::AtMost(500.0));
    report.set_goal("build_cold_ratio", Goal::AtMost(1.0));
    report.finish("build")
}

fn setting(place: &Path) -> anyhow::Result<Setting> {
    let program = program::build()?;
    let parts = Parts { guest: program::find_guest()?, images: place.join("images") };
    folder::make_image(place)?;
    Ok(Setting { program, parts, database: None, more: Vec::new() })
}
