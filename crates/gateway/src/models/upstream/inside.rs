//! Decides which addresses a provider may have. Users choose them, and what only this server can
//! reach must not be reached through it.

use std::io;
use std::net::{IpAddr, UdpSocket};
use types::parts::hosts::{Host, Places};

/// Returns whether this address may be reached for the host that leads to it. `inside` lists what
/// may be reached although it is not on the internet.
pub(crate) fn permits(inside: &Places, host: &str, address: IpAddr) -> bool {
    Host::parse(host).is_some_and(|host| inside.permit(&host, address, is_of_this_machine))
}

/// Only addresses of this machine can be bound, including those it got a moment ago.
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
