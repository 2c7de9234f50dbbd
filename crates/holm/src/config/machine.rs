//! Settings of the machine that runs instances: how they start, what they share, and their images.

use super::values;
use crate::duration::Span;
use serde::Deserialize;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Node {
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) guest: Option<PathBuf>,
    pub(crate) instances_max: u32,
    pub(crate) ready: u32,
    pub(crate) workspace_share_percent: u32,
    pub(crate) memory_mb: u64,
    pub(crate) processes_max: u64,
    pub(crate) memory_promises: u32,
    pub(crate) disks_max: u32,
    pub(crate) disk_mb: u64,
    pub(crate) volume_mb: u64,
    pub(crate) drive_mb: u32,
    pub(crate) pids_max: u32,
    pub(crate) open_files_max: u64,
    pub(crate) terminals_max: u32,
    pub(crate) connections_max: u32,
    pub(crate) connections_workspace_max: u32,
    pub(crate) questions_per_s: u32,
    pub(crate) tunnels_max: u32,
    pub(crate) subnet: String,
    pub(crate) first_uid: u32,
    pub(crate) egress: Egress,
    pub(crate) nameservers: Vec<IpAddr>,
    pub(crate) backend: Backend,
    pub(crate) runc: PathBuf,
}

impl Node {
    pub(crate) fn limits(&self) -> node::Limits {
        let told = |number: u64| Some(number).filter(|number| *number > 0);
        node::Limits {
            instances: self.instances_max,
            memory_mb: told(self.memory_mb),
            memory_promises: self.memory_promises,
            processes: told(self.processes_max),
            disks: self.disks_max,
            disk_mb: told(self.disk_mb),
            volume_mb: told(self.volume_mb),
            drive_mb: Some(self.drive_mb).filter(|mb| *mb > 0),
            share_percent: self.workspace_share_percent,
            terminals: self.terminals_max,
            connections: self.connections_max,
            owner_connections: self.connections_workspace_max,
            questions_per_s: self.questions_per_s,
            tunnels: self.tunnels_max,
            networks_ready: self.ready,
            open_files: self.open_files_max,
            ..node::Limits::default()
        }
    }
}

/// What starts instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Backend {
    Direct,
    Runc,
}

/// What instances may reach by network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Egress {
    Internet,
    Nothing,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Images {
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) folder: Option<PathBuf>,
    pub(crate) disk_mb: u64,
    pub(crate) image_mb_max: u64,
    pub(crate) inside: Vec<String>,
}

impl Images {
    /// Returns the settings of the image store. The server and the command line share it, so both
    /// must unpack layers for the same kind of overlay.
    pub(crate) fn settings() -> images::Settings {
        images::Settings { overlay: images::Overlay::User, ..images::Settings::default() }
    }
}

/// The registry for the workspaces' own images.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Registry {
    pub(crate) disk_mb: u64,
    pub(crate) blob_mb_max: u64,
    pub(crate) manifest_bytes_max: usize,
    pub(crate) tags_max: usize,
    pub(crate) uploads_max: u64,
    pub(crate) uploads_workspace_max: u64,
    pub(crate) upload_keep: Span,
    pub(crate) untagged_keep: Span,
    pub(crate) stall: Span,
    pub(crate) keep_tags: usize,
    pub(crate) tidy_every: Span,
}

impl Registry {
    pub(crate) fn upkeep(&self) -> control::RegistryUpkeep {
        control::RegistryUpkeep {
            every: self.tidy_every.0,
            tags_max: self.tags_max,
            keep_tags: self.keep_tags,
        }
    }

    pub(crate) fn settings(&self, disk_mb: u64, share_percent: u32) -> host::RegistrySettings {
        host::RegistrySettings {
            disk_mb,
            share_percent,
            blob_bytes_max: self.blob_mb_max.saturating_mul(1 << 20),
            manifest_bytes_max: self.manifest_bytes_max,
            uploads_max: self.uploads_max,
            uploads_workspace_max: self.uploads_workspace_max,
            upload_keep: self.upload_keep.0,
            untagged_keep: self.untagged_keep.0,
            stall: self.stall.0,
        }
    }
}
