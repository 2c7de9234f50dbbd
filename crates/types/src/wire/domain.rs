//! Sharing custom domains.

use super::ShareStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomDomainShareRequest {
    /// A workspace of the same account, or `account` for all of them.
    #[schemars(length(min = 1, max = 63))]
    pub target_workspace: String,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomDomainShareTarget {
    pub status: ShareStatus,
    pub workspace: String,
    pub workspace_display_name: Option<String>,
}
