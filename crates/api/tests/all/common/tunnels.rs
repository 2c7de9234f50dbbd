//! Tunnels that are only recorded.

use control::tunnel_maker::{TunnelFault, TunnelMaker};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use types::instance::InstanceName;
use types::tunnel::TunnelSettings;

/// A tunnel endpoint that the machine does not let anybody reach.
pub const INSIDE: &str = "inside.example.com";

#[derive(Clone, Default)]
pub struct PretendedTunnels(Arc<Mutex<BTreeMap<InstanceName, TunnelSettings>>>, Arc<AtomicBool>);

impl PretendedTunnels {
    /// Returns the names of their interfaces.
    pub fn interfaces(&self) -> Vec<String> {
        self.0.lock().values().map(|settings| settings.interface.clone()).collect()
    }

    /// Returns the instances that have one.
    pub fn instances(&self) -> Vec<InstanceName> {
        self.0.lock().keys().cloned().collect()
    }

    /// Ends the tunnel of an instance that ends.
    pub fn lose(&self, instance: &InstanceName) {
        self.0.lock().remove(instance);
    }

    /// Makes removals fail from now on, or work again.
    pub fn set_stuck(&self, stuck: bool) {
        self.1.store(stuck, Ordering::SeqCst);
    }

    /// Loses all tunnels, as when the program that has them ends.
    pub fn lose_all(&self) {
        self.0.lock().clear();
    }
}

impl TunnelMaker for PretendedTunnels {
    fn set<'a>(
        &'a self,
        instance: &'a InstanceName,
        settings: TunnelSettings,
    ) -> BoxFuture<'a, Result<(), TunnelFault>> {
        Box::pin(async move {
            if settings.endpoint.host == INSIDE {
                return Err(TunnelFault::Unfit("it is not on the internet".into()));
            }
            self.0.lock().insert(instance.clone(), settings);
            Ok(())
        })
    }

    fn remove<'a>(&'a self, instance: &'a InstanceName) -> BoxFuture<'a, Result<(), TunnelFault>> {
        Box::pin(async move {
            if self.1.load(Ordering::SeqCst) {
                return Err(TunnelFault::Broken("it does not let go".into()));
            }
            self.0.lock().remove(instance);
            Ok(())
        })
    }

    fn has(&self, instance: &InstanceName) -> bool {
        self.0.lock().contains_key(instance)
    }
}
