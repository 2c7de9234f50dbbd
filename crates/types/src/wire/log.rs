//! What workloads and builds wrote.

use crate::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// Lines by the name of the workload that was asked for. The name is there also when nothing was written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct LogAnswer(pub BTreeMap<String, WorkloadLogs>);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadLogs {
    /// Newest first.
    pub logs: Vec<LogLine>,
    pub total_count: i64,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    pub timestamp: Timestamp,
    pub message: String,
    pub severity: i64,
    pub trace_id: Option<String>,
}
