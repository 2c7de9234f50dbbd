//! What one build may use of the machine that runs it.

use super::builds::Builds;
use serde::Deserialize;
use std::path::PathBuf;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Builder {
    pub(crate) sources_mb_max: u64,
    pub(crate) sources_files_max: u64,
    pub(crate) sources_ratio_max: u64,
    pub(crate) memory_mb: u32,
    pub(crate) disk_mb: u32,
    pub(crate) layers_max: u32,
    pub(crate) add_mb_max: u64,
    pub(crate) cache_mb: u64,
    pub(crate) kept_folder_mb: u32,
    pub(crate) kept_folders_max: u32,
    pub(crate) kept_mb: u64,
    pub(crate) log_kb_max: u64,
    pub(crate) network: bool,
    pub(crate) inside: Vec<String>,
    pub(crate) python_image: String,
    pub(crate) node_image: String,
    pub(crate) sandbox_images: Vec<String>,
}

impl Builder {
    /// Returns the numbers that must not be zero, with their keys.
    pub(super) fn counts(&self) -> [(&'static str, u64); 11] {
        [
            ("builder.sources_mb_max", self.sources_mb_max),
            ("builder.sources_files_max", self.sources_files_max),
            ("builder.sources_ratio_max", self.sources_ratio_max),
            ("builder.memory_mb", self.memory_mb.into()),
            ("builder.disk_mb", self.disk_mb.into()),
            ("builder.layers_max", self.layers_max.into()),
            ("builder.add_mb_max", self.add_mb_max),
            ("builder.cache_mb", self.cache_mb),
            ("builder.kept_folder_mb", self.kept_folder_mb.into()),
            ("builder.kept_folders_max", self.kept_folders_max.into()),
            ("builder.log_kb_max", self.log_kb_max),
        ]
    }

    /// Returns all image names, each with the key that it was set by.
    pub(super) fn images(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let languages = [
            ("builder.python_image", &self.python_image),
            ("builder.node_image", &self.node_image),
        ];
        let vendors = self.sandbox_images.iter().map(|image| ("builder.sandbox_images", image));
        languages.into_iter().chain(vendors)
    }

    /// Returns the settings for the builder on this machine, which keeps its files in `folder`, and
    /// no more of earlier builds than `kept_mb`.
    pub(crate) fn settings(
        &self,
        builds: &Builds,
        folder: PathBuf,
        kept_mb: admission::Limits,
    ) -> host::BuildSettings {
        let mut settings = host::BuildSettings::new(folder);
        settings.sources_bytes_max = u64::from(builds.upload_mb_max).saturating_mul(MIB);
        settings.unpacked_bytes_max = self.sources_mb_max.saturating_mul(MIB);
        settings.sources_entries_max = self.sources_files_max;
        settings.sources_ratio_max = self.sources_ratio_max;
        settings.memory_mb = self.memory_mb;
        settings.disk_mb = self.disk_mb;
        settings.layers_max = self.layers_max as usize;
        settings.add_bytes_max = self.add_mb_max.saturating_mul(MIB);
        settings.cache_bytes_max = self.cache_mb.saturating_mul(MIB);
        settings.cache_mount_mb = self.kept_folder_mb;
        settings.cache_mounts_max = self.kept_folders_max as usize;
        settings.kept_mb = kept_mb;
        settings.log_bytes_max = self.log_kb_max.saturating_mul(KIB);
        settings.has_network = self.network;
        // The queue decides how many builds run at a time and how long one may take.
        settings.time_max = builds.timeout.0;
        settings.parallel_max = builds.slots as usize;
        settings.workspace_parallel_max = builds.workspace_slots as usize;
        settings.inside.clone_from(&self.inside);
        settings.python_image.clone_from(&self.python_image);
        settings.node_image.clone_from(&self.node_image);
        settings.sandbox_images.clone_from(&self.sandbox_images);
        settings
    }
}
