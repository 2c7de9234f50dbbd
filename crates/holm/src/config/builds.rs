//! Uploads of sources, and the queue of builds; snapshots; drives over S3.

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

/// Drives over the S3 protocol.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct S3 {
    pub(crate) requests_max: u32,
    pub(crate) requests_workspace_max: u32,
    pub(crate) put_mb_max: u32,
    pub(crate) uploads_max: u32,
    pub(crate) upload_life: Span,
    pub(crate) stall: Span,
}

impl S3 {
    pub(crate) fn settings(&self) -> control::S3Limits {
        control::S3Limits {
            requests_max: self.requests_max as usize,
            requests_workspace_max: self.requests_workspace_max as usize,
            put_bytes_max: u64::from(self.put_mb_max) << 20,
            uploads_max: self.uploads_max as usize,
            upload_life: self.upload_life.0,
            stall: self.stall.0,
        }
    }
}

/// Snapshots of sandboxes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Snapshots {
    pub(crate) pending_workspace_max: u32,
    pub(crate) takes_max: u32,
    pub(crate) tidy_every: Span,
    pub(crate) fork_within: Span,
    pub(crate) offload_after: Span,
}

impl Snapshots {
    pub(crate) fn settings(&self) -> control::Snapshots {
        control::Snapshots {
            pending_max: self.pending_workspace_max.into(),
            takes_max: self.takes_max as usize,
            tidy_every: self.tidy_every.0,
            fork_within: self.fork_within.0,
        }
    }
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
