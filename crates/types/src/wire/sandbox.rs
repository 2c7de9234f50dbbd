//! Actions on sandboxes, and outcomes of their schedules.

use super::Free;
use crate::kinds::sandbox::SandboxLifecycle;
use crate::kinds::snapshot::SnapshotSource;
use crate::parts::{Env, limits, names};
use crate::{Problems, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ForkTarget {
    Sandbox,
    Application,
}

/// A request to fork a sandbox. The target's type and name are required, but the published command
/// line spells these members differently.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxForkRequest {
    /// Variables in addition to the sandbox's own, which they override.
    #[schemars(length(max = limits::ENVS_MAX))]
    pub envs: Option<Vec<Env>>,
    /// Replaces the sandbox's lifecycle, `ttl` and `expires`. For forks to sandboxes only.
    pub lifecycle: Option<SandboxLifecycle>,
    #[schemars(length(max = 253))]
    pub custom_domain: Option<String>,
    /// Memory of the fork in megabytes.
    #[schemars(range(min = limits::MEMORY_MB_MIN, max = limits::MEMORY_MB_MAX))]
    pub memory: Option<i64>,
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i64>,
    #[schemars(length(max = 63))]
    pub prefix: Option<String>,
    #[schemars(length(max = 64))]
    pub snapshot_id: Option<String>,
    #[schemars(length(max = 49), regex(pattern = limits::DNS_LABEL))]
    pub target_name: Option<String>,
    pub target_type: Option<ForkTarget>,
    /// Alternative to `targetName` that the published command line sends.
    #[serde(rename = "target_name")]
    #[schemars(length(max = 49), regex(pattern = limits::DNS_LABEL))]
    pub older_target_name: Option<String>,
    /// Alternative to `targetType` that the published command line sends.
    #[serde(rename = "type")]
    pub older_target_type: Option<ForkTarget>,
    /// Percentage of an existing application's traffic.
    #[schemars(range(min = 0, max = 100))]
    pub traffic: Option<i64>,
}

impl SandboxForkRequest {
    /// Returns what to create and its name, from either spelling. Checks the rules that a schema
    /// cannot express.
    pub fn target(&self) -> Result<(ForkTarget, &str), Problems> {
        let mut problems = Problems::default();
        let prefix = self.prefix.as_deref().filter(|prefix| !prefix.is_empty());
        problems.require(
            prefix.is_none_or(names::is_dns_label),
            "prefix",
            "must be one label of a domain name: lower-case letters, digits and `-`",
        );
        let domain = self.custom_domain.as_deref().filter(|domain| !domain.is_empty());
        let well = domain.is_none_or(names::is_dns_name);
        problems.require(well, "customDomain", "must be a domain name");
        Env::check_all(self.envs.as_deref(), "envs", &mut problems);
        let kind = self.target_type.or(self.older_target_type);
        let name = self.target_name.as_deref().or(self.older_target_name.as_deref());
        problems.require(kind.is_some(), "targetType", "is required: sandbox or application");
        problems.require(name.is_some(), "targetName", "is required");
        match (kind, name) {
            (Some(kind), Some(name)) if problems.is_empty() => Ok((kind, name)),
            _ => Err(problems),
        }
    }
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxForkResponse {
    pub name: Option<String>,
    pub snapshot_id: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<ForkTarget>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSnapshotRequest {
    #[schemars(length(max = 63), regex(pattern = limits::FREE_SEGMENT))]
    pub name: Option<String>,
    /// The sandbox to take a snapshot of, if the path does not name it.
    pub source: Option<SnapshotSource>,
}

/// The answer when a sandbox was restored to one of its snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxRestoreResponse {
    pub name: String,
    pub snapshot_id: String,
}

/// The outcome of one firing of a schedule.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxScheduleExecution {
    #[schemars(extend("readOnly" = true))]
    pub created_at: Option<Timestamp>,
    pub error: Option<String>,
    pub executed_at: Option<Timestamp>,
    pub id: Option<String>,
    pub process_name: Option<String>,
    /// Name of the sandbox whose schedule it is.
    #[schemars(extend("readOnly" = true))]
    pub sandbox: Option<String>,
    pub schedule_id: Option<String>,
    /// Whether the sandbox took the command; missing as long as that is not known. It does not say
    /// how the command ended.
    pub status: Option<SandboxScheduleExecutionStatus>,
    /// HTTP status with which the sandbox answered; 0 if it was not reached.
    pub status_code: Option<i64>,
    pub timeout: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxScheduleExecutionStatus {
    Succeeded,
    Failed,
}

/// How often the schedules of all sandboxes started something, in whole minutes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxScheduleMetrics {
    pub executions: i64,
    pub executions_by_status: SandboxScheduleExecutionStatusMetrics,
    /// Sandboxes of the workspace now, without terminated ones.
    pub sandboxes: i64,
    /// Schedules of all sandboxes now.
    pub schedules: i64,
    /// Start of the window, inclusive.
    pub since: Timestamp,
    /// End of the window, exclusive.
    pub until: Timestamp,
}

/// An execution counts here once the sandbox has answered or was not reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxScheduleExecutionStatusMetrics {
    pub succeeded: i64,
    pub failed: i64,
}

/// Error body of sandbox creation: the common members, and some of its own.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SandboxError")]
pub struct SandboxErrorBody {
    /// The HTTP status again, as a number: published clients compare it.
    pub code: i64,
    /// Stable name of the case.
    pub error: Option<String>,
    pub message: String,
    pub details: Option<Free>,
    pub reason: Option<String>,
    pub sandbox_name: Option<String>,
    pub status_code: Option<i64>,
    pub step: Option<String>,
    pub timestamp: Option<Timestamp>,
    pub workspace: Option<String>,
}
