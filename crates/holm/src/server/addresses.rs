//! Addresses the server listens on, and URLs at which callers reach it. Its own pages and the
//! management API are kept apart from what workspaces serve.
//!
//! If the server has a domain name, workloads answer at hosts below it, each an origin of its own.
//! Otherwise their content gets a separate port.

use super::serve::Listener;
use crate::config::{Config, Role};
use crate::error::Error;
use files::Readers;
use std::fs;
use std::net::SocketAddr;
use types::hosts;

/// Files that hold the bound addresses while the server runs.
const ADDRESS_FILE: &str = "address";
const CONTENT_ADDRESS_FILE: &str = "content-address";

/// URLs at which callers reach the server, without trailing slashes.
#[derive(Debug, Clone)]
pub(crate) struct Urls {
    /// The management API and the server's own pages.
    pub(crate) public: String,
    /// Content of workspaces: at hosts below this one if the server has a name, else by path.
    pub(crate) content: String,
}

pub(super) struct Addresses {
    pub(super) urls: Urls,
    pub(super) own: SocketAddr,
    /// Listener for content, if hosts alone cannot separate it from the server's own pages.
    pub(super) content: Option<Listener>,
}

impl Addresses {
    pub(super) async fn open(config: &Config, listener: &Listener) -> Result<Self, Error> {
        let own = listener.address()?;
        let public = public_url(config, listener.scheme(), own);
        let told = config.server.content_url.as_deref().map(|url| url.trim_end_matches('/'));
        let is_named = hosts::has_hosts(told.unwrap_or(&public));
        let content = match content_address(config)? {
            Some(address) => Some(listener.for_content(address).await?),
            None => None,
        };
        let url = match told {
            Some(told) => told.to_owned(),
            None if is_named => public.clone(),
            None => {
                let listen =
                    content.as_ref().map_or_else(|| content_listen(config), Listener::address)?;
                // A server that does not lead to workloads opened no port for content; the port
                // only has to differ from its own.
                let port = if listen.port() == 0 { own.port() ^ 1 } else { listen.port() };
                hosts::with_port(listener.scheme(), &public, port)
            }
        };
        if url == public && !hosts::has_hosts(&url) {
            let message = format!(
                "content cannot share {url} with the server's own pages: see server.content_url"
            );
            return Err(Error::Start { act: "find a place for content".into(), message });
        }
        Ok(Self { urls: Urls { public, content: url }, own, content })
    }

    /// Writes the files that tell other programs on this machine where the server listens.
    pub(super) fn tell(&self, config: &Config) -> Result<(), Error> {
        // A server that was killed left its files behind.
        forget(config);
        if let Some(content) = &self.content {
            write(config, CONTENT_ADDRESS_FILE, content.address()?)?;
        }
        write(config, ADDRESS_FILE, self.own)
    }
}

/// Returns the URLs at which this machine reaches the server that runs on the data folder, as that
/// server wrote them there, and then the public one of the settings. There are none if no server
/// runs.
pub(crate) fn of_running(config: &Config) -> Vec<String> {
    let told = fs::read_to_string(config.data.folder.join(ADDRESS_FILE));
    let Some(address) = told.ok().and_then(|text| text.trim().parse::<SocketAddr>().ok()) else {
        return Vec::new();
    };
    let scheme = if config.server.tls_certificate.is_some() { "https" } else { "http" };
    let ip = address.ip();
    let mut urls = Vec::new();
    if !ip.is_unspecified() {
        urls.push(format!("{scheme}://{address}"));
    }
    if ip.is_unspecified() || ip.is_loopback() {
        urls.extend(
            ["127.0.0.1", "localhost", "[::1]"]
                .map(|host| format!("{scheme}://{host}:{}", address.port())),
        );
    }
    let public = Some(config.server.public_url.clone()).filter(|url| !url.is_empty());
    urls.extend(public);
    urls
}

/// Returns the configured public URL, else one that works on this machine.
fn public_url(config: &Config, scheme: &str, address: SocketAddr) -> String {
    match config.server.public_url.as_str() {
        "" if address.ip().is_unspecified() => format!("{scheme}://localhost:{}", address.port()),
        "" => format!("{scheme}://{address}"),
        told => told.trim_end_matches('/').to_owned(),
    }
}

/// Returns the address that the server listens on for content, if hosts alone cannot separate that
/// from its own pages. It is known by an IP address unless a setting names it.
pub(crate) fn content_address(config: &Config) -> Result<Option<SocketAddr>, Error> {
    let url = config.server.content_url.as_ref().unwrap_or(&config.server.public_url);
    let is_named = !url.is_empty() && hosts::has_hosts(url);
    let needs_port = !is_named || config.server.content_listen.is_some();
    let leads_there = config.server.roles.contains(&Role::Gateway);
    (leads_there && needs_port).then(|| content_listen(config)).transpose()
}

/// Returns the configured content address, else the next port after the server's own.
fn content_listen(config: &Config) -> Result<SocketAddr, Error> {
    if let Some(told) = config.server.content_listen {
        return Ok(told);
    }
    let own = config.server.listen;
    let next = if own.port() == 0 { Some(0) } else { own.port().checked_add(1) };
    let none = || Error::Start {
        act: "listen for content".into(),
        message: format!("there is no port after that of {own}: set server.content_listen"),
    };
    Ok(SocketAddr::new(own.ip(), next.ok_or_else(none)?))
}

fn write(config: &Config, name: &str, address: SocketAddr) -> Result<(), Error> {
    let file = config.data.folder.join(name);
    files::replace_unflushed(&file, Readers::Anyone, format!("{address}\n").as_bytes())
        .map_err(Error::io(format!("write {}", file.display())))
}

pub(super) fn forget(config: &Config) {
    for name in [ADDRESS_FILE, CONTENT_ADDRESS_FILE] {
        match fs::remove_file(config.data.folder.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::debug!(%error, name, "the address file could not be removed");
            }
            _ => {}
        }
    }
}
