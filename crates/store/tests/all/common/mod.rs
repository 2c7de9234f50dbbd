//! A database of either kind, and objects to put into it.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "all tests of this program use it, and fail by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use store::resources::Stored;
use store::{Settings, Store, Target};
use tempfile::TempDir;
use types::ids::{ResourceId, WorkspaceId};
use types::{KindName, Timestamp, World};

/// A place for one database, empty at first. Removed along with its folder.
pub struct Place {
    pub settings: Settings,
    folder: TempDir,
    now: Arc<AtomicI64>,
}

impl Place {
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("holm.db");
        Self::new(folder, Target::Sqlite { file })
    }

    pub fn postgres() -> Self {
        Self::new(tempfile::tempdir().unwrap(), Target::Postgres { url: testing::postgres() })
    }

    pub fn postgres_at(url: String) -> Self {
        Self::new(tempfile::tempdir().unwrap(), Target::Postgres { url })
    }

    fn new(folder: TempDir, target: Target) -> Self {
        let settings =
            Settings { connections: 4, ..Settings::new(target, folder.path().join("keys")) };
        Self { settings, folder, now: Arc::new(AtomicI64::new(1_800_000_000_000)) }
    }

    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Returns a world whose clock advances by a millisecond each time it is read, with the
    /// system's randomness.
    pub fn world(&self) -> World {
        let now = self.now.clone();
        World::new(
            move || Timestamp::from_ms(now.fetch_add(1, Ordering::Relaxed)),
            |bytes| getrandom::fill(bytes).unwrap(),
        )
    }

    pub fn pass_ms(&self, ms: i64) {
        self.now.fetch_add(ms, Ordering::Relaxed);
    }

    pub async fn open(&self) -> Store {
        self.open_result().await.unwrap()
    }

    pub fn open_result(
        &self,
    ) -> impl Future<Output = Result<Store, store::Error>> + Send + 'static {
        Store::open(self.settings.clone(), self.world())
    }

    /// Runs SQL for what no store function does. On SQLite, returns the texts of the result.
    pub fn sql(&self, sql: &str) -> String {
        match &self.settings.target {
            Target::Sqlite { file } => {
                let conn = rusqlite::Connection::open(file).unwrap();
                let mut statement = conn.prepare(sql).unwrap();
                let last = statement.column_count().saturating_sub(1);
                let rows = statement.query_map([], |row| row.get::<_, String>(last)).unwrap();
                rows.map(Result::unwrap).collect()
            }
            Target::Postgres { url } => {
                let url = url.clone();
                let sql = sql.to_owned();
                // The blocking client refuses to run on a thread that serves futures.
                let work = move || {
                    postgres::Client::connect(&url, postgres::NoTls)
                        .unwrap()
                        .batch_execute(&sql)
                        .unwrap()
                };
                std::thread::spawn(work).join().unwrap();
                String::new()
            }
        }
    }
}

/// Runs one test on both databases.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                Box::pin(super::$name($crate::common::Place::sqlite())).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                Box::pin(super::$name($crate::common::Place::postgres())).await;
            }
        }
    )+};
}

pub(crate) use on_both;

pub fn workspace() -> WorkspaceId {
    WorkspaceId::known("wsp_test")
}

/// Returns an object as a caller would create it.
pub fn agent(world: &World, name: &str) -> Stored {
    object(world, KindName::Agent, "", name)
}

pub fn object(world: &World, kind: KindName, parent: &str, name: &str) -> Stored {
    let now = world.now();
    Stored {
        id: ResourceId::new(world),
        workspace: workspace(),
        kind,
        parent: parent.into(),
        name: name.into(),
        external_id: None,
        status: None,
        search: name.to_lowercase(),
        wish: "{}".into(),
        state: "{}".into(),
        seal_key: None,
        version: 0,
        created_at: now,
        updated_at: now,
        created_by: "usr_test".into(),
        updated_by: "usr_test".into(),
    }
}
