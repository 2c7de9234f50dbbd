//! The error body of the control plane.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What the server logs about an answer that refuses (for lack of credentials, rights or room) or
/// fails; it travels beside the answer. Holds no secret: neither credentials nor a path, which may
/// contain some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Stable name of the case.
    pub reason: &'static str,
    pub message: String,
    /// The operation, if known.
    pub operation: Option<String>,
}

impl Refusal {
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), operation: None }
    }
}

/// The answer to a request that was not served.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorBody {
    /// Stable name of the case, such as `not_found`.
    pub error: String,
    /// The HTTP status again: some published clients read it only here.
    pub code: i64,
    /// What was wrong, and what would be right.
    pub message: String,
    /// Further members that only some cases have, such as `retry_after`.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}
