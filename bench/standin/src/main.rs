//! Stands in for the providers of models: it follows the wire formats that they publish, and fails
//! in the ways in which they do.
//!
//! `standin [--listen ADDRESS] [--tls ADDRESS CERTIFICATE KEY] [--forgetful]` prints where it
//! listens, as JSON, and serves until it is ended. It answers in the dialect of the requested path.
//! How it behaves is told by words (see [`behaviour`]) after a `+` in the name of the model, in the
//! header `x-standin`, or at the start of the path: `/with/WORDS/v1/messages`.
//!
//! `GET /standin/served` returns what it has counted by model, `GET /standin/requests` the last
//! requests; `?model=NAME` selects one model.
#![expect(clippy::print_stdout, reason = "whoever starts it reads there where it listens")]

mod behaviour;
mod dialects;
mod records;
mod reply;
mod serve;

use anyhow::{Context as _, bail};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use records::Records;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Default)]
struct Wanted {
    listen: Option<String>,
    tls: Option<[String; 3]>,
    forgetful: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let wanted = wanted(std::env::args().skip(1))?;
    let records = Arc::new(Records::new(!wanted.forgetful));
    let listen = wanted.listen.as_deref().unwrap_or("127.0.0.1:0");
    let plain = TcpListener::bind(listen).await.with_context(|| format!("no room at {listen}"))?;
    let mut said = json!({"http": plain.local_addr()?.to_string()});
    if let Some([listen, certificate, key]) = &wanted.tls {
        let listener = TcpListener::bind(listen).await?;
        said["https"] = listener.local_addr()?.to_string().into();
        tokio::spawn(accept(listener, Some(tls(certificate, key)?), Arc::clone(&records)));
    }
    println!("{said}");
    accept(plain, None, records).await
}

fn wanted(mut words: impl Iterator<Item = String>) -> anyhow::Result<Wanted> {
    let mut wanted = Wanted::default();
    while let Some(word) = words.next() {
        let mut next = || words.next().with_context(|| format!("{word} wants more words"));
        match word.as_str() {
            "--listen" => wanted.listen = Some(next()?),
            "--tls" => wanted.tls = Some([next()?, next()?, next()?]),
            "--forgetful" => wanted.forgetful = true,
            _ => bail!("standin [--listen ADDRESS] [--tls ADDRESS CERTIFICATE KEY] [--forgetful]"),
        }
    }
    Ok(wanted)
}

fn tls(certificate: &str, key: &str) -> anyhow::Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let mut tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(tls)))
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    records: Arc<Records>,
) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let (tls, records) = (tls.clone(), Arc::clone(&records));
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            // A connection ends with its caller, however that ends.
            let _ = secured(stream, tls, records).await;
        });
    }
}

async fn secured(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    records: Arc<Records>,
) -> anyhow::Result<()> {
    match tls {
        Some(tls) => connection(tls.accept(stream).await?, records).await,
        None => connection(stream, records).await,
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    records: Arc<Records>,
) -> anyhow::Result<()> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).pipeline_flush(true);
    let service = service_fn(move |request| {
        let records = Arc::clone(&records);
        async move { Ok::<_, Infallible>(serve::answer(request, records).await) }
    });
    // The error is the caller's, or one that it has asked for.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    Ok(())
}
