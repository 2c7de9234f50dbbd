//! Where the server listens and where callers reach it: its own pages and the management interface,
//! and apart from them what workspaces serve.
//!
//! A name has hosts below it, each an origin of its own. Where there is none, content has another
//! port.

use super::serve::Listener;
use crate::config::{Config, Role};
use crate::error::Error;
use files::Readers;
use std::fs;
use std::net::SocketAddr;
use types::hosts;

/// Hold the bound addresses while the server runs.
const ADDRESS_FILE: &str = "address";
const CONTENT_ADDRESS_FILE: &str = "content-address";

/// Where callers reach the server, without slashes at their ends.
#[derive(Debug, Clone)]
pub(crate) struct Urls {
    /// The management interface and the server's own pages.
    pub(crate) public: String,
    /// What workspaces serve: at hosts below it where it has a name, else by path.
    pub(crate) content: String,
}

pub(super) struct Addresses {
    pub(super) urls: Urls,
    pub(super) own: SocketAddr,
    /// The listener for content, where hosts cannot tell it from the server's own pages.
    pub(super) content: Option<Listener>,
}

impl Addresses {
    pub(super) async fn open(config: &Config, listener: &Listener) -> Result<Self, Error> {
        let own = listener.address()?;
        let public = public_url(config, listener.scheme(), own);
        let told = config.server.content_url.as_deref().map(|url| url.trim_end_matches('/'));
        let is_named = hosts::has_hosts(told.unwrap_or(&public));
        let leads_there = config.server.roles.contains(&Role::Gateway);
        let content = if leads_there && (!is_named || config.server.content_listen.is_some()) {
            Some(listener.for_content(content_listen(config)?).await?)
        } else {
            None
        };
        let url = match told {
            Some(told) => told.to_owned(),
            None if is_named => public.clone(),
            None => {
                let listen =
                    content.as_ref().map_or_else(|| content_listen(config), Listener::address)?;
                // A server that leads to no workloads took no free port; only that it is another
                // one matters then.
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

    /// Tells programs beside the server where it listens.
    pub(super) fn tell(&self, config: &Config) -> Result<(), Error> {
        // One that was killed has left its own.
        forget(config);
        if let Some(content) = &self.content {
            write(config, CONTENT_ADDRESS_FILE, content.address()?)?;
        }
        write(config, ADDRESS_FILE, self.own)
    }
}

/// Where callers reach the server, unless it is told: on this machine.
fn public_url(config: &Config, scheme: &str, address: SocketAddr) -> String {
    match config.server.public_url.as_str() {
        "" if address.ip().is_unspecified() => format!("{scheme}://localhost:{}", address.port()),
        "" => format!("{scheme}://{address}"),
        told => told.trim_end_matches('/').to_owned(),
    }
}

/// Beside the server's own, unless the settings say otherwise.
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
