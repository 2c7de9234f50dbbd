//! Outside services: how to call their endpoints, and the MCP servers of the hub.

use super::Free;
use crate::Timestamp;
use crate::parts::TextMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Integration {
    pub additional_infos: Option<TextMap>,
    /// Endpoints by path.
    pub endpoints: Option<BTreeMap<String, IntegrationEndpoint>>,
    pub headers: Option<TextMap>,
    pub name: Option<String>,
    pub organizations: Option<Vec<IntegrationOrganization>>,
    pub params: Option<TextMap>,
    pub repositories: Option<Vec<IntegrationRepository>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IntegrationEndpoint {
    pub body: Option<String>,
    pub ignore_models: Option<Vec<Free>>,
    pub method: Option<String>,
    pub models: Option<Vec<Free>>,
    pub stream_key: Option<String>,
    pub stream_token: Option<IntegrationEndpointToken>,
    pub token: Option<IntegrationEndpointToken>,
}

/// Names of the answer's members that hold token counts.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IntegrationEndpointToken {
    pub received: Option<String>,
    pub sent: Option<String>,
    pub total: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IntegrationOrganization {
    #[serde(rename = "avatar_url")]
    pub avatar_url: Option<String>,
    pub display_name: Option<String>,
    pub id: Option<String>,
    pub name: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IntegrationRepository {
    pub id: Option<String>,
    pub is_bl: Option<bool>,
    pub name: Option<String>,
    pub organization: Option<String>,
    pub url: Option<String>,
}

/// An MCP server of the hub.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "MCPDefinition")]
pub struct McpDefinition {
    #[schemars(extend("readOnly" = true))]
    pub created_at: Option<Timestamp>,
    #[schemars(extend("readOnly" = true))]
    pub updated_at: Option<Timestamp>,
    pub categories: Option<Vec<Free>>,
    #[serde(rename = "coming_soon")]
    pub coming_soon: Option<bool>,
    pub description: Option<String>,
    pub display_name: Option<String>,
    pub enterprise: Option<bool>,
    pub entrypoint: Option<Entrypoint>,
    pub form: Option<Form>,
    pub hidden: Option<bool>,
    pub hidden_secrets: Option<Vec<String>>,
    pub icon: Option<String>,
    pub image: Option<String>,
    pub integration: Option<String>,
    pub long_description: Option<String>,
    pub name: Option<String>,
    pub transport: Option<String>,
    pub url: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Entrypoint {
    pub args: Option<Vec<Free>>,
    pub command: Option<String>,
    pub env: Option<TextMap>,
    pub super_gateway_args: Option<Vec<Free>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Form {
    pub config: Option<Free>,
    pub oauth: Option<OAuth>,
    pub secrets: Option<Free>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OAuth {
    pub scope: Option<Vec<Free>>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
}
