//! Addresses of an egress gateway.

use crate::parts::{CoreEvent, Head, Lifecycle, Needs, Stamped, Status, limits};
use crate::{Kind, KindName, ObjectMetadata, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "EgressIP")]
pub struct EgressIp {
    pub metadata: EgressIpMetadata,
    pub spec: EgressIpSpec,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "EgressIPMetadata")]
pub struct EgressIpMetadata {
    #[schemars(length(min = 1, max = 49), regex(pattern = limits::DNS_LABEL))]
    pub name: String,
    #[schemars(length(max = 63), regex(pattern = limits::ONE_LINE))]
    pub display_name: Option<String>,
    #[serde(skip_deserializing)]
    pub gateway_name: Option<String>,
    #[serde(skip_deserializing)]
    pub vpc_name: Option<String>,
    #[serde(flatten, skip_deserializing)]
    pub stamped: Stamped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum IpFamily {
    #[default]
    IPv4,
    IPv6,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "EgressIPSpec")]
pub struct EgressIpSpec {
    #[schemars(extend("default" = "IPv4"))]
    pub ip_family: IpFamily,
    #[serde(skip_deserializing)]
    pub public_ip: Option<String>,
}

impl Head for EgressIpMetadata {
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

/// What the server knows about an address beside its wish.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// Present once an address was assigned.
    #[serde(default)]
    pub public_ip: Option<String>,
}

impl Kind for EgressIp {
    const NAME: KindName = KindName::EgressIp;

    type State = State;

    head!();
    ready_at_once!();

    fn show(&mut self, stamp: &ObjectMetadata, state: &State, _now: Timestamp) {
        self.metadata.stamped = Stamped::from(stamp);
        self.metadata.vpc_name = stamp.parents.first().cloned();
        self.metadata.gateway_name = stamp.parents.get(1).cloned();
        self.events = Some(state.lifecycle.events.clone());
        self.status = state.lifecycle.status();
        self.spec.public_ip.clone_from(&state.public_ip);
    }
}
