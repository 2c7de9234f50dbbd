//! What this machine knows about the way out of instances.

use crate::trust::Roots;
use egress::Egress;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::OnceLock;
use types::guest::ProxySettings;
use types::instance::InstanceName;

#[derive(Default)]
pub(crate) struct WayOut {
    pub(crate) parts: OnceLock<Parts>,
    /// What sleeping instances are told when they wake.
    pub(crate) untold: Mutex<HashMap<InstanceName, ProxySettings>>,
}

pub(crate) struct Parts {
    pub(crate) egress: Egress,
    pub(crate) roots: Roots,
    pub(crate) surroundings: Surroundings,
}

/// What instances with rules have to know about the server they run on.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Hosts of this server, which workloads reach without the proxy.
    pub own_hosts: Vec<String>,
    /// Certificates of authorities that programs trust in addition to those of their image, as PEM.
    pub authorities: String,
}
