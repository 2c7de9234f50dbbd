//! Which addresses a connection may go to.

use std::net::{IpAddr, UdpSocket};
use types::parts::hosts::{Host, Places};

/// Whether `address` may be reached for `host`. `inside` is what may be reached although it is not on
/// the internet.
pub(crate) fn permits(inside: &Places, host: &Host, address: IpAddr) -> bool {
    inside.permit(host, address, is_of_this_machine)
}

/// Only addresses of the machine can be bound, also those that it got a moment ago. Where the
/// kernel is told to bind any (`ip_nonlocal_bind`), nothing is reached, and nothing is let out by mistake.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}
