//! Calls to the addresses that users gave, as the log shows them.

use crate::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// One callback: what is to be sent, or was.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("readOnly" = true))]
pub struct Delivery {
    /// The receiver finds it in `X-Service-Delivery-Id`, the same at each attempt.
    pub id: Option<String>,
    pub execution_id: Option<String>,
    /// The address without its query, which may hold secrets.
    pub url: Option<String>,
    /// `waiting` for the end of the execution, `pending`, `delivered` or `failed`.
    pub state: Option<String>,
    pub attempts: Option<i64>,
    pub next_attempt_at: Option<Timestamp>,
    /// With which the receiver answered the last time.
    pub last_status: Option<i64>,
    pub last_error: Option<String>,
    pub created_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}
