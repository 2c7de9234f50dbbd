//! The way to the database is cut without a word: nothing is refused, and nothing answers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, agent, workspace};
use std::sync::Arc;
use std::time::Duration;
use store::{Error, Settings, Store, Target, resources};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use types::KindName;

/// Longer than any test machine needs; it only ends a test that would otherwise hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A way to a database that can fall silent.
struct Way {
    url: String,
    /// How often it fell silent.
    silences: Arc<watch::Sender<u32>>,
}

impl Way {
    async fn to(url: &str) -> Self {
        let (name, rest) = url.trim_start_matches("postgres:///").split_once("?host=").unwrap();
        let (folder, user) = rest.split_once("&user=").unwrap();
        let socket = format!("{}/.s.PGSQL.5432", folder.replace("%2F", "/"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let silences = Arc::new(watch::Sender::new(0));
        let told = silences.clone();
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                tokio::spawn(pass(caller, socket.clone(), told.subscribe()));
            }
        });
        Self { url: format!("postgres://{user}@127.0.0.1:{port}/{name}"), silences }
    }
}

/// Passes everything on until the way falls silent. Then the connection stays as it is.
async fn pass(mut caller: TcpStream, socket: String, mut silences: watch::Receiver<u32>) {
    let mut database = UnixStream::connect(socket).await.unwrap();
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut caller, &mut database) => {}
        _ = silences.changed() => std::future::pending().await,
    }
}

async fn write(
    store: &Store,
    name: &'static str,
    after: impl Fn() + Send + 'static,
) -> Result<(), Error> {
    let work = move |tx: &mut store::Tx<'_>| {
        resources::insert(tx, agent(&tx.world().clone(), name))?;
        after();
        resources::count(tx, &workspace(), KindName::Agent).map(drop)
    };
    tokio::time::timeout(PATIENCE, store.write(work)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_stays_silent_is_replaced() {
    let place = Place::postgres();
    let direct = place.open().await;
    let Target::Postgres { url } = &place.settings.target else { unreachable!() };
    let way = Way::to(url).await;
    let settings = Settings {
        target: Target::Postgres { url: way.url.clone() },
        // Enough for what has to succeed. The transaction that is cut stays open for as long, and
        // holds back the change feeds of all tests.
        statement_timeout_ms: 5000,
        connections: 1,
        ..place.settings.clone()
    };
    let store = Store::open(settings, place.world()).await.unwrap();
    write(&store, "before", || {}).await.unwrap();
    // Nothing was begun, so it is done on another connection.
    way.silences.send_modify(|silences| *silences += 1);
    write(&store, "anew", || {}).await.unwrap();
    // What was begun is undone, and its caller is told.
    let silences = way.silences.clone();
    let cut = write(&store, "cut", move || silences.send_modify(|silences| *silences += 1)).await;
    assert!(matches!(cut, Err(Error::Interrupted(_))), "{cut:?}");
    write(&store, "after", || {}).await.unwrap();
    let kept = direct.read(|tx| resources::count(tx, &workspace(), KindName::Agent)).await.unwrap();
    assert_eq!(kept, 3);
}
