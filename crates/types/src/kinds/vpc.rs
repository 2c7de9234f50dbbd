//! Virtual networks, which hold egress gateways and whose sandboxes may reach each other.

use crate::parts::{CoreEvent, Head, Lifecycle, Metadata, Needs, Status, limits};
use crate::{Kind, KindName, ObjectMetadata, Problems, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "VPC")]
pub struct Vpc {
    pub metadata: Metadata,
    pub spec: VpcSpec,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
}

/// Any members. The only one with a meaning is `reachable`: if `true`, the VPC's sandboxes reach
/// each other by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(rename = "VPCSpec", extend("maxProperties" = limits::MAP_MAX))]
pub struct VpcSpec(pub Map<String, Value>);

const REACHABLE: &str = "reachable";

impl VpcSpec {
    /// Returns true if its sandboxes reach each other.
    pub fn is_reachable(&self) -> bool {
        self.0.get(REACHABLE).and_then(Value::as_bool).unwrap_or(false)
    }
}

impl Kind for Vpc {
    const NAME: KindName = KindName::Vpc;

    type State = Lifecycle;

    head!();
    deployed!(Needs::Nothing);

    fn check(&self, problems: &mut Problems) {
        let well =
            self.spec.0.get(REACHABLE).is_none_or(|value| value.is_boolean() || value.is_null());
        problems.require(well, "spec.reachable", "must be `true` or `false`");
    }

    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        self.metadata.keep_external_id(old.map(|old| &old.metadata));
    }
}
