//! An instance as the way out knows it.

use crate::policy::Policy;
use parking_lot::RwLock;
use std::sync::Arc;
use types::instance::InstanceName;

/// One instance. Connections of it hold this, and ask for the rules as they are now.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) instance: InstanceName,
    policy: RwLock<Arc<Policy>>,
}

impl Client {
    pub(crate) fn new(instance: InstanceName, policy: Policy) -> Self {
        Self { instance, policy: RwLock::new(Arc::new(policy)) }
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read())
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        *self.policy.write() = Arc::new(policy);
    }
}
