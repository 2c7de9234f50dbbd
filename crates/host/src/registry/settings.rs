//! The limits of the registry on this machine.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct RegistrySettings {
    /// The disk space for the content of all workspaces.
    pub disk_mb: u64,
    /// The percentage of it that one workspace may have.
    pub share_percent: u32,
    pub blob_bytes_max: u64,
    pub manifest_bytes_max: usize,
    /// Open uploads of all workspaces.
    pub uploads_max: u64,
    /// Open uploads of one workspace.
    pub uploads_workspace_max: u64,
    /// How long an upload stays that nobody continues.
    pub upload_keep: Duration,
    /// How long content stays that no tag leads to.
    pub untagged_keep: Duration,
    /// How long the sender of a body may be silent.
    pub stall: Duration,
}

/// What a server has unless its settings say otherwise, with a disk that suits any machine.
impl Default for RegistrySettings {
    fn default() -> Self {
        Self {
            disk_mb: 1_000,
            share_percent: 80,
            blob_bytes_max: 16 << 30,
            manifest_bytes_max: 4 << 20,
            uploads_max: 1_000,
            uploads_workspace_max: 100,
            upload_keep: Duration::from_secs(24 * 3600),
            untagged_keep: Duration::from_secs(24 * 3600),
            stall: Duration::from_secs(30),
        }
    }
}
