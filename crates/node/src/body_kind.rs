//! The kind of body that an instance has, as its record and its control groups know it.

use crate::settings::Backend;
use serde::{Deserialize, Serialize};

/// Some versions of `runc` permit this device (`tun`) whatever they are told, which fails if a
/// group above forbids it. Instances neither have the device nor the right to make it.
const RUNC_DEVICE_RULES: &[&str] = &["c 10:200 rwm"];

/// The kind of a body, as stored in records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BodyKind {
    /// Stored under the name that earlier releases used, for what started the instance.
    #[default]
    #[serde(rename = "node")]
    Container,
    #[serde(rename = "tool")]
    Runc,
}

impl BodyKind {
    /// Returns the kind of body that new instances get.
    pub(crate) const fn of(backend: &Backend) -> Self {
        match backend {
            Backend::Direct => Self::Container,
            Backend::Runc { .. } => Self::Runc,
        }
    }

    /// Returns the devices that the node's own group must permit in addition to those that every
    /// instance has.
    pub(crate) const fn extra_device_rules(self) -> &'static [&'static str] {
        match self {
            Self::Container => &[],
            Self::Runc => RUNC_DEVICE_RULES,
        }
    }
}
