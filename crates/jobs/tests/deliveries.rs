//! Tests calls to users' addresses against a real receiver.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit, Mac};
use jobs::deliveries::{Sender, Settings};
use parking_lot::Mutex;
use sha2::Sha256;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;
use store::deliveries::{self, Delivery, NewDelivery, State as Is};
use store::{Store, Target};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use types::ids::WorkspaceId;
use types::parts::Sensitive;
use types::{Timestamp, World};

const SECRET: &str = "abcdefghijkmnpqrstuvwxyz23456789abcdefgh";

/// The name of the receiver, which `callbacks.inside` lists: numbers cannot be.
const RECEIVER: &str = "receiver.example";

/// Longest wait for what has to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A receiver: the calls it got, and the answers it will give.
struct Receiver {
    address: SocketAddr,
    seen: Mutex<Vec<(String, HeaderMap, Bytes)>>,
    answers: Mutex<Vec<Response>>,
    arrived: Notify,
    /// Each call takes one pass before it is answered.
    passes: Semaphore,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Receiver {
    async fn start() -> Arc<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            seen: Mutex::default(),
            answers: Mutex::default(),
            arrived: Notify::new(),
            passes: Semaphore::new(1000),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        });
        let router = Router::new().fallback(receive).with_state(Arc::clone(&receiver));
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    fn url(&self, rest: &str) -> String {
        format!("http://{RECEIVER}:{}{rest}", self.address.port())
    }

    /// Sets the answers to the next calls, in this order. Later calls are answered with 200.
    fn answer(&self, answers: impl IntoIterator<Item = Response>) {
        *self.answers.lock() = answers.into_iter().collect();
    }

    fn count(&self) -> usize {
        self.seen.lock().len()
    }

    fn header(&self, call: usize, name: &str) -> String {
        self.seen.lock()[call].1[name].to_str().unwrap().to_owned()
    }
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    receiver.seen.lock().push((uri.to_string(), headers, body));
    let now = receiver.now.fetch_add(1, Ordering::SeqCst) + 1;
    receiver.most.fetch_max(now, Ordering::SeqCst);
    receiver.arrived.notify_one();
    receiver.passes.acquire().await.unwrap().forget();
    receiver.now.fetch_sub(1, Ordering::SeqCst);
    let mut answers = receiver.answers.lock();
    if answers.is_empty() { StatusCode::OK.into_response() } else { answers.remove(0) }
}

fn code(code: u16) -> Response {
    StatusCode::from_u16(code).unwrap().into_response()
}

fn leads_to(code: u16, url: &str) -> Response {
    let location = HeaderValue::from_str(url).unwrap();
    (StatusCode::from_u16(code).unwrap(), [(header::LOCATION, location)]).into_response()
}

struct Place {
    target: Target,
    folder: TempDir,
    clock: Arc<AtomicI64>,
}

impl Place {
    fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::Sqlite { file: folder.path().join("holm.db") };
        Self { target, folder, clock: Arc::new(AtomicI64::new(1_800_000_000_000)) }
    }

    fn postgres() -> Self {
        Self { target: Target::Postgres { url: testing::postgres() }, ..Self::sqlite() }
    }

    async fn open(&self) -> Store {
        let clock = Arc::clone(&self.clock);
        let now = move || Timestamp::from_ms(clock.load(Ordering::SeqCst));
        let world = World::new(now, |bytes| getrandom::fill(bytes).unwrap());
        let settings = store::Settings::new(self.target.clone(), self.folder.path().join("keys"));
        Store::open(settings, world).await.unwrap()
    }

    fn pass_s(&self, seconds: i64) {
        self.clock.fetch_add(seconds * 1000, Ordering::SeqCst);
    }
}

fn settings() -> Settings {
    Settings {
        attempts_max: 4,
        timeout: Duration::from_secs(5),
        concurrency: 8,
        workspace_concurrency: 4,
        pause: Duration::from_secs(10),
        pause_max: Duration::from_secs(60),
        poll: Duration::from_millis(10),
        inside: vec![RECEIVER.into()],
    }
}

fn sender(store: &Store) -> Sender {
    sender_with(store, settings())
}

/// Returns a sender for which every name leads to this machine.
fn sender_with(store: &Store, settings: Settings) -> Sender {
    let here = |_: String| -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec![[127, 0, 0, 1].into()]) })
    };
    Sender::looking_up(store.clone(), settings, here).unwrap()
}

fn workspace() -> WorkspaceId {
    WorkspaceId::known("wsp_test")
}

