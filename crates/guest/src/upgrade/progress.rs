//! How far the last upgrade got.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    #[default]
    Idle,
    Running,
    Completed,
    Failed,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Step {
    #[default]
    None,
    Starting,
    Download,
    Validate,
    Replace,
    Completed,
}

/// The last upgrade, as `GET /health` shows it.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Upgrade {
    pub(super) status: Status,
    pub(super) step: Step,
    pub(super) version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_attempt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) download_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bytes_downloaded: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) binary_path: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Upgrades {
    /// Number of upgrades that succeeded.
    pub(crate) count: u64,
    pub(crate) last: Upgrade,
}

impl Upgrades {
    /// Marks the last upgrade as successful, which the new program does.
    pub(crate) fn succeeded(self) -> Self {
        let last = Upgrade { status: Status::Completed, step: Step::Completed, ..self.last };
        Self { count: self.count + 1, last }
    }
}
