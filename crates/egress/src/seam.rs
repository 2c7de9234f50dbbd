//! What the other half of the crate has, as far as this half needs it.

use crate::host::Host;
use crate::policy::Policy;

pub(crate) fn bypasses(policy: &Policy, host: &Host) -> bool {
    policy.rules().bypass.contains(&host.to_string())
}

pub(crate) mod authority {
    use crate::host::Host;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use std::path::Path;
    use std::sync::Arc;
    use types::World;

    pub(crate) struct Authority {
        pem: String,
        issuer: Issuer<'static, KeyPair>,
    }

    impl Authority {
        pub(crate) fn open(_folder: &Path, _world: &World) -> std::io::Result<Self> {
            let make = || -> Result<Self, rcgen::Error> {
                let key = KeyPair::generate()?;
                let mut params = CertificateParams::new(Vec::new())?;
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                let pem = params.self_signed(&key)?.pem();
                Ok(Self { pem, issuer: Issuer::new(params, key) })
            };
            make().map_err(std::io::Error::other)
        }

        pub(crate) fn pem(&self) -> &str {
            &self.pem
        }

        pub(crate) fn server_config(&self, host: &Host) -> std::io::Result<Arc<ServerConfig>> {
            let make = || -> Result<_, rcgen::Error> {
                let key = KeyPair::generate()?;
                let params = CertificateParams::new(vec![host.to_string()])?;
                let certificate = params.signed_by(&key, &self.issuer)?;
                Ok((certificate.der().clone(), key))
            };
            let (certificate, key) = make().map_err(std::io::Error::other)?;
            let key =
                PrivateKeyDer::try_from(key.serialize_der()).map_err(std::io::Error::other)?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(std::io::Error::other)?
                .with_no_client_auth()
                .with_single_cert(vec![certificate], key)
                .map_err(std::io::Error::other)?;
            Ok(Arc::new(config))
        }
    }
}

pub(crate) mod events {
    use parking_lot::Mutex;
    use std::collections::VecDeque;
    use tokio::sync::Notify;
    use types::egress::EgressEvent;

    pub(crate) struct Events {
        max: usize,
        kept: Mutex<VecDeque<EgressEvent>>,
        more: Notify,
    }

    impl Events {
        pub(crate) fn new(max: usize) -> Self {
            Self { max, kept: Mutex::default(), more: Notify::new() }
        }

        pub(crate) fn note(&self, event: EgressEvent) {
            let mut kept = self.kept.lock();
            if kept.len() < self.max {
                kept.push_back(event);
            }
            self.more.notify_one();
        }

        pub(crate) async fn next(&self) -> Vec<EgressEvent> {
            loop {
                let kept: Vec<_> = self.kept.lock().drain(..).collect();
                if !kept.is_empty() {
                    return kept;
                }
                self.more.notified().await;
            }
        }
    }
}

pub(crate) mod intercept {
    use crate::client::Client;
    use crate::dial::Dial;
    use crate::host::Host;
    use crate::policy::Verdict;
    use crate::seam::authority::Authority;
    use crate::seam::events::Events;
    use bytes::Bytes;
    use http::uri::Scheme;
    use http::{Request, Response, StatusCode};
    use http_body_util::combinators::UnsyncBoxBody;
    use http_body_util::{BodyExt as _, Full};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use std::convert::Infallible;
    use std::sync::Arc;
    use tokio::io::{AsyncRead, AsyncWrite};
    use types::World;

    pub(crate) type Body = UnsyncBoxBody<Bytes, hyper::Error>;

    pub(crate) struct Shared {
        pub(crate) authority: Arc<Authority>,
        pub(crate) dial: Arc<dyn Dial>,
        pub(crate) events: Arc<Events>,
        pub(crate) world: World,
    }

    #[derive(Debug, Clone)]
    pub(crate) struct To {
        pub(crate) host: Host,
        pub(crate) port: u16,
        pub(crate) is_tls: bool,
    }

    pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        shared: Arc<Shared>,
        client: Arc<Client>,
        stream: S,
        to: To,
    ) {
        if to.is_tls {
            let Ok(config) = shared.authority.server_config(&to.host) else { return };
            let Ok(stream) = tokio_rustls::TlsAcceptor::from(config).accept(stream).await else {
                return;
            };
            return requests(shared, client, stream, to).await;
        }
        requests(shared, client, stream, to).await;
    }

    async fn requests<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        shared: Arc<Shared>,
        client: Arc<Client>,
        stream: S,
        to: To,
    ) {
        let answer = service_fn(move |mut request: Request<Incoming>| {
            let (shared, client) = (Arc::clone(&shared), Arc::clone(&client));
            let host = request.headers().get("host").and_then(|host| host.to_str().ok());
            let host = host.map_or_else(|| to.host.to_string(), str::to_owned);
            let uri = format!("http://{host}{}", request.uri().path());
            async move {
                if let Ok(uri) = uri.parse() {
                    *request.uri_mut() = uri;
                }
                Ok::<_, Infallible>(forward(shared, client, request, Scheme::HTTP).await)
            }
        });
        let builder = hyper::server::conn::http1::Builder::new();
        drop(builder.serve_connection(TokioIo::new(stream), answer).await);
    }

    pub(crate) async fn forward(
        shared: Arc<Shared>,
        client: Arc<Client>,
        request: Request<Incoming>,
        _scheme: Scheme,
    ) -> Response<Body> {
        let answer = |status: StatusCode| {
            let body = Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync();
            let mut response = Response::new(body);
            *response.status_mut() = status;
            response
        };
        let authority = request.uri().authority().cloned();
        let Some(host) = authority.as_ref().and_then(|it| Host::parse(it.host())) else {
            return answer(StatusCode::BAD_REQUEST);
        };
        let port = authority.and_then(|it| it.port_u16()).unwrap_or(80);
        if matches!(client.policy().of_host(&host), Verdict::Block { .. }) {
            return answer(StatusCode::FORBIDDEN);
        }
        let Ok(stream) = shared.dial.dial(&client, &host, port).await else {
            return answer(StatusCode::BAD_GATEWAY);
        };
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let Ok((mut sender, connection)) = handshake else {
            return answer(StatusCode::BAD_GATEWAY);
        };
        tokio::spawn(connection);
        match sender.send_request(request).await {
            Ok(response) => response.map(|body| body.boxed_unsync()),
            Err(_) => answer(StatusCode::BAD_GATEWAY),
        }
    }
}
