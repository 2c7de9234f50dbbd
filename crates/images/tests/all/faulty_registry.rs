//! A registry that makes the mistakes that it is told to make.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use images::{Platform, Reference};
use serde_json::{Value, json};

use crate::archive::{Archive, gzip};
use crate::digest_of;

/// What the registry does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The first answers, up to the third, have this status.
    Status(u16),
    Always(u16),
    /// Each answer is cut off after some bytes.
    Cut {
        knows_ranges: bool,
    },
    WrongBlob,
    WrongManifest,
    /// Blobs are redirected to another address of this machine.
    Redirect,
    /// The index has nothing for this machine.
    OtherPlatform,
    TooLong,
    /// The manifest lists layers that the registry does not have.
    NoLayers,
    /// The layers do not unpack to what the configuration states.
    OtherLayers,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Open,
    Basic,
    Token,
}

pub(crate) struct Registry {
    address: String,
    pub(crate) served: Arc<Served>,
}

pub(crate) struct Served {
    pub(crate) documents: HashMap<String, (Vec<u8>, &'static str)>,
    fault: Fault,
    access: Access,
    pub(crate) requests: AtomicUsize,
    pub(crate) blob_requests: AtomicUsize,
    address: String,
}

impl Registry {
    pub(crate) async fn start(fault: Fault, access: Access) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = Arc::new(Served {
            documents: documents(fault),
            fault,
            access,
            requests: AtomicUsize::new(0),
            blob_requests: AtomicUsize::new(0),
            address: address.clone(),
        });
        let router = Router::new().fallback(answer).with_state(served.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, served }
    }

    pub(crate) fn image(&self) -> Reference {
        format!("{}/org/name:v1", self.address).parse().unwrap()
    }
}

pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Returns an image of two layers behind an index.
fn documents(fault: Fault) -> HashMap<String, (Vec<u8>, &'static str)> {
    let mut documents = HashMap::new();
    let mut add = |name: String, bytes: Vec<u8>, media_type: &'static str| -> Value {
        let digest = digest_of(&bytes);
        let descriptor = json!({"mediaType": media_type, "digest": digest, "size": bytes.len()});
        documents.insert(format!("{name}{digest}"), (bytes, media_type));
        descriptor
    };
    let mut state = 1u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = std::iter::repeat_with(&mut random).take(300_000).collect();
    let layers =
        [Archive::new().file("lower", noise).bytes(), Archive::new().file("upper", "2").bytes()];
    let blob = |name: &str| format!("/v2/org/{name}/blobs/");
    let lure = Archive::new().file("lure", "3").bytes();
    let packed: Vec<_> = layers
        .iter()
        .map(|layer| if fault == Fault::OtherLayers { &lure } else { layer })
        .map(|layer| add(blob("name"), gzip(layer), LAYER))
        .collect();
    let config = json!({
        "os": "linux", "architecture": Platform::here().architecture, "config": {"Cmd": ["run"]},
        "rootfs": {"type": "layers", "diff_ids": layers.each_ref().map(|layer| digest_of(layer))},
    });
    let config =
        add(blob("name"), config.to_string().into(), "application/vnd.oci.image.config.v1+json");
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": packed});
    let manifests = "/v2/org/name/manifests/";
    let mut entry = add(
        manifests.into(),
        manifest.to_string().into(),
        "application/vnd.docker.distribution.manifest.v2+json",
    );
    entry["platform"] =
        json!({"os": "linux", "architecture": Platform::here().architecture, "variant": "v8"});
    let mut other = entry.clone();
    other["platform"]["architecture"] = json!("s390x");
    let entries =
        if fault == Fault::OtherPlatform { json!([other]) } else { json!([other, entry]) };
    let index = json!({"schemaVersion": 2, "manifests": entries}).to_string().into_bytes();
    documents.insert(format!("{manifests}v1"), (index, "application/vnd.oci.image.index.v1+json"));
    documents
}

