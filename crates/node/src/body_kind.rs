//! Which sort of body an instance has, as its record and its control groups know it.

use crate::settings::Backend;
use serde::{Deserialize, Serialize};

/// Versions of `runc` permit this one (`tun`) whatever they are told, and cannot where it is
/// forbidden above. No instance has the device, nor the right to make it.
const RUNC_DEVICE_RULES: &[&str] = &["c 10:200 rwm"];

/// Which arm a body is, as records keep it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BodyKind {
    /// The word of releases that spoke of who started an instance.
    #[default]
    #[serde(rename = "node")]
    Container,
    #[serde(rename = "tool")]
    Runc,
}

impl BodyKind {
    /// What instances are made as from now on.
    pub(crate) const fn of(backend: &Backend) -> Self {
        match backend {
            Backend::Direct => Self::Container,
            Backend::Runc { .. } => Self::Runc,
        }
    }

    /// Devices that the node's own group has to permit beside those that every instance has.
    pub(crate) const fn extra_device_rules(self) -> &'static [&'static str] {
        match self {
            Self::Container => &[],
            Self::Runc => RUNC_DEVICE_RULES,
        }
    }
}
