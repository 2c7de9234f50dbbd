//! Sets up the network inside an instance, before anything runs there.

use super::netlink::{INNER_INDEX, LOOPBACK_INDEX, Netlink};
use super::proc::Mounted;
use super::wire::{GATEWAY, Wire};
use std::io;
use std::net::Ipv4Addr;

/// Sets up loopback in a new namespace, and permits what a program without rights over the network
/// needs.
pub(super) fn prepare(proc: &Mounted) -> io::Result<()> {
    // The instance's root has no rights over its network, so everybody may use ports below 1024 and
    // `ping`.
    proc.set("ipv4/ip_unprivileged_port_start", "0")?;
    proc.set("ipv4/ping_group_range", "0 4294967294")?;
    // Only loopback has IPv6.
    match proc.set("ipv6/conf/default/disable_ipv6", "1") {
        // The kernel has none at all.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        written => written?,
    }
    Netlink::open()?.set_up(LOOPBACK_INDEX)
}

pub(super) fn configure(wire: &Wire) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    netlink.add_address(INNER_INDEX, wire.address)?;
    netlink.set_up(INNER_INDEX)?;
    netlink.add_neighbour(INNER_INDEX, GATEWAY, wire.outer_hardware)?;
    netlink.add_route(INNER_INDEX, GATEWAY, 32, None)?;
    netlink.add_route(INNER_INDEX, Ipv4Addr::UNSPECIFIED, 0, Some(GATEWAY))
}

pub(super) fn cut() -> io::Result<()> {
    Netlink::open()?.set_down(INNER_INDEX)
}
