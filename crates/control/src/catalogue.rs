//! What the operator offers in addition to what users make: hubs, templates, feature flags, news.
//! It is read from a file at start.

use serde::Deserialize;
use std::collections::BTreeMap;
use types::wire::{ChangelogEntry, McpDefinition, PublicIp, SandboxDefinition, Template};

/// The contents of the catalogue file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Catalogue {
    /// Code templates to start from.
    pub templates: Vec<Template>,
    /// Sandbox images that this installation has.
    pub sandboxes: Vec<SandboxDefinition>,
    /// MCP servers that this installation has.
    pub servers: Vec<McpDefinition>,
    pub changelog: Vec<ChangelogEntry>,
    /// Feature flags by their key.
    pub features: BTreeMap<String, bool>,
    /// Shared outgoing addresses by region.
    pub public_ips: BTreeMap<String, PublicIp>,
}
