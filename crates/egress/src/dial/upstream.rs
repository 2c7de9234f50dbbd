//! An organisation's proxy through which the internet is reached.

use crate::settings::Upstream;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::net::IpAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use types::parts::Sensitive;
use types::parts::hosts::Host;
use types::parts::hosts::Places;

#[derive(Debug, thiserror::Error)]
pub enum BadUpstream {
    /// Does not repeat the address, which may hold a password.
    #[error("the address of the organisation's proxy must be `http://HOST:PORT`, without a user")]
    Url,
    #[error("the proxy of the organisation is asked over http:// only, not over `{0}`")]
    Scheme(String),
    #[error(transparent)]
    Direct(#[from] types::parts::hosts::BadPlace),
}

#[derive(Debug)]
pub(super) struct Way {
    host: Host,
    port: u16,
    /// The whole header line.
    authorization: Option<Sensitive<String>>,
    direct: Places,
}

const PORT: u16 = 3128;
const HEAD_BYTES_MAX: usize = 8 << 10;

impl Way {
    pub(super) fn new(upstream: &Upstream) -> Result<Self, BadUpstream> {
        let bad = || BadUpstream::Url;
        let uri: http::Uri = upstream.url.parse().map_err(|_| bad())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(other) => return Err(BadUpstream::Scheme(other.to_owned())),
            None => return Err(bad()),
        }
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or_else(bad)?;
        let host = Host::parse(authority.host()).ok_or_else(bad)?;
        let authorization = upstream.user.as_ref().map(|user| {
            let password = upstream.password.as_ref().map_or("", |password| &password.0);
            let credential = STANDARD.encode(format!("{user}:{password}"));
            Sensitive(format!("Proxy-Authorization: Basic {credential}\r\n"))
        });
        let direct = Places::parse(&upstream.no_proxy)?;
        Ok(Self { host, port: authority.port_u16().unwrap_or(PORT), authorization, direct })
    }

    pub(super) const fn host(&self) -> &Host {
        &self.host
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Returns whether a host is reached through the proxy.
    pub(super) fn leads_to(&self, host: &Host, addresses: &[IpAddr]) -> bool {
        let is_direct = |address: &IpAddr| self.direct.has(&Host::Address(*address));
        !self.direct.has(host) && !addresses.iter().any(is_direct)
    }

    /// Asks the proxy for a connection. It gets the name rather than the address, because such
    /// proxies have rules for names.
    pub(super) async fn through(
        &self,
        mut stream: TcpStream,
        host: &Host,
        port: u16,
    ) -> io::Result<TcpStream> {
        let target = match host {
            Host::Address(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            host => format!("{host}:{port}"),
        };
        let authorization = self.authorization.as_ref().map_or("", |field| &field.0);
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let head = read_head(&mut stream).await?;
        let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
        match status {
            Some(status) if status.starts_with('2') => Ok(stream),
            Some(status) if status.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err(io::Error::other(format!("the proxy in front answers {status}")))
            }
            _ => Err(io::Error::other("the proxy in front answers nonsense")),
        }
    }
}

/// Reads byte by byte, because what follows the head belongs to the host behind the proxy.
async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD_BYTES_MAX {
            return Err(io::Error::other("the proxy in front answers nonsense"));
        }
        head.push(stream.read_u8().await?);
    }
    String::from_utf8(head).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_the_address_is_refused_and_not_repeated() {
        for url in ["http://user:hush@proxy:3128", "http://user:hush@pro xy:3128", "user:hush@"] {
            let (user, password, no_proxy) = (None, None, Vec::new());
            let upstream = Upstream { url: url.to_owned(), user, password, no_proxy };
            let why = Way::new(&upstream).unwrap_err();
            assert!(!format!("{why} {why:?}").contains("hush"), "{why:?}");
        }
    }
}
