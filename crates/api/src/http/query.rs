//! Query parameters shared by many operations.

pub(crate) use control::query::{AgeSort, Flag, ListQuery, NameSort, Sort};

use schemars::JsonSchema;
use serde::Deserialize;

/// No query parameters.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct NoQuery {}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct ShowSecrets {
    /// Whether to show the values of secrets; only for administrators of the workspace.
    #[serde(default)]
    pub show_secrets: Flag,
}
