//! People, service accounts and their keys.

use crate::Timestamp;
use crate::kinds::policy::Granularity;
use crate::models::{Amounts, KeyModels};
use crate::parts::{Sensitive, duration, limits, names};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// What somebody may do in a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Admin,
    #[default]
    Member,
}

impl Role {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Member => "member",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Admin, Self::Member].into_iter().find(|role| role.name() == name)
    }
}

/// How somebody joined a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UserSource {
    DirectorySync,
    Invitation,
    DomainCapture,
}

impl UserSource {
    pub const fn name(self) -> &'static str {
        match self {
            Self::DirectorySync => "directory_sync",
            Self::Invitation => "invitation",
            Self::DomainCapture => "domain_capture",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::DirectorySync, Self::Invitation, Self::DomainCapture]
            .into_iter()
            .find(|source| source.name() == name)
    }
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceUser {
    pub accepted: Option<bool>,
    pub email: Option<String>,
    pub email_verified: Option<bool>,
    /// True if this entry is an invitation that was not accepted in time.
    pub expired: Option<bool>,
    pub family_name: Option<String>,
    pub given_name: Option<String>,
    pub role: Option<Role>,
    pub source: Option<UserSource>,
    pub sub: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserRoleRequest {
    pub role: Role,
}

/// A service account. The secret is shown once, on creation.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceAccount {
    pub client_id: Option<String>,
    pub client_secret: Option<Sensitive<String>>,
    pub created_at: Option<Timestamp>,
    pub description: Option<String>,
    pub name: Option<String>,
    pub updated_at: Option<Timestamp>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceAccountRequest {
    #[schemars(length(max = limits::TEXT_MAX))]
    pub description: Option<String>,
    #[schemars(length(min = 1, max = 63), regex(pattern = limits::ONE_LINE))]
    pub name: String,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceAccountUpdate {
    #[schemars(length(max = limits::TEXT_MAX))]
    pub description: Option<String>,
    #[schemars(length(min = 1, max = 63), regex(pattern = limits::ONE_LINE))]
    pub name: Option<String>,
}

/// An API key. Its value is shown once, on creation.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiKey {
    #[serde(rename = "apiKey")]
    #[schemars(extend("readOnly" = true))]
    pub api_key: Option<Sensitive<String>>,
    #[serde(rename = "createdAt")]
    #[schemars(extend("readOnly" = true))]
    pub created_at: Option<Timestamp>,
    #[serde(rename = "updatedAt")]
    #[schemars(extend("readOnly" = true))]
    pub updated_at: Option<Timestamp>,
    #[serde(rename = "createdBy")]
    #[schemars(extend("readOnly" = true))]
    pub created_by: Option<String>,
    #[serde(rename = "updatedBy")]
    #[schemars(extend("readOnly" = true))]
    pub updated_by: Option<String>,
    pub expires_in: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub id: Option<String>,
    pub name: Option<String>,
    /// If present, the key gives access to these models and to nothing else. An empty list means
    /// all models.
    pub models: Option<Vec<String>>,
    pub budget: Option<ApiKeyBudget>,
    #[schemars(extend("readOnly" = true))]
    pub sub: Option<String>,
    pub sub_type: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiKeyRequest {
    /// Lifetime, such as `30d`. If absent, the key does not expire.
    #[schemars(length(max = limits::WORD_MAX))]
    pub expires_in: Option<String>,
    #[schemars(length(max = 63), regex(pattern = limits::ONE_LINE))]
    pub name: Option<String>,
    /// Names of models. If present, the key gives access to these models and to nothing else. An
    /// empty list means all models.
    #[schemars(length(max = limits::LIST_MAX), inner(length(max = 49)))]
    pub models: Option<Vec<String>>,
    /// What may be used with the key in each window. A key with a budget is for models only.
    pub budget: Option<ApiKeyBudget>,
}

/// Limits on what may be used with a key in each window of `step` times `granularity`. A limit of 0
/// means no limit.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiKeyBudget {
    /// US dollars, such as `5`. Never exceeded: a request passes only if the most it may cost is
    /// still left.
    #[schemars(length(max = limits::WORD_MAX))]
    pub cost: Option<String>,
    pub granularity: Granularity,
    #[schemars(range(min = 0, max = limits::COUNT_MAX))]
    pub input: Option<i64>,
    #[schemars(range(min = 0, max = limits::COUNT_MAX))]
    pub output: Option<i64>,
    #[schemars(range(min = 0, max = limits::COUNT_MAX))]
    pub requests: Option<i64>,
    #[schemars(range(min = 1, max = limits::SCALE_MAX))]
    pub step: Option<i64>,
    #[schemars(range(min = 0, max = limits::COUNT_MAX))]
    pub total: Option<i64>,
}

impl ApiKeyBudget {
    pub fn amounts(&self) -> Amounts<'_> {
        Amounts {
            cost: self.cost.as_deref(),
            requests: self.requests,
            input: self.input,
            output: self.output,
            total: self.total,
        }
    }
}

impl ApiKeyRequest {
    /// Returns the models and the budget of a key that is for models only, otherwise `None`.
    pub fn key_models(&self) -> Result<Option<KeyModels>, crate::Problems> {
        let mut problems = crate::Problems::default();
        for (index, name) in self.models.iter().flatten().enumerate() {
            let rule = "must be the name of a model";
            problems.require(names::is_dns_label(name), format!("models[{index}]"), rule);
        }
        if let Some(budget) = &self.budget {
            budget.amounts().check_some("budget", &mut problems);
        }
        problems.into_result()?;
        let wished = self.models.is_some() || self.budget.is_some();
        let models = self.models.clone().unwrap_or_default();
        Ok(wished.then(|| KeyModels { models, budget: self.budget.clone() }))
    }

    /// Returns the lifetime in seconds; `None` means forever.
    pub fn expires_in_s(&self) -> Result<Option<i64>, crate::Problems> {
        let mut problems = crate::Problems::default();
        let wanted = self.expires_in.as_deref().filter(|text| !text.is_empty());
        duration::check(wanted, "expires_in", &mut problems);
        problems.into_result()?;
        Ok(wanted.and_then(|text| duration::parse_s(text).ok()))
    }
}

/// An account that the caller can see.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    pub id: String,
    pub name: Option<String>,
    pub display_name: Option<String>,
    pub plan: Option<String>,
    /// True if the caller may see the costs of each workspace.
    pub admin: Option<bool>,
    pub created_at: Option<Timestamp>,
    pub updated_at: Option<Timestamp>,
}
