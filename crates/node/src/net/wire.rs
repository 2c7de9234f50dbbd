//! The link between the machine and one instance.

use super::netlink::Netlink;
use crate::names::Owner;
use rustix::fd::OwnedFd;
use std::io;
use std::net::Ipv4Addr;

/// The machine's address on every link. It is link-local, so nothing else uses it, and the machine
/// does not answer on it.
pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The group of interfaces that nobody put into another.
pub(super) const DEFAULT_GROUP: u32 = 0;

/// Returns the number of an owner's group of interfaces, which is never the kernel's default for
/// interfaces that nobody put into one. It follows from the name (32-bit FNV-1a), so it outlives
/// this process without a record. Two owners with the same number would share a limit.
fn group_of(owner: &Owner) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    owner.as_str().bytes().fold(0x811c_9dc5, step).max(DEFAULT_GROUP + 1)
}

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

    /// Puts the outer end into the group of the instance's owner, by which the firewall counts.
    pub(super) fn assign(&self, owner: &Owner) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        let index = netlink.index(&self.outer_name)?;
        netlink.set_group(index, group_of(owner))
    }
}