async fn enqueue(store: &Store, url: &str) {
    let new = NewDelivery {
        workspace: workspace(),
        kind: "job".into(),
        name: "j".into(),
        execution: None,
        url: url.to_owned(),
        secret: Some(Sensitive(SECRET.into())),
        attempts_max: None,
    };
    store.write(move |tx| deliveries::enqueue(tx, &new, r#"{"status_code":200}"#)).await.unwrap();
}

/// Returns the only delivery.
async fn told(store: &Store) -> Delivery {
    let all =
        store.read(|tx| deliveries::list(tx, &workspace(), ("job", "j"), None, 2)).await.unwrap();
    let [one] = all.try_into().unwrap();
    one
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_signed_and_dated_anew_at_each_attempt() {
    let (receiver, place) = (Receiver::start().await, Place::sqlite());
    let store = place.open().await;
    receiver.answer([code(503)]);
    enqueue(&store, &receiver.url("/hook?key=1")).await;
    sender(&store).run_until_idle().await.unwrap();
    assert_eq!((told(&store).await.state, receiver.count()), (Is::Pending, 1));
    place.pass_s(10);
    sender(&store).run_until_idle().await.unwrap();
    let told = told(&store).await;
    assert_eq!(
        (told.state, told.attempts, told.last_status, told.last_error),
        (Is::Delivered, 2, Some(200), None)
    );
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(&receiver.seen.lock()[0].2);
    let hex: String =
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    for name in ["x-blaxel-signature", "x-service-signature"] {
        assert_eq!(receiver.header(0, name), format!("sha256={hex}"));
    }
    let sent: Vec<i64> =
        (0..2).map(|call| receiver.header(call, "x-blaxel-timestamp").parse().unwrap()).collect();
    assert_eq!(sent, [1_800_000_000, 1_800_000_010]);
    assert_eq!(receiver.header(0, "x-service-delivery-id"), told.id.as_str());
    assert_eq!(receiver.header(1, "x-service-delivery-id"), told.id.as_str());
    assert_eq!(receiver.seen.lock()[0].0, "/hook?key=1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_final_and_a_failure_is_tried_so_often() {
    let (receiver, place) = (Receiver::start().await, Place::sqlite());
    let store = place.open().await;
    receiver.answer([code(410)]);
    enqueue(&store, &receiver.url("/")).await;
    sender(&store).run_until_idle().await.unwrap();
    assert_eq!((told(&store).await.state, told(&store).await.last_status), (Is::Failed, Some(410)));

    let place = Place::sqlite();
    let store = place.open().await;
    receiver.answer([500, 408, 429, 502].map(code));
    enqueue(&store, &receiver.url("/")).await;
    for _ in 0..10 {
        sender(&store).run_until_idle().await.unwrap();
        place.pass_s(60);
    }
    assert_eq!(
        (told(&store).await.state, told(&store).await.attempts, receiver.count()),
        (Is::Failed, 4, 5)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_listens_then_somebody_does() {
    let (receiver, place) = (Receiver::start().await, Place::sqlite());
    let store = place.open().await;
    // It has the port, but does not listen.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = closed.local_addr().unwrap().port();
    enqueue(&store, &format!("http://{RECEIVER}:{port}/hook?key=hunter2")).await;
    sender(&store).run_until_idle().await.unwrap();
    let failed = told(&store).await;
    assert_eq!((failed.state, failed.last_status), (Is::Pending, None));
    let why = failed.last_error.unwrap();
    assert!(
        why.starts_with("the receiver could not be reached") && !why.contains("hunter2"),
        "{why}"
    );
    drop(receiver);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_server_was_sending_is_sent_again() {
    for place in [Place::sqlite(), Place::postgres()] {
        let (receiver, store) = (Receiver::start().await, place.open().await);
        receiver.passes.forget_permits(1000);
        enqueue(&store, &receiver.url("/")).await;
        let (server, killed) = (Runtime::new().unwrap(), sender(&store));
        server.spawn(async move { killed.run(CancellationToken::new()).await });
        receiver.arrived.notified().await;
        // A task that is aborted may be in the middle of a poll and still read the answer. The end
        // of a runtime waits for its threads, so afterwards nothing of this server runs any more.
        tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
        receiver.passes.add_permits(1000);
        sender(&store).run_until_idle().await.unwrap();
        assert_eq!((receiver.count(), told(&store).await.state), (1, Is::Pending));
        place.pass_s(36);
        sender(&store).run_until_idle().await.unwrap();
        assert_eq!((receiver.count(), told(&store).await.state), (2, Is::Delivered));
        assert_eq!(
            receiver.header(0, "x-service-delivery-id"),
            receiver.header(1, "x-service-delivery-id")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_leads_inside_is_refused_for_good_and_never_called() {
    let receiver = Receiver::start().await;
    let port = receiver.address.port();
    for url in [
        format!("http://localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://127.0.0.1:{port}/"),
        format!("http://me:pw@{RECEIVER}:{port}/"),
        format!("ftp://{RECEIVER}/"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
    ] {
        let store = Place::sqlite().open().await;
        enqueue(&store, &url).await;
        sender(&store).run_until_idle().await.unwrap();
        let told = told(&store).await;
        assert_eq!(
            (told.state, told.last_status, receiver.count()),
            (Is::Failed, None, 0),
            "{url} {told:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_looked_at_like_an_address() {
    let receiver = Receiver::start().await;
    let port = receiver.address.port();
    let here = receiver.url("/there");
    // The redirects, the state of the delivery afterwards, and the number of calls that arrive.
    let cases = [
        (vec![leads_to(307, &here)], Is::Delivered, 2),
        (
            vec![leads_to(308, "/there"), leads_to(307, &here), leads_to(307, &here)],
            Is::Delivered,
            4,
        ),
        ((0..4).map(|_| leads_to(307, &here)).collect(), Is::Failed, 4),
        (vec![leads_to(302, &here)], Is::Failed, 1),
        (vec![leads_to(307, &format!("http://localhost:{port}/"))], Is::Failed, 1),
        (vec![leads_to(307, &format!("http://127.0.0.2:{port}/"))], Is::Failed, 1),
        (vec![leads_to(307, "http://169.254.169.254/")], Is::Failed, 1),
        (vec![leads_to(307, "file:///etc/passwd")], Is::Failed, 1),
        (vec![code(307)], Is::Failed, 1),
    ];
    for (number, (answers, state, calls)) in cases.into_iter().enumerate() {
        let (before, store) = (receiver.count(), Place::sqlite().open().await);
        receiver.answer(answers);
        enqueue(&store, &receiver.url("/")).await;
        sender(&store).run_until_idle().await.unwrap();
        assert_eq!(
            (told(&store).await.state, receiver.count() - before),
            (state, calls),
            "case {number}"
        );
        assert!(receiver.seen.lock().iter().all(|(_, _, body)| !body.is_empty()));
    }
}

/// A name whose next lookup would give another address is connected to at the address that was
/// checked.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_looked_up_once_for_each_connection() {
    let receiver = Receiver::start().await;
    let looks = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&looks);
    let lookup = move |_: String| {
        let look = count.fetch_add(1, Ordering::SeqCst);
        let address: IpAddr = if look == 0 { [127, 0, 0, 1].into() } else { [127, 0, 0, 9].into() };
        let found: BoxFuture<'static, io::Result<Vec<IpAddr>>> =
            Box::pin(async move { Ok(vec![address]) });
        found
    };
    let store = Place::sqlite().open().await;
    enqueue(&store, &format!("http://rebinding.example:{}/", receiver.address.port())).await;
    let settings = Settings { inside: vec!["rebinding.example".into()], ..settings() };
    Sender::looking_up(store.clone(), settings, lookup).unwrap().run_until_idle().await.unwrap();
    assert_eq!((told(&store).await.state, looks.load(Ordering::SeqCst)), (Is::Delivered, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_receiver_holds_only_its_share_and_is_given_up() {
    let (receiver, place) = (Receiver::start().await, Place::sqlite());
    let store = place.open().await;
    receiver.passes.forget_permits(1000);
    for _ in 0..6 {
        enqueue(&store, &receiver.url("/")).await;
    }
    let settings = Settings { timeout: Duration::from_secs(2), attempts_max: 1, ..settings() };
    sender_with(&store, settings).run_until_idle().await.unwrap();
    let all =
        store.read(|tx| deliveries::list(tx, &workspace(), ("job", "j"), None, 10)).await.unwrap();
    assert!(
        all.iter().all(|one| one.state == Is::Failed
            && one.last_error.as_deref() == Some("no answer within 2 s"))
    );
    // The receiver may have been slower than the sender was patient.
    let arrived = async {
        while receiver.count() < 6 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, arrived).await.unwrap();
    assert_eq!((all.len(), receiver.count()), (6, 6));
}

/// Several servers share the work of one database, and nothing is sent twice as long as none of
/// them fails.
#[tokio::test(flavor = "multi_thread")]
async fn several_servers_send_each_once() {
    let (receiver, place) = (Receiver::start().await, Place::postgres());
    let stores = [place.open().await, place.open().await];
    for _ in 0..40 {
        enqueue(&stores[0], &receiver.url("/")).await;
    }
    let (first, second) = (sender(&stores[0]), sender(&stores[1]));
    let (first, second) = tokio::join!(first.run_until_idle(), second.run_until_idle());
    first.and(second).unwrap();
    let all = stores[0]
        .read(|tx| deliveries::list(tx, &workspace(), ("job", "j"), None, 100))
        .await
        .unwrap();
    assert!(all.iter().all(|one| one.state == Is::Delivered && one.attempts == 1));
    assert_eq!((all.len(), receiver.count()), (40, 40));
    assert!(receiver.most.load(Ordering::SeqCst) <= 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_end_waits_for_what_is_being_sent() {
    let (receiver, place) = (Receiver::start().await, Place::sqlite());
    let store = place.open().await;
    receiver.passes.forget_permits(1000);
    enqueue(&store, &receiver.url("/")).await;
    let (sender, ending) = (sender(&store), CancellationToken::new());
    let running = tokio::spawn({
        let ending = ending.clone();
        async move { sender.run(ending).await }
    });
    receiver.arrived.notified().await;
    ending.cancel();
    receiver.passes.add_permits(1);
    running.await.unwrap();
    assert_eq!(told(&store).await.state, Is::Delivered);
}
