//! Snapshots, and drives over the S3 protocol.

use super::Span;
use serde::Deserialize;

/// Drives over the S3 protocol.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct S3 {
    pub(crate) requests_max: u32,
    pub(crate) requests_workspace_max: u32,
    pub(crate) heavy_max: u32,
    pub(crate) heavy_workspace_max: u32,
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
            heavy_max: self.heavy_max as usize,
            heavy_workspace_max: self.heavy_workspace_max as usize,
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
            tidy_every: self.tidy_every.0,
            fork_within: self.fork_within.0,
        }
    }
}
