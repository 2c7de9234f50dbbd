//! Small answers.

use super::Free;
use crate::kinds::VolumeTemplate;
use crate::parts::Sensitive;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// What was done, in words.
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
    /// How many are gone.
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
    /// Seconds.
    pub expires_in: i64,
    pub token_type: String,
}

/// Public keys with which tokens are checked.
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

/// The sandboxes that leave through each gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct EgressGatewayUsage(pub BTreeMap<String, Vec<String>>);
