//! Calls to users' addresses, as the log shows them.

use crate::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// One callback that was sent or will be.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("readOnly" = true))]
pub struct Delivery {
    /// Sent to the receiver in `X-Service-Delivery-Id`; the same at each attempt.
    pub id: Option<String>,
    pub execution_id: Option<String>,
    /// Address without its query, which may contain secrets.
    pub url: Option<String>,
    /// `waiting` for the end of the execution, `pending`, `delivered` or `failed`.
    pub state: Option<String>,
    pub attempts: Option<i64>,
    pub next_attempt_at: Option<Timestamp>,
    /// HTTP status of the receiver's latest answer.
    pub last_status: Option<i64>,
    pub last_error: Option<String>,
    pub created_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}
