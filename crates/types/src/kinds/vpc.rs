//! Virtual networks, which hold egress gateways.

use crate::parts::{CoreEvent, Head, Lifecycle, Metadata, Needs, Status, limits};
use crate::{Kind, KindName, Stamp, Timestamp, World};
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

/// Free: the interface defines no member.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(rename = "VPCSpec", extend("maxProperties" = limits::MAP_MAX))]
pub struct VpcSpec(pub Map<String, Value>);

impl Kind for Vpc {
    const NAME: KindName = KindName::Vpc;

    type State = Lifecycle;

    head!();
    deployed!(Needs::Nothing);

    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        self.metadata.keep_external_id(old.map(|old| &old.metadata));
    }
}
