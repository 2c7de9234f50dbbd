//! The error body of the control plane.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
