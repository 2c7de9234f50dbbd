//! The link between the machine and one instance.

use super::netlink::Netlink;
use rustix::fd::OwnedFd;
use std::io;
use std::net::Ipv4Addr;

/// The machine's address on every link. It is link-local, so nothing else uses it, and the machine
/// does not answer on it.
pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// Both ends of the link to one instance.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    pub(super) outer_name: String,
    pub(super) address: Ipv4Addr,
    pub(super) outer_hardware: [u8; 6],
    pub(super) inner_hardware: [u8; 6],
}

impl Wire {
    /// Makes both ends, the inner one in this network, and the way to the instance.
    pub(super) fn lay(&self, namespace: &OwnedFd) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        netlink.add_pair(&self.outer_name, self.outer_hardware, self.inner_hardware, namespace)?;
        let index = netlink.index(&self.outer_name)?;
        netlink.without_own_ipv6(index)?;
        netlink.set_up(index)?;
        netlink.add_neighbour(index, self.address, self.inner_hardware)?;
        netlink.add_route(index, self.address, 32, None)
    }
}
