//! An organisation's proxy through which the internet is reached.

use super::stream::HostStream;
use crate::settings::{Limits, Upstream};
use crate::upstream_tls::server_name;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use types::parts::Sensitive;
use types::parts::hosts::Host;
use types::parts::hosts::Places;

#[derive(Debug, thiserror::Error)]
pub enum BadUpstream {
    /// Does not repeat the address, which may hold a password.
    #[error(
        "the address of the organisation's proxy must be `http://HOST:PORT` or \
         `https://HOST:PORT`, without a user"
    )]
    Url,
    #[error("the proxy of the organisation is asked over http:// or https://, not over `{0}`")]
    Scheme(String),
    #[error(transparent)]
    Direct(#[from] types::parts::hosts::BadPlace),
}

/// Why the proxy did not connect to a host. The texts are shown to the program that asked for it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyError {
    #[error("the certificate of the proxy in front is not from an authority that is trusted")]
    Untrusted,
    #[error("the certificate of the proxy in front is for another name")]
    OtherName,
    #[error("the certificate of the proxy in front is not accepted: {0}")]
    Certificate(CertificateError),
    #[error("TLS with the proxy in front failed: {0}")]
    Tls(io::Error),
    #[error("the proxy in front was not ready for TLS in time")]
    TlsTooSlow,
    #[error("the proxy in front did not answer in time")]
    TooSlow,
    #[error("the proxy in front answers {0}")]
    Refused(String),
    #[error("the proxy in front answers nonsense")]
    Nonsense,
    #[error("the proxy in front ended the connection: {0}")]
    Broken(#[from] io::Error),
}

impl ProxyError {
    pub(crate) const fn is_too_slow(&self) -> bool {
        matches!(self, Self::TlsTooSlow | Self::TooSlow)
    }

    fn of_tls(error: io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let Some(rustls::Error::InvalidCertificate(why)) = inner else { return Self::Tls(error) };
        match why {
            // The latter if a trusted authority has the same name, and another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::Untrusted,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::OtherName
            }
            other => Self::Certificate(other.clone()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Way {
    host: Host,
    port: u16,
    speaks: Speaks,
    /// The whole header line.
    authorization: Option<Sensitive<String>>,
    direct: Places,
    handshake: Duration,
    answer: Duration,
}

/// What the proxy itself is spoken to in.
#[derive(Debug)]
enum Speaks {
    Http,
    Https { name: ServerName<'static>, tls: Arc<ClientConfig> },
}

const HTTP_PORT: u16 = 3128;
const HTTPS_PORT: u16 = 443;
const HEAD_BYTES_MAX: usize = 8 << 10;

impl Way {
    /// `tls` is for proxies with an `https://` address.
    pub(super) fn new(
        upstream: &Upstream,
        tls: &Arc<ClientConfig>,
        limits: &Limits,
    ) -> Result<Self, BadUpstream> {
        let bad = || BadUpstream::Url;
        let uri: http::Uri = upstream.url.parse().map_err(|_| bad())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or_else(bad)?;
        let host = Host::parse(authority.host()).ok_or_else(bad)?;
        let (speaks, usual_port) = match uri.scheme_str() {
            Some("http") => (Speaks::Http, HTTP_PORT),
            Some("https") => {
                let name = server_name(&host).map_err(|_| bad())?;
                (Speaks::Https { name, tls: Arc::clone(tls) }, HTTPS_PORT)
            }
            Some(other) => return Err(BadUpstream::Scheme(other.to_owned())),
            None => return Err(bad()),
        };
        let authorization = upstream.user.as_ref().map(|user| {
            let password = upstream.password.as_ref().map_or("", |password| &password.0);
            let credential = STANDARD.encode(format!("{user}:{password}"));
            Sensitive(format!("Proxy-Authorization: Basic {credential}\r\n"))
        });
        let direct = Places::parse(&upstream.no_proxy)?;
        let port = authority.port_u16().unwrap_or(usual_port);
        let (handshake, answer) = (limits.handshake, limits.connect);
        Ok(Self { host, port, speaks, authorization, direct, handshake, answer })
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

    /// Asks the proxy, to which `stream` leads, for a connection to a host.
    pub(super) async fn through(
        &self,
        stream: TcpStream,
        host: &Host,
        port: u16,
    ) -> Result<HostStream, ProxyError> {
        let mut stream = match &self.speaks {
            Speaks::Http => HostStream::Plain(stream),
            Speaks::Https { name, tls } => {
                HostStream::InTls(Box::new(self.open(name, tls, stream).await?))
            }
        };
        let asked = timeout(self.answer, self.ask(&mut stream, host, port)).await;
        asked.map_err(|_| ProxyError::TooSlow)??;
        Ok(stream)
    }

    async fn open(
        &self,
        name: &ServerName<'static>,
        tls: &Arc<ClientConfig>,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, ProxyError> {
        let opening = TlsConnector::from(Arc::clone(tls)).connect(name.clone(), stream);
        let opened = timeout(self.handshake, Box::pin(opening)).await;
        opened.map_err(|_| ProxyError::TlsTooSlow)?.map_err(ProxyError::of_tls)
    }

    /// The proxy gets the name rather than the address, because such proxies have rules for names.
    async fn ask(&self, stream: &mut HostStream, host: &Host, port: u16) -> Result<(), ProxyError> {
        let target = match host {
            Host::Address(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            host => format!("{host}:{port}"),
        };
        let authorization = self.authorization.as_ref().map_or("", |field| &field.0);
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        let head = read_head(stream).await?;
        let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
        match status {
            Some(status) if status.starts_with('2') => Ok(()),
            Some(status) if status.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err(ProxyError::Refused(status.to_owned()))
            }
            _ => Err(ProxyError::Nonsense),
        }
    }
}

/// Reads byte by byte, because what follows the head belongs to the host behind the proxy.
async fn read_head(stream: &mut HostStream) -> Result<String, ProxyError> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD_BYTES_MAX {
            return Err(ProxyError::Nonsense);
        }
        head.push(stream.read_u8().await?);
    }
    String::from_utf8(head).map_err(|_| ProxyError::Nonsense)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream_tls::UpstreamTls;
    use rustls::RootCertStore;

    fn way(url: &str) -> Result<Way, BadUpstream> {
        let (user, password, no_proxy) = (None, None, Vec::new());
        let upstream = Upstream { url: url.to_owned(), user, password, no_proxy };
        let tls = UpstreamTls::new(RootCertStore::empty()).unwrap();
        Way::new(&upstream, &tls.one, &Limits::default())
    }

    #[test]
    fn a_password_in_the_address_is_refused_and_not_repeated() {
        for url in [
            "http://user:hush@proxy:3128",
            "https://user:hush@proxy:3128",
            "http://user:hush@pro xy:3128",
            "user:hush@",
        ] {
            let why = way(url).unwrap_err();
            assert!(!format!("{why} {why:?}").contains("hush"), "{why:?}");
        }
    }

    #[test]
    fn the_scheme_decides_the_usual_port() {
        for (url, port) in [
            ("http://proxy", 3128),
            ("https://proxy", 443),
            ("https://proxy:3129", 3129),
            ("https://[::1]", 443),
        ] {
            assert_eq!(way(url).unwrap().port(), port, "{url}");
        }
        assert!(matches!(way("socks5://proxy"), Err(BadUpstream::Scheme(_))));
    }
}
