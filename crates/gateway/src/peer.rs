//! Who sends requests.

use std::net::IpAddr;

/// The listener that a request came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// The listener for the management interface and the server's own pages.
    Management,
    /// The listener for what workspaces serve, and nothing else.
    Content,
}

/// Who sent a request. The code that accepts connections puts it into the extensions of each
/// request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub address: IpAddr,
    /// Whether it came over TLS.
    pub secure: bool,
    pub site: Site,
}

impl Peer {
    pub(crate) const UNKNOWN: Self = Self {
        address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        secure: false,
        site: Site::Management,
    };
}
