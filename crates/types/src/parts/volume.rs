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
    #[schemars(length(max = 49))]
    pub name: Option<String>,
    #[schemars(length(max = limits::PATH_MAX))]
    pub mount_path: Option<String>,
    pub read_only: Option<bool>,
    /// Only of ephemeral volumes.
    #[schemars(range(min = 1, max = limits::DISK_MB_MAX))]
    pub size_mb: Option<i64>,
    /// Persistent when absent.
    #[serde(rename = "type")]
    pub kind: Option<VolumeType>,
}

impl VolumeAttachment {
    fn is_persistent(&self) -> bool {
        self.kind.unwrap_or_default() == VolumeType::Persistent
    }

    /// Names, sizes and mount paths; at most `persistent_max` persistent volumes.
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
    }

    /// The persistent volumes, which must exist.
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

/// Mount paths are absolute and lead to different places.
pub fn check_mounts<'a>(paths: impl Iterator<Item = Option<&'a str>>, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for (index, path) in paths.enumerate() {
        let field = format!("spec.volumes[{index}].mountPath");
        let path = path.unwrap_or_default();
        if !names::is_absolute_path(path) {
            problems.add(field, "must be an absolute path without `..`");
        } else {
            let steps: Vec<&str> =
                path.split('/').filter(|step| !step.is_empty() && *step != ".").collect();
            problems.require(seen.insert(steps), field, "is used by another volume");
        }
    }
}
