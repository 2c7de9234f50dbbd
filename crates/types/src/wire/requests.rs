//! How many requests a workload has had, and how long they took.

use crate::edge::{RequestStats, Requests};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Requests by the name of the workload that was asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RequestAnswer(pub BTreeMap<String, WorkloadRequests>);

/// What the server that is asked has seen since its start, or in the window that was asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRequests {
    #[serde(flatten)]
    pub all: RequestCounts,
    /// Replicas that take requests now.
    pub replicas: u32,
    /// Of the revisions that serve now, by their ids.
    pub revisions: BTreeMap<String, RequestCounts>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestCounts {
    pub count: u64,
    /// Answered with a status from 500 on, by the workload or in its place.
    pub errors: u64,
    /// Milliseconds from the request to the head of its answer, for half of all requests.
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
