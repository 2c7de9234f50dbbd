//! Small answers.

use super::Free;
use crate::kinds::VolumeTemplate;
use crate::parts::Sensitive;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// A description of what was done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deleted {
    pub message: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CleanedImages {
    /// Number of deleted images.
    pub deleted: i64,
    pub message: String,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateVersionDeleted {
    pub message: String,
    pub template: Option<VolumeTemplate>,
}

/// A token that opens one drive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriveAccessToken {
    pub access_token: Sensitive<String>,
    /// Lifetime in seconds.
    pub expires_in: i64,
    pub token_type: String,
}

/// Public keys for checking tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JsonWebKeys {
    pub keys: Vec<Free>,
}

/// A resource that names a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyUser {
    pub name: String,
}

/// The resources that name a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyUsages {
    pub agents: Vec<PolicyUser>,
    pub functions: Vec<PolicyUser>,
    pub jobs: Vec<PolicyUser>,
    pub models: Vec<PolicyUser>,
    pub sandboxes: Vec<PolicyUser>,
}

/// Names of the sandboxes whose traffic leaves through each gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct EgressGatewayUsage(pub BTreeMap<String, Vec<String>>);
