//! Making and sharing images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageShareTarget {
    pub account_id: String,
    pub account_owner_email: Option<String>,
    pub pending_share_id: Option<String>,
    pub status: ShareStatus,
    pub workspace: String,
    pub workspace_display_name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShareStatus {
    #[default]
    Pending,
    Active,
}
