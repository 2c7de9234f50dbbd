//! Settings for builds.

use admission::Limits;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder for sources, and for folders that stay between builds.
    pub folder: PathBuf,
    /// The size of an archive as it is uploaded.
    pub sources_bytes_max: u64,
    /// The size of its unpacked content.
    pub unpacked_bytes_max: u64,
    pub sources_entries_max: u64,
    /// The size of the unpacked content divided by that of the archive.
    pub sources_ratio_max: u64,
    /// How long one build may take, after it got its turn.
    pub time_max: Duration,
    /// Memory for the instance of one RUN.
    pub memory_mb: u32,
    /// Disk space for what one step writes.
    pub disk_mb: u32,
    pub layers_max: usize,
    /// How many builds run at once.
    pub parallel_max: usize,
    /// How many builds of one workspace run at once.
    pub workspace_parallel_max: usize,
    /// The size of a file that ADD fetches.
    pub add_bytes_max: u64,
    /// The total size of the cached steps of one workspace.
    pub cache_bytes_max: u64,
    /// The size of one folder for `RUN --mount=type=cache`.
    pub cache_mount_mb: u32,
    /// How many such folders a workspace may have.
    pub cache_mounts_max: usize,
    /// Megabytes of all finished steps and folders together, in total and of one workspace.
    pub kept_mb: Limits,
    /// The size of the output of one build's steps.
    pub log_bytes_max: u64,
    /// Whether a RUN can reach the internet.
    pub has_network: bool,
    /// Hosts that ADD may fetch from although they are not on the internet.
    pub inside: Vec<String>,
    /// Base images for folders without a Dockerfile.
    pub python_image: String,
    pub node_image: String,
    /// Repositories of the vendor's sandbox image. This machine provides its program itself.
    pub sandbox_images: Vec<String>,
}

impl Settings {
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            sources_bytes_max: GIB,
            unpacked_bytes_max: 8 * GIB,
            sources_entries_max: 200_000,
            sources_ratio_max: 200,
            time_max: Duration::from_secs(60 * 60),
            memory_mb: 2_048,
            disk_mb: 8_192,
            layers_max: 200,
            parallel_max: 4,
            workspace_parallel_max: 2,
            add_bytes_max: GIB,
            cache_bytes_max: 20 * GIB,
            cache_mount_mb: 4_096,
            cache_mounts_max: 16,
            kept_mb: Limits { total: u64::MAX, share: u64::MAX },
            log_bytes_max: 64 * MIB,
            has_network: true,
            inside: Vec::new(),
            python_image: "holm/base".to_owned(),
            node_image: "holm/base".to_owned(),
            sandbox_images: vec!["ghcr.io/blaxel-ai/sandbox".to_owned()],
        }
    }

    /// Reduces the limits of steps to what this machine can run.
    pub(super) fn within(self, largest: node::Largest) -> Self {
        let memory_mb = self.memory_mb.min(largest.memory_mb);
        let disk_mb = self.disk_mb.min(largest.disk_mb);
        if (memory_mb, disk_mb) != (self.memory_mb, self.disk_mb) {
            tracing::warn!(
                memory_mb,
                disk_mb,
                "this machine has not what the steps of builds are to get; they get less"
            );
        }
        Self { memory_mb, disk_mb, ..self }
    }
}
