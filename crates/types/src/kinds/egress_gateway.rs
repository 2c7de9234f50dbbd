//! Egress gateways: traffic of sandboxes leaves through them with addresses of its own.

use crate::parts::{CoreEvent, Head, Lifecycle, Needs, Stamped, Status, limits};
use crate::{Kind, KindName, ObjectMetadata, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressGateway {
    pub metadata: EgressGatewayMetadata,
    pub spec: EgressGatewaySpec,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressGatewayMetadata {
    #[schemars(length(min = 1, max = 49), regex(pattern = limits::DNS_LABEL))]
    pub name: String,
    #[schemars(length(max = 63), regex(pattern = limits::ONE_LINE))]
    pub display_name: Option<String>,
    #[serde(skip_deserializing)]
    pub vpc_name: Option<String>,
    #[serde(flatten, skip_deserializing)]
    pub stamped: Stamped,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressGatewaySpec {
    #[schemars(length(min = 1, max = limits::WORD_MAX))]
    pub region: String,
}

impl Head for EgressGatewayMetadata {
    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn display_name(&self) -> Option<&str> {
        self.display_name.as_deref()
    }
}

impl EgressGatewayMetadata {
    fn stamp(&mut self, stamp: &ObjectMetadata) {
        self.stamped = Stamped::from(stamp);
        self.vpc_name = stamp.parents.first().cloned();
    }
}

impl Kind for EgressGateway {
    const NAME: KindName = KindName::EgressGateway;

    type State = Lifecycle;

    head!();
    deployed!(Needs::Nothing);
}
