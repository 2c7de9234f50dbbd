//! The error body of the control plane.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Travels beside an answer that refuses for want of credentials, rights or room, or that fails, so that the server can log it.
/// It holds no secret: neither credentials nor a path, which may have some in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Stable name of the case.
    pub reason: &'static str,
    pub message: String,
    /// The operation, where it is known.
    pub operation: Option<String>,
}

impl Refusal {
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), operation: None }
    }
}

/// What a caller reads when a request was not served.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorBody {
    /// Stable name of the case, such as `not_found`.
    pub error: String,
    /// The HTTP status again: some published clients read it here only.
    pub code: i64,
    /// What was wrong and what would be right.
    pub message: String,
    /// What only some cases have, such as `retry_after`.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}
