//! Decides which addresses a connection may go to.

use std::net::{IpAddr, UdpSocket};
use types::parts::hosts::{Host, Places};

/// Returns whether `address` may be reached for `host`. `inside` lists what may be reached although
/// it is not on the internet.
pub(crate) fn permits(inside: &Places, host: &Host, address: IpAddr) -> bool {
    inside.permit(host, address, is_of_this_machine)
}

/// Returns whether the machine has this address, even if it got it a moment ago: only such
/// addresses can be bound. If the kernel lets any address be bound (`ip_nonlocal_bind`), nothing
/// can be reached, which is safe.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}
