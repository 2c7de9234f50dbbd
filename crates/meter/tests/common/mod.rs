//! A store on either database, with a clock that tests set.
#![expect(
    unreachable_pub,
    dead_code,
    reason = "each test binary includes this module and uses its own part of it"
)]

pub mod town;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use store::{Settings, Store, Target};
use tempfile::TempDir;
use types::{Timestamp, World};

pub const HOUR: i64 = 3_600_000;
/// Monday, 5 January 2026, 00:00 UTC.
pub const MONDAY: i64 = 1_767_571_200_000;

pub struct Place {
    pub store: Store,
    now: Arc<AtomicI64>,
    _folder: TempDir,
}

impl Place {
    pub async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("holm.db");
        Self::new(folder, Target::Sqlite { file }).await
    }

    pub async fn postgres() -> Self {
        Self::new(tempfile::tempdir().unwrap(), Target::Postgres { url: testing::postgres() }).await
    }

    async fn new(folder: TempDir, target: Target) -> Self {
        let now = Arc::new(AtomicI64::new(MONDAY));
        let clock = now.clone();
        let world = World::new(
            move || Timestamp::from_ms(clock.load(Ordering::Relaxed)),
            |bytes| getrandom::fill(bytes).unwrap(),
        );
        let settings =
            Settings { connections: 4, ..Settings::new(target, folder.path().join("keys")) };
        Self { store: Store::open(settings, world).await.unwrap(), now, _folder: folder }
    }

    pub fn set(&self, ms: i64) {
        self.now.store(ms, Ordering::Relaxed);
    }

    pub fn now(&self) -> Timestamp {
        self.store.world().now()
    }
}

/// Runs a test on both databases.
#[macro_export]
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                Box::pin(super::$name($crate::common::Place::sqlite().await)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                Box::pin(super::$name($crate::common::Place::postgres().await)).await;
            }
        }
    )+};
}
