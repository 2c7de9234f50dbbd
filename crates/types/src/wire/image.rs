//! Creating and sharing images.

use crate::Timestamp;
use crate::parts::{Generation, Sensitive, limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateImageRequest {
    pub generation: Option<Generation>,
    /// An existing image to register. If absent, code is uploaded and built.
    #[schemars(length(max = limits::URL_MAX), regex(pattern = limits::ONE_LINE))]
    pub image: Option<String>,
    #[schemars(length(min = 1, max = limits::WORD_MAX), regex(pattern = limits::IMAGE_NAME))]
    pub name: String,
    #[schemars(length(min = 1, max = 49), regex(pattern = limits::DNS_LABEL))]
    pub resource_type: String,
    /// Credentials of an outside registry: the text of a Docker configuration file.
    #[schemars(length(max = limits::ENV_VALUE_MAX))]
    pub docker_config: Option<Sensitive<String>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateImageAnswer {
    /// True if a build follows.
    pub build: Option<bool>,
    pub image: Option<String>,
    pub message: Option<String>,
    pub name: Option<String>,
    pub resource_type: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageShareRequest {
    /// Account of the workspace, if it is not the caller's.
    #[schemars(length(max = limits::WORD_MAX))]
    pub target_account_id: Option<String>,
    #[schemars(length(min = 1, max = 63))]
    pub target_workspace: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShareStatus {
    #[default]
    Pending,
    Active,
}

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

/// A pending share, with details for both sides.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingImageShareRender {
    pub created_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    /// True if the target already has an image of that name.
    pub has_conflict: Option<bool>,
    pub id: Option<String>,
    pub image_name: Option<String>,
    pub resource_type: Option<String>,
    pub shared_by: Option<String>,
    pub shared_by_email: Option<String>,
    pub source_account_id: Option<String>,
    pub source_workspace: Option<String>,
    pub source_workspace_display_name: Option<String>,
    pub target_account_id: Option<String>,
    pub target_workspace: Option<String>,
    pub target_workspace_display_name: Option<String>,
}
