//! The head of most resources.

use super::Labels;
use crate::{Stamp, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Unique within the workspace for its kind. Cannot be changed.
    #[schemars(length(min = 1, max = 49), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,
    /// For people; may hold spaces and special characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub display_name: Option<String>,
    /// The caller's own id. Need not be unique.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = "^[A-Za-z0-9-]*$"))]
    pub external_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<String>,
    /// Billing plan of the account.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Where the resource is reached.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

impl Metadata {
    /// Fills the read-only members.
    pub fn stamp(&mut self, stamp: &Stamp) {
        self.created_at = Some(stamp.created_at);
        self.updated_at = Some(stamp.updated_at);
        self.created_by = Some(stamp.created_by.clone());
        self.updated_by = Some(stamp.updated_by.clone());
        self.plan = Some(stamp.plan.clone());
        self.url.clone_from(&stamp.url);
        self.workspace = Some(stamp.workspace.clone());
    }
}
