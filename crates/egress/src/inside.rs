//! Decides which addresses a connection may go to.

use std::io;
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
    is_ours(&UdpSocket::bind((address, 0)))
}

/// Judges an attempt to bind an address. Only one error says that it is somebody else's: without
/// descriptors, for example, nothing is known, and nothing may pass.
fn is_ours(bound: &io::Result<UdpSocket>) -> bool {
    bound.as_ref().err().is_none_or(|error| error.kind() != io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_judged_counts_as_ours() {
        assert!(is_of_this_machine(IpAddr::from([127, 0, 0, 1])));
        assert!(!is_of_this_machine(IpAddr::from([192, 0, 2, 1])));
        // The number of EMFILE.
        let no_descriptors = io::Error::from_raw_os_error(24);
        assert!(is_ours(&Err(no_descriptors)));
    }
}
