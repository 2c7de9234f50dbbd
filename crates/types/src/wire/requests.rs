//! How many requests a workload received, and how long they took.

use crate::edge::{RequestStats, Requests};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Requests by the name of the requested workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RequestAnswer(pub BTreeMap<String, WorkloadRequests>);

/// Requests that the answering server has seen, since its start or within the requested window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRequests {
    #[serde(flatten)]
    pub all: RequestCounts,
    /// Replicas that accept requests now.
    pub replicas: u32,
    /// By id, for the revisions that serve now.
    pub revisions: BTreeMap<String, RequestCounts>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestCounts {
    pub count: u64,
    /// Requests answered with a status of 500 or above, by the workload or on its behalf.
    pub errors: u64,
    /// Milliseconds from the request to the head of its answer that half of all requests did not
    /// exceed.
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
}

impl From<&RequestStats> for WorkloadRequests {
    fn from(stats: &RequestStats) -> Self {
        let revisions = stats.revisions.iter().map(|(id, of)| (id.clone(), of.into())).collect();
        Self { all: (&stats.all).into(), replicas: stats.replicas, revisions }
    }
}

impl From<&Requests> for RequestCounts {
    fn from(requests: &Requests) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Self {
            count: requests.count,
            errors: requests.errors,
            p50_ms: ms(requests.p50),
            p90_ms: ms(requests.p90),
            p99_ms: ms(requests.p99),
        }
    }
}
