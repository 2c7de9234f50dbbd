//! A provider on loopback that answers as its test wants.

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

pub type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;
type Answers = dyn Fn(usize, &Parts, &Bytes) -> Answer + Send + Sync;

pub struct Standin {
    pub url: String,
    /// The authority behind its own certificate.
    pub authority: RootCertStore,
    pub asked: Arc<Mutex<Vec<(Parts, Bytes)>>>,
    pub connections: Arc<AtomicUsize>,
    _serving: AbortOnDropHandle<()>,
}

impl Standin {
    /// Starts one over plain HTTP. `answer` is passed the number of earlier requests.
    pub async fn start(
        answer: impl Fn(usize, &Parts, &Bytes) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::serve(Arc::new(answer), None).await
    }

    /// Starts one that answers its only request with what is sent to it, event by event.
    pub async fn event_by_event() -> (mpsc::UnboundedSender<io::Result<Bytes>>, Self) {
        let (sender, answer) = events();
        let answer = Mutex::new(Some(answer));
        (sender, Self::start(move |_, _, _| answer.lock().take().unwrap()).await)
    }

    /// Starts one over TLS, with HTTP/2.
    pub async fn secure(
        answer: impl Fn(usize, &Parts, &Bytes) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let mut standin = Self::serve(Arc::new(answer), Some(acceptor)).await;
        standin.authority.add(made.cert.der().clone()).unwrap();
        standin
    }

    async fn serve(answer: Arc<Answers>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = match &tls {
            Some(_) => format!("https://localhost:{port}"),
            None => format!("http://127.0.0.1:{port}"),
        };
        let asked: Arc<Mutex<Vec<(Parts, Bytes)>>> = Arc::default();
        let connections: Arc<AtomicUsize> = Arc::default();
        let (requests, count) = (Arc::clone(&asked), Arc::clone(&connections));
        let serving = tokio::spawn(async move {
            let mut serving = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                stream.set_nodelay(true).unwrap();
                let (tls, answer, asked) =
                    (tls.clone(), Arc::clone(&answer), Arc::clone(&requests));
                serving.spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (answer, asked) = (Arc::clone(&answer), Arc::clone(&asked));
                        async move {
                            let (head, body) = request.into_parts();
                            let body = body.collect().await.unwrap().to_bytes();
                            let number = asked.lock().len();
                            let response = answer(number, &head, &body);
                            asked.lock().push((head, body));
                            Ok::<_, Infallible>(response)
                        }
                    });
                    let builder = auto::Builder::new(TokioExecutor::new());
                    // Errors of callers that went away do not matter.
                    match tls {
                        None => {
                            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                        }
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                        }
                    }
                });
            }
        });
        let serving = AbortOnDropHandle::new(serving);
        Self { url, authority: RootCertStore::empty(), asked, connections, _serving: serving }
    }

    pub fn count(&self) -> usize {
        self.asked.lock().len()
    }
}

pub fn json(status: u16, text: &str) -> Answer {
    with(status, "application/json", text)
}

pub fn with(status: u16, kind: &str, text: &str) -> Answer {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes()));
    let body = UnsyncBoxBody::new(body.map_err(|never| match never {}));
    Response::builder().status(status).header("content-type", kind).body(body).unwrap()
}

/// Returns an answer whose events the test sends one by one. An error breaks the connection.
pub fn events() -> (mpsc::UnboundedSender<io::Result<Bytes>>, Answer) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<io::Result<Bytes>>();
    let pieces = futures_util::stream::poll_fn(move |cx| {
        receiver.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    });
    let body = UnsyncBoxBody::new(StreamBody::new(pieces));
    let response = Response::builder().header("content-type", "text/event-stream");
    (sender, response.body(body).unwrap())
}

/// Returns a whole stream.
pub fn streamed(pieces: &[&str]) -> Answer {
    let (sender, answer) = events();
    for piece in pieces {
        sender.send(Ok(Bytes::copy_from_slice(piece.as_bytes()))).unwrap();
    }
    answer
}

pub const ANSWER: &str = r#"{"id":"c1","object":"chat.completion","created":1,"model":"gpt-x","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}"#;

pub const STREAM: [&str; 4] = [
    "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-x\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"}}]}\n\n",
    "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-x\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15}}\n\n",
    "data: [DONE]\n\n",
];
