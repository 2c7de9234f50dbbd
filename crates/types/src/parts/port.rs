//! Ports that a workload serves.

use super::limits;
use crate::Problems;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    Http,
    Tcp,
    Udp,
    Tls,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    #[schemars(range(min = 1, max = 65535))]
    pub target: i64,
    #[schemars(length(max = limits::WORD_MAX), regex(pattern = limits::ONE_LINE))]
    pub name: Option<String>,
    pub protocol: Option<Protocol>,
}

impl Port {
    /// Checks that each port is declared at most once. 80, 443 and 8080 may be declared, but keep
    /// their usual meaning.
    pub fn check_all(ports: Option<&[Self]>, problems: &mut Problems) {
        let mut seen = BTreeSet::new();
        for (index, port) in ports.unwrap_or_default().iter().enumerate() {
            let field = format!("spec.runtime.ports[{index}].target");
            problems.require(seen.insert(port.target), field, "is declared twice");
        }
    }
}
