//! Volumes that a workload mounts.

use super::{limits, names};
use crate::{KindName, Problems, Reference};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VolumeType {
    #[default]
    Persistent,
    Ephemeral,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttachment {
    #[schemars(length(max = 49), regex(pattern = limits::ONE_LINE))]
    pub name: Option<String>,
    #[schemars(length(max = limits::PATH_MAX))]
    pub mount_path: Option<String>,
    pub read_only: Option<bool>,
    /// Size in megabytes, for ephemeral volumes only.
    #[schemars(range(min = 1, max = limits::DISK_MB_MAX))]
    pub size_mb: Option<i64>,
    /// Persistent if absent.
    #[serde(rename = "type")]
    pub kind: Option<VolumeType>,
}

impl VolumeAttachment {
    pub fn is_persistent(&self) -> bool {
        self.kind.unwrap_or_default() == VolumeType::Persistent
    }

    /// Checks names, sizes and mount paths, and that there are at most `persistent_max` persistent
    /// volumes.
    pub fn check_all(volumes: &[Self], persistent_max: usize, problems: &mut Problems) {
        let mut names = BTreeSet::new();
        for (index, volume) in volumes.iter().enumerate() {
            let at = format!("spec.volumes[{index}]");
            let name = volume.name.as_deref().unwrap_or_default();
            problems.require(!name.is_empty(), format!("{at}.name"), "is required");
            problems.require(names.insert(name), format!("{at}.name"), "is attached twice");
            let sized = volume.is_persistent() || volume.size_mb.is_some();
            problems.require(sized, format!("{at}.sizeMb"), "is required for ephemeral volumes");
        }
        check_mounts(volumes.iter().map(|volume| volume.mount_path.as_deref()), problems);
        let persistent = volumes.iter().filter(|volume| volume.is_persistent()).count();
        let message = format!("may hold at most {persistent_max} persistent volumes");
        problems.require(persistent <= persistent_max, "spec.volumes", message);
        check_ephemeral_count(volumes.len() - persistent, problems);
    }

    /// Returns the persistent volumes, which must exist.
    pub fn references(volumes: Option<&[Self]>) -> Vec<Reference> {
        let attached = volumes
            .unwrap_or_default()
            .iter()
            .enumerate()
            .filter(|(_, volume)| volume.is_persistent());
        let reference = |(index, volume): (usize, &Self)| {
            let field = format!("spec.volumes[{index}].name");
            volume.name.clone().map(|name| Reference { kind: KindName::Volume, name, field })
        };
        attached.filter_map(reference).collect()
    }
}

/// Most ephemeral volumes of one instance. The machine refuses more, but only when it starts them.
const EPHEMERAL_MAX: usize = 16;

pub fn check_ephemeral_count(count: usize, problems: &mut Problems) {
    let message = format!("may hold at most {EPHEMERAL_MAX} ephemeral volumes");
    problems.require(count <= EPHEMERAL_MAX, "spec.volumes", message);
}

/// Folders on or in which no volume may be mounted: it would take them from the image's programs or
/// from the server.
const KERNEL_FOLDERS: [&str; 3] = ["dev", "proc", "sys"];
/// Folders that must not be hidden by a volume; a volume may be mounted inside them.
const SYSTEM_FOLDERS: [&str; 15] = [
    "bin",
    "boot",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "run",
    "sbin",
    "usr",
    "usr/bin",
    "usr/lib",
    "usr/sbin",
    "var",
    "var/lib",
    "var/secrets",
];

/// Checks that mount paths are absolute, hide nothing of the system, and are not nested.
pub fn check_mounts<'a>(paths: impl Iterator<Item = Option<&'a str>>, problems: &mut Problems) {
    let mut seen: Vec<String> = Vec::new();
    for (index, path) in paths.enumerate() {
        let field = format!("spec.volumes[{index}].mountPath");
        let path = path.unwrap_or_default();
        if !names::is_absolute_path(path) {
            problems.add(field, names::ABSOLUTE_PATH);
            continue;
        }
        let place = mount_place(path);
        if hides_system(&place) {
            problems
                .add(field, "would hide a folder of the system: choose another, such as `/data`");
        } else if seen.contains(&place) {
            problems.add(field, "is used by another volume");
        } else if seen.iter().any(|other| is_inside(&place, other) || is_inside(other, &place)) {
            problems.add(field, "is inside of another volume, or around one");
        }
        seen.push(place);
    }
}

/// Returns the normalized place of a mount path, or `None` if a mount there would hide the system.
pub fn free_place(path: &str) -> Option<String> {
    let place = mount_place(path);
    (names::is_absolute_path(path) && !hides_system(&place)).then_some(place)
}

/// Returns true if the places are equal, or one is inside the other.
pub fn overlap(one: &str, other: &str) -> bool {
    one == other || is_inside(one, other) || is_inside(other, one)
}

/// Normalizes a mount path: the result is the same for all spellings.
pub fn mount_place(path: &str) -> String {
    let steps = path.split('/').filter(|step| !step.is_empty() && *step != ".");
    steps.fold(String::new(), |place, step| place + "/" + step)
}

fn is_inside(place: &str, other: &str) -> bool {
    place.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'))
}

fn hides_system(place: &str) -> bool {
    let Some(inside) = place.strip_prefix('/') else { return true };
    let first = inside.split('/').next().unwrap_or_default();
    KERNEL_FOLDERS.contains(&first) || SYSTEM_FOLDERS.contains(&inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problems(paths: &[&str]) -> usize {
        let mut problems = Problems::default();
        check_mounts(paths.iter().map(|path| Some(*path)), &mut problems);
        problems.iter().count()
    }

    #[test]
    fn more_ephemeral_volumes_than_an_instance_can_have_are_refused() {
        let refusals = |count: usize| {
            let one = |index: usize| VolumeAttachment {
                name: Some(format!("v{index}")),
                mount_path: Some(format!("/v{index}")),
                size_mb: Some(1),
                kind: Some(VolumeType::Ephemeral),
                ..VolumeAttachment::default()
            };
            let mut problems = Problems::default();
            let volumes: Vec<_> = (0..count).map(one).collect();
            VolumeAttachment::check_all(&volumes, 0, &mut problems);
            problems.iter().count()
        };
        assert_eq!((refusals(EPHEMERAL_MAX), refusals(EPHEMERAL_MAX + 1)), (0, 1));
    }

    #[test]
    fn nothing_of_the_system_is_hidden() {
        for good in ["/data", "/home/me/x", "/usr/local", "/var/data", "/etcetera", "//data/./x/"] {
            assert_eq!(problems(&[good]), 0, "{good}");
        }
        for bad in ["/", "/.", "//", "/etc", "/etc/", "/./usr//bin", "/proc/self", "/dev/shm", "x"]
        {
            assert_eq!(problems(&[bad]), 1, "{bad}");
        }
        assert_eq!(problems(&["/data", "/data/in"]), 1);
        assert_eq!(problems(&["/data/in", "/data"]), 1);
        assert_eq!(problems(&["/data", "/data2"]), 0);
    }

    proptest! {
        #[test]
        fn what_passes_is_a_plain_place(path in "[/.a-z]{0,20}") {
            if problems(&[&path]) == 0 {
                let place = mount_place(&path);
                prop_assert!(place.starts_with('/') && place.len() > 1);
                let plain = |step: &str| !["", ".", ".."].contains(&step);
                prop_assert!(place[1..].split('/').all(plain));
            }
        }
    }
}
