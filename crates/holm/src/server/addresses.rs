//! Addresses the server listens on, and URLs at which callers reach it.

use super::serve::Listener;
use crate::config::Config;
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
        let (own, server) = (listener.address()?, &config.server);
        let content = match server.content_address() {
            Some(address) => Some(listener.for_content(address).await?),
            None => None,
        };
        let listen = content.as_ref().map(Listener::address).transpose()?;
        let port = listen.or_else(|| server.content_listen()).map_or(0, |listen| listen.port());
        // A server that does not lead to workloads opened no port for content; the port only has
        // to differ from its own.
        let port = if port == 0 { own.port() ^ 1 } else { port };
        let (public, url) = (server.public_origin(own), server.content_origin(own, port));
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
    let scheme = config.server.scheme();
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
