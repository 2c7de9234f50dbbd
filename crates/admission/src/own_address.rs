//! Tells the addresses of this machine from all others.

use std::io;
use std::net::{IpAddr, UdpSocket};

/// Returns whether the machine has this address, even if it got it a moment ago: only such
/// addresses can be bound. If the kernel lets any address be bound (`ip_nonlocal_bind`), all count
/// as its own, which is safe for whoever refuses to lead connections there.
pub fn is_own_address(address: IpAddr) -> bool {
    is_own(&UdpSocket::bind((address, 0)))
}

/// Judges an attempt to bind an address. Only one error says that it is somebody else's: without
/// descriptors, for example, nothing is known, and nothing may pass.
fn is_own(bound: &io::Result<UdpSocket>) -> bool {
    bound.as_ref().err().is_none_or(|error| error.kind() != io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_judged_counts_as_ours() {
        assert!(is_own_address(IpAddr::from([127, 0, 0, 1])));
        assert!(!is_own_address(IpAddr::from([192, 0, 2, 1])));
        // The number of EMFILE.
        let no_descriptors = io::Error::from_raw_os_error(24);
        assert!(is_own(&Err(no_descriptors)));
    }
}
