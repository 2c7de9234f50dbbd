//! HTTP and HTTPS requests that this program itself sends.
//!
//! They are sent from inside the sandbox, so they can reach what any process in it can reach, and
//! nothing more. Trusted certificates are those of the image, or of `SSL_CERT_FILE`. They are read
//! again for each connection, because such connections are rare and a sleeping sandbox should not
//! hold memory for them.

use crate::blocking;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("its address is not one of HTTP")]
    Address,
    #[error("it cannot be reached: {0}")]
    Connect(#[from] io::Error),
    #[error("the connection broke: {0}")]
    Exchange(#[from] hyper::Error),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

/// Parses an address that `send` accepts.
pub(crate) fn parse(address: &str) -> Result<Uri, Error> {
    let uri: Uri = address.parse().map_err(|_| Error::Address)?;
    scheme(&uri)?;
    Ok(uri)
}

fn scheme(uri: &Uri) -> Result<Scheme, Error> {
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(_)) => Ok(Scheme::Https),
        (Some("http"), Some(_)) => Ok(Scheme::Http),
        _ => Err(Error::Address),
    }
}

/// Sends a request that has an absolute address. The caller has to limit the waiting time.
pub(crate) async fn send(request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
    let uri = request.uri();
    let host = uri.host().ok_or(Error::Address)?.to_owned();
    let scheme = scheme(uri)?;
    let port = uri.port_u16().unwrap_or(if scheme == Scheme::Https { 443 } else { 80 });
    let addresses = addresses(host.trim_matches(['[', ']']).to_owned(), port).await?;
    let stream = TcpStream::connect(addresses.as_slice()).await?;
    if scheme == Scheme::Http {
        return exchange(stream, request).await;
    }
    let name = ServerName::try_from(host).map_err(|_| Error::Address)?;
    let config = blocking::run(trust).await.map_err(io::Error::other)??;
    exchange(TlsConnector::from(config).connect(name, stream).await?, request).await
}

async fn addresses(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let find = move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
    blocking::run(find).await.map_err(io::Error::other)?
}

fn trust() -> io::Result<Arc<ClientConfig>> {
    let found = rustls_native_certs::load_native_certs();
    // Those that can be read may be enough; otherwise this says why servers are not trusted.
    for error in &found.errors {
        let _ = writeln!(io::stderr(), "holm-guest: certificates cannot be read: {error}");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the exchange, whose own error is the one that counts.
    tokio::spawn(connection);
    let authority = request.uri().authority().map_or("", |authority| authority.as_str());
    // A password in the address does not belong into this header.
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = HeaderValue::from_str(host).map_err(|_| Error::Address)?;
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|_| Error::Address)?;
    request.headers_mut().insert(header::HOST, host);
    Ok(sender.send_request(request).await?)
}
