//! Who sends requests.

use std::net::IpAddr;

/// Which listener a request came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// The one of the management interface and of the server's own pages.
    Management,
    /// The one that serves what workspaces serve, and nothing else.
    Content,
}

/// Who sent a request. Whoever accepts connections puts it into the extensions of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub address: IpAddr,
    /// It came over TLS.
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
