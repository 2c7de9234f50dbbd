//! Changes what the machine's firewall does with the packets of single instances.

use crate::error::Error;
use crate::net::Rules;
use crate::node::Node;
use crate::settings::Firewall;
use std::io;
use std::net::Ipv4Addr;
use types::instance::InstanceName;

impl Node {
    /// Changes the firewall rules of an instance, awake or not. When this returns, nothing gets
    /// past a stricter level any more, not even on connections made before.
    pub fn set_firewall(&self, id: &InstanceName, firewall: Firewall) -> Result<(), Error> {
        let instance = self.find(id)?;
        let address = self.shared.settings.subnet.address(instance.slot);
        instance.without_way_past(firewall.level, || {
            instance.set_firewall(firewall, |old, new| {
                self.change_firewall(instance.slot, old, new)?;
                if let Some(rules) = &self.rules
                    && (new.level > old.level || new.source != old.source)
                {
                    rules.forget_connections(address);
                }
                Ok(())
            })
        })
    }

    /// Returns the rules as they were last set, by this node or an earlier one.
    pub fn firewall(&self, id: &InstanceName) -> Result<Firewall, Error> {
        self.find(id)?.firewall().ok_or_else(|| Error::Missing(id.clone()))
    }

    pub(crate) fn change_firewall(
        &self,
        slot: u32,
        old: &Firewall,
        new: &Firewall,
    ) -> io::Result<()> {
        match &self.rules {
            Some(rules) if old != new => {
                rules.change(self.shared.settings.subnet.address(slot), old, new)
            }
            _ => Ok(()),
        }
    }

    /// Returns the machine's address on which the proxy and the resolver are to listen. Only
    /// instances of this node can reach it. `None` if instances reach nothing.
    pub fn proxy_address(&self) -> Option<Ipv4Addr> {
        self.rules.as_ref().map(Rules::proxy)
    }
}
