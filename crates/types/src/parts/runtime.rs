//! Smaller parts of specs.

use super::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The technology that runs a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Generation {
    Mk2,
    #[default]
    Mk3,
}

impl Generation {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mk2 => "mk2",
            Self::Mk3 => "mk3",
        }
    }

    /// Checks that a resource keeps its generation; one that does not state it is a microVM.
    pub fn check_change(new: Option<Self>, old: Option<Self>, problems: &mut crate::Problems) {
        let same = new.unwrap_or_default() == old.unwrap_or_default();
        problems.require(same, "spec.runtime.generation", "cannot be changed between mk2 and mk3");
    }
}

/// Origin of an agent's code.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Repository {
    #[serde(rename = "type")]
    #[schemars(length(max = limits::WORD_MAX))]
    pub kind: Option<String>,
    #[schemars(length(max = limits::URL_MAX))]
    pub url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FlavorType {
    Cpu,
    Gpu,
}

/// A kind of hardware.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Flavor {
    #[schemars(length(max = limits::WORD_MAX))]
    pub name: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<FlavorType>,
}

/// Whether to skip the build of an image. The published command line sends this as a word instead
/// of a boolean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum SkipBuild {
    Flag(bool),
    Word(#[schemars(length(max = 5))] String),
}

impl SkipBuild {
    pub fn is_set(&self) -> bool {
        match self {
            Self::Flag(set) => *set,
            Self::Word(word) => word.eq_ignore_ascii_case("true"),
        }
    }
}
