//! What the program decides about builds.

use std::path::PathBuf;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

#[derive(Debug, Clone)]
pub struct Settings {
    /// For sources and for folders that stay between builds.
    pub folder: PathBuf,
    /// Of an archive, as it is uploaded.
    pub sources_bytes_max: u64,
    /// Of what is in it, unpacked.
    pub unpacked_bytes_max: u64,
    pub sources_entries_max: u64,
    /// Unpacked over packed.
    pub sources_ratio_max: u64,
    /// For one build, from its turn on.
    pub time_max: Duration,
    /// Of the instance of one RUN.
    pub memory_mb: u32,
    /// For what one step writes.
    pub disk_mb: u32,
    pub layers_max: usize,
    /// Builds at a time, and of one workspace.
    pub parallel_max: usize,
    pub workspace_parallel_max: usize,
    /// Of one file that ADD fetches.
    pub add_bytes_max: u64,
    /// Of the steps that are remembered for one workspace.
    pub cache_bytes_max: u64,
    /// Of one folder that `RUN --mount=type=cache` asks for, and of how many a workspace may have.
    pub cache_mount_mb: u32,
    pub cache_mounts_max: usize,
    /// Of what the steps of one build print.
    pub log_bytes_max: u64,
    /// Whether a RUN reaches the internet.
    pub has_network: bool,
    /// Hosts that ADD may fetch from although they are not on the internet.
    pub inside: Vec<String>,
    /// Images that folders without a Dockerfile begin with.
    pub python_image: String,
    pub node_image: String,
    /// Repositories of the vendor's sandbox image, whose program this machine serves itself.
    pub sandbox_images: Vec<String>,
}

impl Settings {
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            sources_bytes_max: 2 * GIB,
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
            log_bytes_max: 64 * MIB,
            has_network: true,
            inside: Vec::new(),
            python_image: "holm/base".to_owned(),
            node_image: "holm/base".to_owned(),
            sandbox_images: vec!["ghcr.io/blaxel-ai/sandbox".to_owned()],
        }
    }

    /// With steps that a small machine can run too.
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
