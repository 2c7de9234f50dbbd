//! From the upload of a folder to a deployed agent, as clients do it.

use super::buildah::{Buildah, Layers};
use super::folder;
use crate::cloud::Cloud;
use crate::report::Report;
use crate::samples::Samples;
use crate::serve::agents::Agent;
use std::fs;
use std::path::Path;

const CACHED: usize = 20;
const COLD: usize = 5;
/// The number of the folder that does not change.
const UNCHANGED: usize = 0;

/// Uploads the same folder again and again.
pub(crate) async fn cached(report: &mut Report, cloud: &Cloud) -> anyhow::Result<()> {
    let place = tempfile::tempdir()?;
    let archive = archive(place.path(), UNCHANGED)?;
    let (agent, _) = Agent::build(cloud, "cached", &archive).await?;
    let mut times = Samples::default();
    for _ in 0..CACHED {
        times.add(agent.build_again(cloud, &archive).await?);
    }
    report.add("build_cached_ms", times.percentile_ms(50)?, "ms");
    report.add("build_cached_p99_ms", times.percentile_ms(99)?, "ms");
    agent.remove(cloud).await
}

/// Uploads folders that nobody has built before, in turns with `buildah`.
pub(crate) async fn cold(report: &mut Report, cloud: &Cloud, at: &Path) -> anyhow::Result<()> {
    let buildah = Buildah::prepare(at)?;
    // The first of each warms up.
    let place = tempfile::tempdir()?;
    let (agent, _) = Agent::build(cloud, "cold", &archive(place.path(), UNCHANGED + 1)?).await?;
    buildah.build(&place.path().join("folder"), Layers::Each)?;
    let (mut ours, mut layers, mut one) =
        (Samples::default(), Samples::default(), Samples::default());
    for number in 0..COLD {
        let place = tempfile::tempdir()?;
        ours.add(agent.build_again(cloud, &archive(place.path(), UNCHANGED + 2 + number)?).await?);
        let folder = place.path().join("folder");
        layers.add(buildah.build(&folder, Layers::Each)?);
        one.add(buildah.build(&folder, Layers::One)?);
    }
    let (ours, layers) = (ours.percentile_ms(50)?, layers.percentile_ms(50)?);
    report.add("build_cold_ms", ours, "ms");
    report.set_peer("build_cold_ms", "buildah, a layer for each step", layers);
    report.set_peer("build_cold_ms", "buildah, one layer", one.percentile_ms(50)?);
    report.add("build_cold_ratio", ours / layers, "x");
    agent.remove(cloud).await
}

fn archive(place: &Path, number: usize) -> anyhow::Result<Vec<u8>> {
    let (folder, archive) = (place.join("folder"), place.join("folder.tar"));
    folder::write(&folder, number)?;
    folder::pack(&folder, &archive)?;
    Ok(fs::read(archive)?)
}
