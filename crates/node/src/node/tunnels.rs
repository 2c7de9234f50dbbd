//! What callers can ask for about tunnels.

use super::Node;
use crate::body::Process;
use crate::error::{Error, TunnelError};
use crate::settings::{Firewall, Level};
use crate::tunnel::{Plan, Tunnel, check_endpoint, outer_end};
use std::net::SocketAddr;
use std::sync::Arc;
use types::instance::InstanceName;
use types::tunnel::TunnelSettings;

impl Node {
    /// Gives an instance a tunnel, replacing the one that it may have. `endpoint` is the current
    /// address of the host in the settings. The tunnel exists when this returns; whether the other
    /// end answers shows only in use. If it cannot be made, the instance has the old one as before.
    pub fn set_tunnel(
        &self,
        id: &InstanceName,
        settings: &TunnelSettings,
        endpoint: SocketAddr,
    ) -> Result<(), TunnelError> {
        let instance = self.find(id).map_err(|_| TunnelError::Gone)?;
        let mut tunnel = instance.tunnel.lock();
        // While this lock is held, no firewall gets stricter and no instance is removed.
        let firewall = instance.firewall().ok_or(TunnelError::Gone)?;
        let process = instance.body.process().ok_or(TunnelError::Gone)?;
        if firewall.level == Level::Closed {
            return Err(TunnelError::Closed);
        }
        check_endpoint(&self.shared.settings, endpoint)?;
        let permit = match tunnel.as_ref() {
            Some(old) => Arc::clone(&old.plan.permit),
            None => Arc::new(self.tunnels.take(&instance.owner, 1)?),
        };
        let plan = Plan { settings: settings.clone(), endpoint, permit };
        let peer = outer_end(&firewall, endpoint)?;
        // Both would have the same interface name, so the old one ends first.
        let old = tunnel.take().map(|old| old.plan.clone());
        match Tunnel::begin(&self.shared, process, plan, peer) {
            Ok(new) => *tunnel = Some(new),
            Err(error) => {
                *tunnel = old.and_then(|old| self.begin_again(id, process, old, &firewall));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes the tunnel again that another was to replace.
    fn begin_again(
        &self,
        id: &InstanceName,
        process: &Process,
        plan: Plan,
        firewall: &Firewall,
    ) -> Option<Tunnel> {
        let peer = outer_end(firewall, plan.endpoint).map_err(TunnelError::from);
        let log = |error: &TunnelError| {
            let error = types::chain(error);
            tracing::error!(error, instance = %id, "a tunnel is lost: it could neither be changed nor made again");
        };
        peer.and_then(|peer| Tunnel::begin(&self.shared, process, plan, peer)).inspect_err(log).ok()
    }

    /// Ends the tunnel of an instance. Returns whether it had one.
    pub fn remove_tunnel(&self, id: &InstanceName) -> Result<bool, Error> {
        Ok(self.find(id)?.tunnel.lock().take().is_some())
    }

    pub fn has_tunnel(&self, id: &InstanceName) -> Result<bool, Error> {
        Ok(self.find(id)?.tunnel.lock().is_some())
    }
}
