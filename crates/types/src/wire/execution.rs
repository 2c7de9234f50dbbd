//! Executions of jobs and their tasks.

use super::Free;
use crate::parts::{Sensitive, TextMap, check_env_name, check_env_value, limits};
use crate::{Problems, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Most tasks in one execution.
pub const TASKS_MAX: usize = 100_000;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateJobExecutionRequest {
    /// True if the execution may wait for room. Default: true.
    pub allow_queue: Option<bool>,
    /// Variables that override those of the job.
    #[schemars(schema_with = "limits::text_map")]
    pub env: Option<Sensitive<TextMap>>,
    /// An id chosen by the caller.
    #[schemars(length(max = 64), regex(pattern = limits::PATH_SEGMENT))]
    pub execution_id: Option<String>,
    #[schemars(length(max = 64), regex(pattern = limits::PATH_SEGMENT))]
    pub id: Option<String>,
    #[schemars(length(max = 64))]
    pub job_id: Option<String>,
    /// Memory in megabytes, at most that of the job.
    #[schemars(range(min = limits::MEMORY_MB_MIN, max = limits::MEMORY_MB_MAX))]
    pub memory: Option<i64>,
    /// Arguments of each task.
    #[schemars(length(max = TASKS_MAX))]
    pub tasks: Option<Vec<Free>>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub workspace_id: Option<String>,
}

impl CreateJobExecutionRequest {
    /// Checks the rules that a schema cannot express.
    pub fn check(&self, problems: &mut Problems) {
        for (name, value) in self.env.iter().flat_map(|Sensitive(env)| env) {
            let field = format!("env.{name}");
            check_env_name(name, &field, problems);
            check_env_value(name, value, &field, problems);
        }
    }
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateJobExecutionOutput {
    pub execution_id: Option<String>,
    pub id: Option<String>,
    pub job_id: Option<String>,
    pub tasks: Option<Vec<Free>>,
    pub workspace_id: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobExecution {
    pub metadata: JobExecutionMetadata,
    pub spec: JobExecutionSpec,
    pub stats: Option<JobExecutionStats>,
    pub status: Option<JobExecutionStatus>,
    pub tasks: Option<Vec<JobExecutionTask>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("readOnly" = true))]
pub struct JobExecutionMetadata {
    pub cluster: Option<String>,
    pub completed_at: Option<Timestamp>,
    pub created_at: Option<Timestamp>,
    pub deleted_at: Option<Timestamp>,
    pub expired_at: Option<Timestamp>,
    pub id: Option<String>,
    pub job: Option<String>,
    pub started_at: Option<Timestamp>,
    pub updated_at: Option<Timestamp>,
    pub workspace: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobExecutionSpec {
    /// Names of the variables that override those of the job, with masked values.
    pub env_override: Option<Free>,
    pub memory_override: Option<i64>,
    pub parallelism: Option<i64>,
    pub tasks: Option<Vec<JobExecutionTask>>,
    /// Most seconds for one task.
    pub timeout: Option<i64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("readOnly" = true))]
pub struct JobExecutionStats {
    pub cancelled: Option<i64>,
    pub failure: Option<i64>,
    pub retried: Option<i64>,
    pub running: Option<i64>,
    pub success: Option<i64>,
    pub total: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobExecutionStatus {
    Queued,
    Pending,
    Running,
    Cancelling,
    Cancelled,
    Failed,
    Succeeded,
    Timeout,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobExecutionTask {
    pub conditions: Option<Vec<JobExecutionTaskCondition>>,
    pub metadata: Option<JobExecutionTaskMetadata>,
    pub spec: Option<JobExecutionTaskSpec>,
    pub status: Option<JobExecutionTaskStatus>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobExecutionTaskCondition {
    pub execution_reason: Option<String>,
    pub message: Option<String>,
    pub reason: Option<String>,
    pub severity: Option<String>,
    pub state: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobExecutionTaskMetadata {
    #[schemars(extend("readOnly" = true))]
    pub completed_at: Option<Timestamp>,
    #[schemars(extend("readOnly" = true))]
    pub created_at: Option<Timestamp>,
    pub name: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub scheduled_at: Option<Timestamp>,
    #[schemars(extend("readOnly" = true))]
    pub started_at: Option<Timestamp>,
    #[schemars(extend("readOnly" = true))]
    pub updated_at: Option<Timestamp>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobExecutionTaskSpec {
    pub max_retries: Option<i64>,
    pub timeout: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobExecutionTaskStatus {
    Unspecified,
    Pending,
    Reconciling,
    Failed,
    Succeeded,
    Running,
    Cancelled,
}
