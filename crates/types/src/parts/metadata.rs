//! Metadata of most resources.

use super::{Labels, limits};
use crate::{ObjectMetadata, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The part of an object that holds its name and labels.
pub trait Head {
    fn name(&self) -> &str;
    fn set_name(&mut self, name: String);
    fn display_name(&self) -> Option<&str> {
        None
    }
    fn labels(&self) -> Option<&Labels> {
        None
    }
    fn external_id(&self) -> Option<&str> {
        None
    }
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Unique within the workspace for its kind. Cannot be changed.
    #[schemars(length(min = 1, max = 49), regex(pattern = limits::DNS_LABEL))]
    pub name: String,
    /// Name for people; may contain spaces and special characters.
    #[schemars(length(max = 63), regex(pattern = limits::ONE_LINE))]
    pub display_name: Option<String>,
    /// The caller's own id. Need not be unique.
    #[schemars(length(max = 64), regex(pattern = limits::EXTERNAL_ID))]
    pub external_id: Option<String>,
    #[schemars(schema_with = "limits::labels")]
    pub labels: Option<Labels>,
    #[serde(skip_deserializing)]
    pub created_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub updated_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub created_by: Option<String>,
    #[serde(skip_deserializing)]
    pub updated_by: Option<String>,
    /// Billing plan of the account.
    #[serde(skip_deserializing)]
    pub plan: Option<String>,
    /// Address at which the resource is reached.
    #[serde(skip_deserializing)]
    pub url: Option<String>,
    #[serde(skip_deserializing)]
    pub workspace: Option<String>,
}

impl Metadata {
    /// Fills in the read-only members.
    pub fn stamp(&mut self, stamp: &ObjectMetadata) {
        self.created_at = Some(stamp.created_at);
        self.updated_at = Some(stamp.updated_at);
        self.created_by = Some(stamp.created_by.clone());
        self.updated_by = Some(stamp.updated_by.clone());
        self.plan = Some(stamp.plan.clone());
        self.url.clone_from(&stamp.url);
        self.workspace = Some(stamp.workspace.clone());
    }

    /// Keeps the external id if an update leaves it out.
    pub fn keep_external_id(&mut self, old: Option<&Self>) {
        super::keep(&mut self.external_id, old.map(|old| &old.external_id));
    }
}

impl Head for Metadata {
    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn display_name(&self) -> Option<&str> {
        self.display_name.as_deref()
    }

    fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    fn external_id(&self) -> Option<&str> {
        self.external_id.as_deref()
    }
}

// Read-only members that the smaller kinds of metadata share. This is not a doc comment, because
// that would become the description in their schemas.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stamped {
    #[serde(skip_deserializing)]
    pub created_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub updated_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub created_by: Option<String>,
    #[serde(skip_deserializing)]
    pub updated_by: Option<String>,
    #[serde(skip_deserializing)]
    pub workspace: Option<String>,
}

impl From<&ObjectMetadata> for Stamped {
    fn from(stamp: &ObjectMetadata) -> Self {
        Self {
            created_at: Some(stamp.created_at),
            updated_at: Some(stamp.updated_at),
            created_by: Some(stamp.created_by.clone()),
            updated_by: Some(stamp.updated_by.clone()),
            workspace: Some(stamp.workspace.clone()),
        }
    }
}
