//! Addresses of the server that follow from its settings. Its own pages and the management API are
//! kept apart from what workspaces serve.
//!
//! If the server has a domain name, workloads answer at hosts below it, each an origin of its own.
//! Otherwise their content gets a separate port.

use super::{Role, Server};
use std::net::SocketAddr;
use types::hosts;

impl Server {
    /// Writes the origins as browsers do, because they are compared as texts: in lower case, and
    /// without the port that their scheme has anyway.
    pub(super) fn normalise(&mut self) {
        for url in [Some(&mut self.public_url), self.content_url.as_mut()].into_iter().flatten() {
            if let Ok(parsed) = reqwest::Url::parse(url) {
                *url = parsed.origin().ascii_serialization();
            }
        }
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls_certificate.is_some() { "https" } else { "http" }
    }

    /// Returns the configured public URL, else one that works on this machine. `own` is where the
    /// server listens.
    pub(crate) fn public_origin(&self, own: SocketAddr) -> String {
        let scheme = self.scheme();
        match self.public_url.as_str() {
            "" if own.ip().is_unspecified() => format!("{scheme}://localhost:{}", own.port()),
            "" => format!("{scheme}://{own}"),
            told => told.to_owned(),
        }
    }

    /// Returns the URL at which callers reach content, if that has this port where it needs one of
    /// its own.
    pub(crate) fn content_origin(&self, own: SocketAddr, port: u16) -> String {
        if let Some(told) = &self.content_url {
            return told.clone();
        }
        let public = self.public_origin(own);
        match hosts::has_hosts(&public) {
            true => public,
            false => hosts::with_port(self.scheme(), &public, port),
        }
    }

    /// Returns true if the server listens at a second address, because hosts alone cannot separate
    /// content from its own pages.
    pub(super) fn needs_content_port(&self) -> bool {
        let url = self.content_url.as_ref().unwrap_or(&self.public_url);
        let is_named = !url.is_empty() && hosts::has_hosts(url);
        let leads_there = self.roles.contains(&Role::Gateway);
        leads_there && (!is_named || self.content_listen.is_some())
    }

    /// Returns the address that the server listens on for content, if it needs one. Content is
    /// known by an IP address there unless a setting names it.
    pub(crate) fn content_address(&self) -> Option<SocketAddr> {
        self.needs_content_port().then(|| self.content_listen()).flatten()
    }

    /// Returns the configured content address, else the next port after the server's own; `None` if
    /// there is no port after that.
    pub(crate) fn content_listen(&self) -> Option<SocketAddr> {
        let own = self.listen;
        let next = if own.port() == 0 { Some(0) } else { own.port().checked_add(1) };
        self.content_listen.or_else(|| next.map(|port| SocketAddr::new(own.ip(), port)))
    }
}
