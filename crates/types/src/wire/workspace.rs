//! Workspaces.

use super::Role;
use crate::Timestamp;
use crate::parts::{Labels, limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// Unique. Cannot be changed.
    #[schemars(length(min = 1, max = 49), regex(pattern = limits::DNS_LABEL))]
    pub name: Option<String>,
    #[schemars(length(max = 63), regex(pattern = limits::ONE_LINE))]
    pub display_name: Option<String>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub account_id: Option<String>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub group_mappings: Option<Vec<GroupWorkspaceMapping>>,
    pub hipaa_info: Option<WorkspaceHipaaInfo>,
    #[schemars(schema_with = "limits::labels")]
    pub labels: Option<Labels>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub region: Option<String>,
    pub runtime: Option<WorkspaceRuntime>,
    #[serde(skip_deserializing)]
    pub id: Option<String>,
    /// Number of resources of each kind, if requested.
    #[serde(skip_deserializing)]
    pub resource_counts: Option<BTreeMap<String, i64>>,
    #[serde(skip_deserializing)]
    pub status: Option<WorkspaceStatus>,
    #[serde(skip_deserializing)]
    pub status_reason: Option<String>,
    #[serde(skip_deserializing)]
    pub created_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub updated_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub created_by: Option<String>,
    #[serde(skip_deserializing)]
    pub updated_by: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceStatus {
    Created,
    AccountBinded,
    AccountConfigured,
    WorkspaceConfigured,
    Ready,
    Error,
}

/// A group of an outside directory, and the role of its people.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupWorkspaceMapping {
    #[schemars(length(max = limits::WORD_MAX))]
    pub group_name: Option<String>,
    pub role: Option<Role>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceHipaaInfo {
    pub account_enabled: Option<bool>,
    #[serde(rename = "unsafe")]
    pub waived: Option<WorkspaceHipaaUnsafe>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceHipaaUnsafe {
    pub enabled: Option<bool>,
    #[serde(skip_deserializing)]
    pub updated_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub updated_by: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceRuntime {
    #[schemars(length(max = limits::WORD_MAX))]
    pub generation: Option<String>,
    pub sandbox: Option<WorkspaceSandboxSettings>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSandboxSettings {
    /// True if new sandboxes do not keep the output of processes.
    pub disable_process_logging: Option<bool>,
}

impl WorkspaceRuntime {
    pub fn keeps_process_logs(&self) -> bool {
        self.sandbox.as_ref().and_then(|sandbox| sandbox.disable_process_logging) != Some(true)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceNameRequest {
    #[schemars(length(min = 1, max = limits::WORD_MAX))]
    pub name: String,
}

/// Whether a name is available for a workspace, and if not, why.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceAvailability {
    pub available: bool,
    pub message: Option<String>,
    pub reason: Option<WorkspaceReason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceReason {
    Taken,
    ForbiddenReserved,
    ForbiddenBlaxel,
    ForbiddenVPrefix,
}
