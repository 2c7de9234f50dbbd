//! What a server has on the machine, seen from outside.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use testing::machine;

/// Findings by category.
pub(super) type Found = BTreeMap<&'static str, Vec<String>>;

pub(super) fn found(data: &Path) -> Found {
    let groups = machine::groups(data).unwrap();
    let images = data.join("images");
    let scratch: Vec<_> = names(&images.join("scratch"))
        .into_iter()
        .flat_map(|user| names(&images.join("scratch").join(user)))
        .filter(|name| name != "lock")
        .collect();
    BTreeMap::from([
        ("instances", groups.iter().map(|group| group.display().to_string()).collect()),
        ("records of instances", of_instances(&data.join("node/instances"))),
        ("leases of images", of_instances(&data.join("node/leases"))),
        ("disks", names(&data.join("node/scratch"))),
        ("mounts", mounts(data)),
        ("users of the images", names(&images.join("scratch"))),
        ("work on images", scratch),
        ("half layers", half_layers(&images.join("layers"))),
        ("half blobs", names(&images.join("partial"))),
        ("images kept for builds", kept(image_names(&images), |name| name.contains("/bld_"))),
        ("uploads to the registry", names(&images.join("uploads"))),
        ("sources of builds", names(&data.join("builds/sources"))),
    ])
}

fn kept(mut all: Vec<String>, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    all.retain(|name| wanted(name));
    all
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.collect()
}

/// Returns the files that are named after an instance. Spares for the next ones have a dot.
fn of_instances(folder: &Path) -> Vec<String> {
    names(folder).into_iter().filter(|name| !name.contains('.')).collect()
}

/// Returns layers without their files, or without the mark that they are complete.
fn half_layers(layers: &Path) -> Vec<String> {
    let forms = names(layers).into_iter().map(|form| layers.join(form));
    let all = forms.flat_map(|form| names(&form).into_iter().map(move |layer| form.join(layer)));
    let half = all.filter(|layer| ["root", "bytes"].iter().any(|part| !layer.join(part).exists()));
    half.map(|layer| layer.display().to_string()).collect()
}

fn image_names(images: &Path) -> Vec<String> {
    let folder = images.join("names");
    let name = |file: String| -> Option<String> {
        // It may be deleted at this moment.
        let text = fs::read(PathBuf::from(&folder).join(file)).ok()?;
        let named: Value = serde_json::from_slice(&text).ok()?;
        Some(named["name"].as_str()?.to_owned())
    };
    names(&folder).into_iter().filter_map(name).collect()
}

/// Returns mounts of the machine itself. Those of instances are in their own namespaces.
fn mounts(data: &Path) -> Vec<String> {
    let place = data.to_string_lossy().into_owned();
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    all.lines().filter(|line| line.contains(&place)).map(str::to_owned).collect()
}
