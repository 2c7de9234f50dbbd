//! Uploads of sources, and the queue of builds.

use super::Span;
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Builds {
    pub(crate) upload_mb_max: u32,
    pub(crate) upload_valid: Span,
    pub(crate) upload_timeout: Span,
    pub(crate) upload_idle: Span,
    pub(crate) uploads_max: u32,
    pub(crate) uploads_workspace_max: u32,
    pub(crate) sources_workspace_mb_max: u32,
    pub(crate) open_max: u32,
    pub(crate) open_workspace_max: u32,
    pub(crate) wait_max: Span,
    pub(crate) slots: u32,
    pub(crate) workspace_slots: u32,
    pub(crate) timeout: Span,
    pub(crate) lease: Span,
    pub(crate) attempts_max: u32,
    pub(crate) backoff: Span,
    pub(crate) shown_for: Span,
    pub(crate) template_versions_max: u32,
}

impl Builds {
    pub(crate) fn settings(&self) -> control::builds::Settings {
        let bytes = |mb: u32| u64::from(mb) << 20;
        control::builds::Settings {
            upload_bytes_max: bytes(self.upload_mb_max),
            upload_valid: self.upload_valid.0,
            upload_timeout: self.upload_timeout.0,
            upload_idle: self.upload_idle.0,
            uploads_max: self.uploads_max.into(),
            uploads_workspace_max: self.uploads_workspace_max.into(),
            sources_workspace_bytes_max: bytes(self.sources_workspace_mb_max),
            open_max: self.open_max.into(),
            open_workspace_max: self.open_workspace_max.into(),
            wait_max: self.wait_max.0,
            slots: self.slots,
            workspace_slots: self.workspace_slots,
            timeout: self.timeout.0,
            lease: self.lease.0,
            attempts_max: self.attempts_max,
            backoff: self.backoff.0,
            shown_for: self.shown_for.0,
            template_versions_max: self.template_versions_max as usize,
            ..control::builds::Settings::default()
        }
    }
}
