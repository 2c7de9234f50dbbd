//! Decides which addresses a provider may have. Users choose them, and what only this server can
//! reach must not be reached through it.

use std::net::{IpAddr, UdpSocket};
use types::parts::hosts::{Host, Places};

/// Returns whether this address may be reached for the host that leads to it. `inside` lists what
/// may be reached although it is not on the internet.
pub(crate) fn permits(inside: &Places, host: &str, address: IpAddr) -> bool {
    Host::parse(host).is_some_and(|host| inside.permit(&host, address, is_of_this_machine))
}

/// Only addresses of this machine can be bound, including those it got a moment ago.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}
