//! One question over HTTP and its answer, both JSON. The certificates that are trusted are those of the image, or of
//! `SSL_CERT_FILE`.

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const ANSWER_BYTES_MAX: usize = 16 << 20;
const ANSWER_WAIT: Duration = Duration::from_secs(120);

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("its address is not one of HTTP")]
    Address,
    #[error("it cannot be reached: {0}")]
    Connect(#[from] io::Error),
    #[error("the connection broke: {0}")]
    Exchange(#[from] hyper::Error),
    #[error("it answered with status {0}")]
    Status(StatusCode),
    #[error("its answer is too large, cut off or no JSON")]
    Answer,
    #[error("it gave no answer in time")]
    Late,
}

pub(super) async fn post(url: &str, key: &str, question: &Value) -> Result<Value, Error> {
    let uri: Uri = url.parse().map_err(|_| Error::Address)?;
    let exchange = Box::pin(exchange(&uri, key, question));
    tokio::time::timeout(ANSWER_WAIT, exchange).await.map_err(|_| Error::Late)?
}

async fn exchange(uri: &Uri, key: &str, question: &Value) -> Result<Value, Error> {
    let host = uri.host().ok_or(Error::Address)?;
    let secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(Error::Address),
    };
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    if !secure {
        return send(stream, uri, key, question).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|_| Error::Address)?;
    let config = tokio::task::spawn_blocking(trust).await.map_err(io::Error::other)??;
    send(TlsConnector::from(config).connect(name, stream).await?, uri, key, question).await
}

fn trust() -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    uri: &Uri,
    key: &str,
    question: &Value,
) -> Result<Value, Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the exchange, whose error is the one that counts.
    tokio::spawn(connection);
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let request = Request::post(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, authority)
        .header(header::AUTHORIZATION, format!("Bearer {key}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(question.to_string())))
        .map_err(|_| Error::Address)?;
    let response = sender.send_request(request).await?;
    if !response.status().is_success() {
        return Err(Error::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|_| Error::Answer)?;
    serde_json::from_slice(&body.to_bytes()).map_err(|_| Error::Answer)
}