async fn answer(State(served): State<Arc<Served>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let headers = request.headers();
    if path == "/token" {
        return token(headers, request.uri().query().unwrap_or_default());
    }
    let elsewhere = path.strip_prefix("/elsewhere");
    if elsewhere.is_some() && headers.contains_key(header::AUTHORIZATION) {
        return (StatusCode::BAD_REQUEST, "the token went to another host").into_response();
    }
    if let Some(refused) = served.refuse(headers).filter(|_| elsewhere.is_none()) {
        return refused;
    }
    let count = served.requests.fetch_add(1, Ordering::Relaxed);
    match served.fault {
        Fault::Always(status) => return StatusCode::from_u16(status).unwrap().into_response(),
        Fault::Status(status) if count < 2 => {
            return (StatusCode::from_u16(status).unwrap(), [(header::RETRY_AFTER, "0")])
                .into_response();
        }
        _ => {}
    }
    let path = elsewhere.unwrap_or(&path);
    let Some((bytes, media_type)) = served.documents.get(path) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if served.fault == Fault::NoLayers && *media_type == LAYER {
        return StatusCode::NOT_FOUND.into_response();
    }
    if path.contains("/manifests/") {
        let extra: &[u8] = if served.fault == Fault::WrongManifest { b" " } else { b"" };
        return ([(header::CONTENT_TYPE, *media_type)], [bytes, extra].concat()).into_response();
    }
    served.blob(path, elsewhere.is_some(), bytes, headers)
}

/// Issues a token to a client that has the password; the scope must be the one that an honest
/// client asks for.
fn token(headers: &HeaderMap, query: &str) -> Response {
    let honest =
        query.contains("scope=repository%3Aorg%2Fname%3Apull") && query.contains("service=test");
    match headers.get(header::AUTHORIZATION) {
        Some(value) if value == "Basic dXNlcjpwYXNz" && honest => {
            r#"{"token":"granted","access_token":"granted"}"#.into_response()
        }
        _ => StatusCode::UNAUTHORIZED.into_response(),
    }
}

impl Served {
    fn refuse(&self, headers: &HeaderMap) -> Option<Response> {
        let (wanted, challenge) = match self.access {
            Access::Open => return None,
            Access::Basic => ("Basic dXNlcjpwYXNz", "Basic realm=\"test\"".to_owned()),
            Access::Token => (
                "Bearer granted",
                format!(
                    "Bearer realm=\"http://{}/token\",service=\"test\",scope=\"repository:org/name:pull\"",
                    self.address
                ),
            ),
        };
        let given = headers.get(header::AUTHORIZATION).is_some_and(|value| value == wanted);
        let refused = (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]);
        (!given).then(|| refused.into_response())
    }

    fn blob(&self, path: &str, elsewhere: bool, bytes: &[u8], headers: &HeaderMap) -> Response {
        self.blob_requests.fetch_add(1, Ordering::Relaxed);
        let range = headers
            .get(header::RANGE)
            .and_then(|value| value.to_str().ok()?[6..].trim_end_matches('-').parse().ok());
        let from: usize = range.unwrap_or(0);
        match self.fault {
            Fault::WrongBlob => vec![b'x'; bytes.len()].into_response(),
            Fault::TooLong => [bytes, b"more"].concat().into_response(),
            Fault::Redirect if !elsewhere => {
                let port = self.address.rsplit(':').next().unwrap();
                let location = format!("http://localhost:{port}/elsewhere{path}");
                (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location)]).into_response()
            }
            Fault::Cut { knows_ranges } => {
                let from = if knows_ranges { from } else { 0 };
                // Clients of a registry without ranges do succeed at some point.
                let is_last = !knows_ranges && self.blob_requests.load(Ordering::Relaxed) > 5;
                let end = if is_last { bytes.len() } else { bytes.len().min(from + 120_000) };
                cut(&bytes[from..end], bytes.len() - from, from, bytes.len())
            }
            _ => bytes.to_vec().into_response(),
        }
    }
}

/// Promises more bytes than it sends, unless everything is sent.
fn cut(part: &[u8], promised: usize, from: usize, all: usize) -> Response {
    let is_whole = part.len() == promised;
    let rest = futures_util::stream::once(async {
        // Lets the server send what it has before it fails.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("cut"))
    });
    let chunk = futures_util::stream::once(std::future::ready(Ok(Bytes::copy_from_slice(part))));
    let body = Body::from_stream(chunk.chain(rest).take(if is_whole { 1 } else { 2 }));
    let range = format!("bytes {from}-{}/{all}", all - 1);
    let status = if from > 0 { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    (status, [(header::CONTENT_RANGE, range)], body).into_response()
}
