use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use images::{
    Credentials, Digest, Error, Platform, Progress, PullError, Puller, Reference, RetryPolicy,
};
use serde_json::{Value, json};

use crate::archive::{Archive, gzip};
use crate::{Fixture, digest_of};

/// What the registry does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
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
enum Access {
    Open,
    Basic,
    Token,
}

struct Registry {
    address: String,
    served: Arc<Served>,
}

struct Served {
    documents: HashMap<String, (Vec<u8>, &'static str)>,
    fault: Fault,
    access: Access,
    requests: AtomicUsize,
    blob_requests: AtomicUsize,
    address: String,
}

impl Registry {
    async fn start(fault: Fault, access: Access) -> Self {
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

    fn image(&self) -> Reference {
        format!("{}/org/name:v1", self.address).parse().unwrap()
    }
}

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

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

fn puller() -> Puller {
    puller_for(RetryPolicy::default().whole)
}

/// Returns a puller that lets an image take as long as `whole`.
fn puller_for(whole: Duration) -> Puller {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retries = RetryPolicy {
        pause: Duration::from_millis(1),
        pause_max: Duration::from_millis(5),
        whole,
        ..RetryPolicy::default()
    };
    Puller::new(reqwest::Client::builder().no_proxy().build().unwrap(), retries)
}

fn password() -> Credentials {
    Credentials::Basic { user: "user".into(), password: "pass".to_owned().into() }
}

async fn pull(
    registry: &Registry,
    credentials: &Credentials,
) -> (Fixture, Result<Digest, PullError>) {
    let fixture = Fixture::new();
    let result = puller().pull(&fixture.store, &registry.image(), credentials, |_| {}).await;
    (fixture, result)
}

#[tokio::test]
async fn an_image_is_pulled_for_this_machine() {
    let registry = Registry::start(Fault::None, Access::Open).await;
    let fixture = Fixture::new();
    let received = AtomicUsize::new(0);
    let progress = |step| {
        if let Progress::Received { bytes, .. } = step {
            received.fetch_add(bytes as usize, Ordering::Relaxed);
        }
    };
    let digest = puller()
        .pull(&fixture.store, &registry.image(), &Credentials::None, progress)
        .await
        .unwrap();
    let image = fixture.store.resolve(&registry.image()).unwrap().unwrap();
    assert_eq!((image.digest, image.layers.len(), image.size_bytes), (digest, 2, 300_001));
    assert!(image.layers[1].join("upper").exists());
    assert!(received.load(Ordering::Relaxed) > 300_000);

    let before = registry.served.blob_requests.load(Ordering::Relaxed);
    puller().pull(&fixture.store, &registry.image(), &Credentials::None, |_| {}).await.unwrap();
    assert_eq!(
        registry.served.blob_requests.load(Ordering::Relaxed),
        before,
        "nothing was asked for twice"
    );
}

#[tokio::test]
async fn an_image_that_takes_too_long_is_given_up() {
    let (fixture, registry) = (Fixture::new(), Registry::start(Fault::None, Access::Open).await);
    let (hasty, image) = (puller_for(Duration::ZERO), registry.image());
    let pulled = hasty.pull_for(&fixture.store, &image, &Credentials::None, u64::MAX).await;
    assert!(matches!(pulled, Err(PullError::Slow)), "{pulled:?}");
}

#[tokio::test]
async fn an_image_that_there_is_no_room_for_is_not_fetched() {
    let registry = Registry::start(Fault::None, Access::Open).await;
    let fixture = Fixture::new();
    let image = registry.image();
    let within = async |bytes_max: u64| {
        puller().pull_for(&fixture.store, &image, &Credentials::None, bytes_max).await
    };
    let refused = within(10_000).await;
    assert!(
        matches!(refused, Err(PullError::Store(Error::Limit { max: 10_000, .. }))),
        "{refused:?}"
    );
    assert_eq!(registry.served.blob_requests.load(Ordering::Relaxed), 0);
    let (_, bytes) = within(10_000_000).await.unwrap();
    // There is room for the packed bytes, but not for the unpacked ones.
    let other = Fixture::new();
    let tight = puller().pull_for(&other.store, &image, &Credentials::None, bytes - 1).await;
    assert!(matches!(tight, Err(PullError::Store(Error::Limit { .. }))), "{tight:?}");
    assert_eq!(other.store.find(&image).unwrap(), None);
}

/// Pulls for a tenant with room for everything.
async fn pull_for(
    fixture: &Fixture,
    image: &Reference,
    credentials: &Credentials,
) -> Result<Digest, PullError> {
    puller().pull_for(&fixture.store, image, credentials, u64::MAX).await.map(|(digest, _)| digest)
}

#[tokio::test]
async fn what_a_tenant_pulls_is_for_nobody_else() {
    let (fixture, registry) = (Fixture::new(), Registry::start(Fault::None, Access::Token).await);
    let name = registry.image();
    let digest = pull_for(&fixture, &name, &password()).await.unwrap();
    let by_digest = name.at(digest);
    assert!(fixture.store.has(&digest));
    for name in [&name, &by_digest] {
        assert_eq!(fixture.store.find_public(name).unwrap(), None, "{name}");
    }
    assert!(fixture.store.public_names().unwrap().is_empty());
    for name in [&name, &by_digest] {
        let stranger = pull_for(&fixture, name, &Credentials::None).await;
        assert!(matches!(stranger, Err(PullError::Unauthorized)), "{name}: {stranger:?}");
    }
    // Any caller that the repository lets in shares what is here.
    let before = registry.served.blob_requests.load(Ordering::Relaxed);
    assert_eq!(pull_for(&fixture, &name, &password()).await.unwrap(), digest);
    assert_eq!(registry.served.blob_requests.load(Ordering::Relaxed), before);
    fixture.store.collect().unwrap();
    assert!(fixture.store.has(&digest), "its name keeps it");
    // The operator's pull makes it public, and a tenant's pull does not undo that.
    puller().pull(&fixture.store, &name, &password(), |_| {}).await.unwrap();
    pull_for(&fixture, &name, &password()).await.unwrap();
    for name in [&name, &by_digest] {
        assert_eq!(fixture.store.find_public(name).unwrap(), Some(digest), "{name}");
    }
}

/// A tenant's own registry lists layers that belong to others.
#[tokio::test]
async fn the_digest_of_a_layer_does_not_give_the_layer() {
    for fault in [Fault::NoLayers, Fault::OtherLayers] {
        let (fixture, registry) =
            (Fixture::new(), Registry::start(Fault::None, Access::Token).await);
        let thief = Registry::start(fault, Access::Open).await;
        pull_for(&fixture, &registry.image(), &password()).await.unwrap();
        let stolen = pull_for(&fixture, &thief.image(), &Credentials::None).await;
        match fault {
            Fault::NoLayers => assert!(matches!(stolen, Err(PullError::NotFound)), "{stolen:?}"),
            _ => {
                assert!(matches!(stolen, Err(PullError::Store(Error::Digest { .. }))), "{stolen:?}")
            }
        }
        assert_eq!(fixture.store.find(&thief.image()).unwrap(), None);
        // An honest pull from another registry stores the same content only once.
        let mirror = Registry::start(Fault::None, Access::Open).await;
        let blobs = fixture.files("layers/trusted").len();
        pull_for(&fixture, &mirror.image(), &Credentials::None).await.unwrap();
        assert_eq!(fixture.files("layers/trusted").len(), blobs);
    }
}

#[tokio::test]
async fn credentials_open_a_registry() {
    for access in [Access::Basic, Access::Token] {
        let registry = Registry::start(Fault::None, access).await;
        pull(&registry, &password()).await.1.unwrap();
        for wrong in [
            Credentials::None,
            Credentials::Basic { user: "user".into(), password: "wrong".to_owned().into() },
            Credentials::Bearer("wrong".to_owned().into()),
        ] {
            let (_, refused) = pull(&registry, &wrong).await;
            assert!(matches!(refused, Err(PullError::Unauthorized)), "{refused:?}");
        }
    }
    let registry = Registry::start(Fault::None, Access::Token).await;
    pull(&registry, &Credentials::Bearer("granted".to_owned().into())).await.1.unwrap();
}

#[tokio::test]
async fn a_registry_in_trouble_is_asked_again() {
    for status in [429, 500, 503] {
        let registry = Registry::start(Fault::Status(status), Access::Open).await;
        pull(&registry, &Credentials::None).await.1.unwrap();
    }
}

#[tokio::test]
async fn a_registry_that_stays_in_trouble_is_given_up() {
    for (status, expect) in
        [(429, "Busy"), (503, "Registry(503)"), (404, "NotFound"), (418, "Registry(418)")]
    {
        let registry = Registry::start(Fault::Always(status), Access::Open).await;
        let (_, result) = pull(&registry, &Credentials::None).await;
        assert_eq!(format!("{:?}", result.unwrap_err()), expect);
        assert!(registry.served.requests.load(Ordering::Relaxed) <= 5);
    }
}

#[tokio::test]
async fn a_cut_download_goes_on_where_it_was() {
    for knows_ranges in [true, false] {
        let registry = Registry::start(Fault::Cut { knows_ranges }, Access::Open).await;
        let (fixture, result) = pull(&registry, &Credentials::None).await;
        result.unwrap();
        assert_eq!(fixture.files("partial"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn what_an_earlier_try_left_is_used_only_if_it_is_right() {
    let registry = Registry::start(Fault::Cut { knows_ranges: true }, Access::Open).await;
    let fixture = Fixture::new();
    for path in registry.served.documents.keys().filter(|path| path.contains("/blobs/")) {
        let hex = path.rsplit("sha256:").next().unwrap();
        std::fs::write(fixture.folder.path().join("partial").join(hex), "not what belongs here")
            .unwrap();
    }
    puller().pull(&fixture.store, &registry.image(), &Credentials::None, |_| {}).await.unwrap();
}

#[tokio::test]
async fn bytes_that_are_not_what_they_should_be_are_refused() {
    for fault in [Fault::WrongBlob, Fault::WrongManifest, Fault::TooLong] {
        let registry = Registry::start(fault, Access::Open).await;
        let (fixture, result) = pull(&registry, &Credentials::None).await;
        assert!(
            matches!(result, Err(PullError::Store(Error::Digest { .. } | Error::Limit { .. }))),
            "{fault:?}: {result:?}"
        );
        fixture.store.collect().unwrap();
        assert_eq!(fixture.files("blobs/sha256"), Vec::<String>::new());
        assert_eq!(fixture.files("partial"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_token_does_not_follow_a_redirect() {
    let registry = Registry::start(Fault::Redirect, Access::Token).await;
    pull(&registry, &password()).await.1.unwrap();
}

#[tokio::test]
async fn an_image_for_other_machines_is_refused() {
    let registry = Registry::start(Fault::OtherPlatform, Access::Open).await;
    let (_, result) = pull(&registry, &Credentials::None).await;
    assert!(matches!(result, Err(PullError::Store(Error::NoPlatform(_)))), "{result:?}");
}

#[tokio::test]
async fn a_registry_that_is_not_there_is_an_error() {
    // It has the port, but does not listen.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let image = format!("{}/org/name", closed.local_addr().unwrap()).parse().unwrap();
    let result = puller().pull(&Fixture::new().store, &image, &Credentials::None, |_| {}).await;
    assert!(matches!(result, Err(PullError::Network(_))), "{result:?}");
}

#[tokio::test]
async fn two_pulls_of_one_image_download_it_once() {
    let registry = Registry::start(Fault::None, Access::Open).await;
    let fixture = Fixture::new();
    let (puller, image) = (puller(), registry.image());
    let one = puller.pull(&fixture.store, &image, &Credentials::None, |_| {});
    let two = puller.pull(&fixture.store, &image, &Credentials::None, |_| {});
    let (one, two) = tokio::join!(one, two);
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(registry.served.blob_requests.load(Ordering::Relaxed), 3);
}
