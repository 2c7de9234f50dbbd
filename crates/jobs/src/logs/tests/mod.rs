mod figures;
mod finding;
mod recording;
mod searching;
mod writing;

use super::{Printer, Source};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use store::{Settings, Store, Target};
use tempfile::TempDir;
use types::ids::{ExecutionId, WorkspaceId};
use types::instance::{Printed, Stream};
use types::{KindName, Timestamp, World};

const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_000);

fn piece(next: u64, at_ms: i64, stream: Stream, text: &[u8]) -> Printed {
    Printed { next, at: NOW.plus_ms(at_ms), stream, bytes: Bytes::copy_from_slice(text) }
}

fn source(task: u32) -> Source {
    Source {
        workspace: WorkspaceId::known("wsp_a"),
        kind: KindName::Job,
        name: "nightly".into(),
        printer: Printer::Task {
            execution: ExecutionId::known("exe_one"),
            execution_name: "one".into(),
            task,
            attempt: 1,
        },
    }
}

/// Returns a world whose clock advances by a millisecond each time it is read.
fn world(now: Arc<AtomicI64>) -> World {
    World::new(
        move || Timestamp::from_ms(now.fetch_add(1, Ordering::Relaxed)),
        |bytes| getrandom::fill(bytes).unwrap(),
    )
}

/// Opens a store in a folder of its own, which must outlive it.
async fn open(postgres: bool) -> (Store, TempDir) {
    let (store, folder, _clock) = open_with_clock(postgres).await;
    (store, folder)
}

async fn open_with_clock(postgres: bool) -> (Store, TempDir, Arc<AtomicI64>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("holm.db");
    let target = if postgres {
        Target::Postgres { url: testing::postgres() }
    } else {
        Target::Sqlite { file }
    };
    let settings = Settings { connections: 4, ..Settings::new(target, folder.path().join("keys")) };
    let clock = Arc::new(AtomicI64::new(NOW.ms()));
    (Store::open(settings, world(clock.clone())).await.unwrap(), folder, clock)
}
