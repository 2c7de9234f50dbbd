//! The durable queue alone: the real engine on the real database, with a runner whose tasks succeed
//! at once.

use anyhow::{Context as _, ensure};
use futures_util::future::BoxFuture;
use jobs::{Assignment, NewExecution, Plan, Queue, Settings, TaskRunner};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::executions::{self, Phase};
use store::{Store, Target};
use tokio_util::sync::CancellationToken;
use types::ids::{ExecutionId, ResourceId, WorkspaceId};
use types::instance::{AttemptId, Outcome, WorkEnd};
use types::{Timestamp, World};

const TASKS: usize = 100_000;
const WARM_UP: usize = 10_000;
/// Tasks at once: they need nothing of the machine.
const SLOTS: u32 = 512;
const TIMEOUT: Duration = Duration::from_secs(300);

/// Returns tasks per second, from the first request to the recorded end of the last task.
pub(crate) fn rate(target: Target, keys: &Path) -> anyhow::Result<f64> {
    let settings = store::Settings::new(target, keys.to_owned());
    // A runtime with threads of its own, as a server has.
    let measured = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(measure(settings))
    });
    measured.join().ok().context("the queue gave up")?
}

async fn measure(settings: store::Settings) -> anyhow::Result<f64> {
    let store = Store::open(settings, world()).await?;
    // One workspace does all the work, so it has all slots.
    let settings = Settings {
        slots: SLOTS,
        memory_mb: SLOTS,
        workspace_share_percent: 100,
        ..Settings::default()
    };
    let queue = Queue::new(settings, Vec::new());
    let ending = CancellationToken::new();
    let running = tokio::spawn(jobs::run(
        store.clone(),
        queue.clone(),
        Arc::new(Idle(world())),
        ending.clone(),
    ));
    run(&store, &queue, WARM_UP).await?;
    let begun = Instant::now();
    run(&store, &queue, TASKS).await?;
    let rate = TASKS as f64 / begun.elapsed().as_secs_f64();
    ending.cancel();
    running.await?;
    Ok(rate)
}

async fn run(store: &Store, queue: &Queue, tasks: usize) -> anyhow::Result<()> {
    let id = ExecutionId::new(store.world());
    let new = NewExecution {
        machine: None,
        id: id.clone(),
        workspace: WorkspaceId::known("wsp_bench"),
        kind: types::KindName::Job,
        job_id: ResourceId::known("res_bench"),
        job: "idle".to_owned(),
        name: id.to_string(),
        memory_mb: 1,
        retries_max: 0,
        parallelism: None,
        plan: Plan::default(),
        tasks: vec!["{}".to_owned(); tasks],
        may_wait: true,
        caller: jobs::Caller::Member,
    };
    let (queue, keyring) = (queue.clone(), store.keyring());
    store.write(move |tx| queue.start(tx, &keyring.read(), &new)).await?;
    let mut commits = store.commits();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let of = id.clone();
        let found = store
            .read(move |tx| executions::find_by_id(tx, &of))
            .await?
            .context("the execution is there")?;
        if found.ended_at.is_some() {
            ensure!(found.phase == Phase::Succeeded, "{:?}", found.counts);
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the execution goes on: {:?}", found.counts);
        tokio::time::timeout(TIMEOUT, commits.changed()).await??;
        // Looking at every commit would take processor time from the queue.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A runner with nothing to do, and no machine.
struct Idle(World);

impl TaskRunner<Assignment> for Idle {
    fn name(&self) -> &str {
        "idle"
    }

    fn run<'a>(&'a self, _: &'a AttemptId, _: Assignment) -> BoxFuture<'a, WorkEnd> {
        let now = self.0.now();
        Box::pin(async move {
            WorkEnd { started_at: Some(now), ended_at: now, outcome: Outcome::SUCCESS }
        })
    }

    fn abandon<'a>(&'a self, _: &'a AttemptId) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn present(&self) -> Vec<AttemptId> {
        Vec::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where this program reads the clock")]
fn world() -> World {
    let now = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    };
    World::new(now, |bytes| bytes.fill_with(|| fastrand::u8(..)))
}
