//! A server with TLS that speaks HTTP/2 to whoever wants it.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Serves `*.site.test` until the process ends.
pub(super) struct Site {
    pub(super) port: u16,
    /// Certificate of the authority that vouches for it, as PEM.
    pub(super) authority: String,
    asked: Arc<Mutex<BTreeSet<String>>>,
}

impl Site {
    pub(super) fn start(address: Ipv4Addr) -> Self {
        let (authority, tls) = identity();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = std::net::TcpListener::bind((address, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::default();
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(serve(listener, acceptor, noted));
        });
        Self { port, authority, asked }
    }

    pub(super) fn asked(&self, host: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|asked| asked.starts_with(host))
    }
}

/// Makes an authority, and the settings of a server that has a certificate of it.
fn identity() -> (String, ServerConfig) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "authority of the site");
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["*.site.test".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().der().clone();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let tls = ServerConfig::builder().with_no_client_auth();
    let mut tls = tls.with_single_cert(vec![certificate], key).unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (authority, tls)
}

async fn serve(
    listener: std::net::TcpListener,
    acceptor: TlsAcceptor,
    noted: Arc<Mutex<BTreeSet<String>>>,
) {
    let listener = TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, noted) = (acceptor.clone(), Arc::clone(&noted));
        tokio::spawn(async move {
            let stream = TokioIo::new(acceptor.accept(stream).await.ok()?);
            let answer = service_fn(move |request| answer(request, Arc::clone(&noted)));
            auto::Builder::new(TokioExecutor::new()).serve_connection(stream, answer).await.ok()
        });
    }
}

/// Answers with the request it got, and notes the host.
async fn answer(
    request: Request<Incoming>,
    noted: Arc<Mutex<BTreeSet<String>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let host = head.uri.host().map(str::to_owned).or_else(|| {
        head.headers.get("host").map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned())
    });
    noted.lock().unwrap().extend(host);
    let mut told = format!("{:?} {} {}\n", head.version, head.method, head.uri);
    for (name, value) in &head.headers {
        writeln!(told, "{name}: {}", String::from_utf8_lossy(value.as_bytes())).unwrap();
    }
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Ok(Response::new(Full::new(Bytes::from([told.as_bytes(), &body].concat()))))
}
