//! What the tests share: a database, machines that only pretend to run tasks, and helpers.
#![expect(unreachable_pub, reason = "a test binary has no outside")]

use futures_util::future::BoxFuture;
use jobs::{Assignment, Caller, Hooks, NewExecution, Plan, Queue, Settings, TaskRunner};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, mpsc};
use std::time::Duration;
use store::executions::{self, Execution, tasks};
use store::{Error, Store, Target, Tx};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::ids::{ExecutionId, ResourceId, WorkspaceId};
use types::instance::{AttemptId, Outcome, WorkEnd};
use types::{Timestamp, World};

/// Longest wait for anything in these tests.
const POLICY: Duration = Duration::from_secs(60);
/// How many transactions may read from the database at the same time.
const CONNECTIONS: usize = 4;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns a world whose time is real in pace, and the same for all tests and machines.
pub fn world() -> World {
    let now = || Timestamp::from_ms(1_800_000_000_000 + START.elapsed().as_millis() as i64);
    World::new(now, |bytes| getrandom::fill(bytes).unwrap())
}

/// Settings with short waits throughout.
pub fn settings() -> Settings {
    Settings {
        slots: 4,
        memory_mb: 100_000,
        workspace_share_percent: 100,
        workspace_tasks_max: 1000,
        lease: Duration::from_secs(20),
        heartbeat: Duration::from_millis(50),
        backoff_first: Duration::from_millis(20),
        backoff_max: Duration::from_millis(80),
        lost_attempts_max: 5,
        poll: Duration::from_millis(10),
        ..Settings::default()
    }
}

/// One database, and a log of what happened on it.
pub struct Stage {
    pub store: Store,
    pub log: Arc<Log>,
    _folder: tempfile::TempDir,
}

/// What the queue told its hooks. If a transaction is rolled back, the log has entries too many. In
/// these tests only a kill causes that, so where it matters attempts are counted from the rows.
#[derive(Default)]
pub struct Log {
    pub claimed: Mutex<Vec<AttemptId>>,
    pub attempted: Mutex<Vec<(AttemptId, bool)>>,
    pub ended: Mutex<Vec<Execution>>,
}

struct Told(Arc<Log>);

impl Hooks for Told {
    fn claimed(&self, _: &mut Tx<'_>, attempt: &AttemptId, _: &Execution) -> Result<(), Error> {
        self.0.claimed.lock().push(attempt.clone());
        Ok(())
    }

    fn attempted(
        &self,
        _: &mut Tx<'_>,
        attempt: &AttemptId,
        _: &Execution,
        end: &WorkEnd,
    ) -> Result<(), Error> {
        self.0.attempted.lock().push((attempt.clone(), end.outcome.is_success()));
        Ok(())
    }

    fn ended(&self, _: &mut Tx<'_>, execution: &Execution) -> Result<(), Error> {
        self.0.ended.lock().push(execution.clone());
        Ok(())
    }
}

impl Stage {
    pub async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::Sqlite { file: folder.path().join("holm.db") };
        Self::on(folder, target).await
    }

    pub async fn postgres() -> Self {
        Self::on(tempfile::tempdir().unwrap(), Target::Postgres { url: testing::postgres() }).await
    }

    async fn on(folder: tempfile::TempDir, target: Target) -> Self {
        let settings = store::Settings::new(target, folder.path().join("keys"));
        let settings = store::Settings { connections: CONNECTIONS, ..settings };
        let store = Store::open(settings, world()).await.unwrap();
        Self { store, log: Arc::default(), _folder: folder }
    }

    /// Keeps all that read from the database busy, until what is returned first is dropped.
    pub fn occupy_readers(&self) -> (Vec<mpsc::Sender<()>>, JoinSet<Result<(), store::Error>>) {
        let mut silent = JoinSet::new();
        let releases = (0..CONNECTIONS).map(|_| {
            let (release, held) = mpsc::channel();
            let (store, held) = (self.store.clone(), Mutex::new(held));
            let busy = move |_: &mut Tx<'_>| {
                // Fails when the sender is gone, which is the end.
                let _ = held.lock().recv();
                Ok(())
            };
            silent.spawn(async move { store.read(busy).await });
            release
        });
        (releases.collect(), silent)
    }

    pub fn queue(&self, settings: Settings) -> Queue {
        assert_eq!(settings.check(), Ok(()));
        Queue::new(settings, vec![Arc::new(Told(self.log.clone()))])
    }

    pub async fn start(&self, new: NewExecution) -> ExecutionId {
        self.try_start(settings(), new).await.unwrap().id
    }

    pub async fn try_start(
        &self,
        settings: Settings,
        new: NewExecution,
    ) -> Result<Execution, jobs::StartError> {
        let (queue, keyring) = (self.queue(settings), self.store.keyring());
        self.store.write(move |tx| queue.start(tx, &keyring.read(), &new)).await
    }

    pub async fn cancel(&self, id: &ExecutionId) -> Execution {
        let (queue, id) = (self.queue(settings()), id.clone());
        self.store.write(move |tx| queue.cancel(tx, &id)).await.unwrap().unwrap()
    }

    pub async fn execution(&self, id: &ExecutionId) -> Execution {
        let id = id.clone();
        self.store.read(move |tx| executions::find_by_id(tx, &id)).await.unwrap().unwrap()
    }

    pub async fn tasks(&self, id: &ExecutionId) -> Vec<tasks::Task> {
        let id = id.clone();
        self.store.read(move |tx| tasks::page(tx, &id, 0, 1_000_000)).await.unwrap()
    }

    /// Waits until an execution meets a condition.
    #[track_caller]
    pub fn until(
        &self,
        id: &ExecutionId,
        wanted: impl Fn(&Execution) -> bool,
    ) -> impl Future<Output = Execution> {
        let (store, id, mut commits) = (self.store.clone(), id.clone(), self.store.commits());
        async move {
            let limit = Instant::now() + POLICY;
            loop {
                commits.mark_unchanged();
                let of = id.clone();
                let now =
                    store.read(move |tx| executions::find_by_id(tx, &of)).await.unwrap().unwrap();
                if wanted(&now) {
                    return now;
                }
                assert!(Instant::now() < limit, "it is {now:?}");
                let _ = tokio::time::timeout(POLICY, commits.changed()).await;
            }
        }
    }

    pub async fn end(&self, id: &ExecutionId) -> Execution {
        self.until(id, |execution| execution.ended_at.is_some()).await
    }
}

/// Returns an execution of `tasks` tasks.
pub fn new(name: &str, tasks: usize) -> NewExecution {
    NewExecution {
        id: ExecutionId::new(&world()),
        workspace: WorkspaceId::known("wsp_test"),
        kind: types::KindName::Job,
        job_id: ResourceId::known("res_job"),
        job: "nightly".into(),
        machine: None,
        name: name.into(),
        memory_mb: 100,
        retries_max: 0,
        parallelism: None,
        plan: Plan { image: "python".into(), ..Plan::default() },
        tasks: (0..tasks).map(|index| format!("{{\"index\":{index}}}")).collect(),
        may_wait: true,
        caller: Caller::Member,
    }
}

type Script = dyn Fn(&AttemptId) -> Outcome + Send + Sync;

/// A machine. It outlives the programs that take tasks for it.
pub struct Machine {
    name: String,
    script: Box<Script>,
    /// Attempts do not end while this is closed.
    gate: watch::Sender<bool>,
    pub instances: Mutex<HashMap<AttemptId, Option<WorkEnd>>>,
    /// How often each attempt was begun.
    pub begun: watch::Sender<BTreeMap<AttemptId, usize>>,
    pub abandoned: watch::Sender<Vec<AttemptId>>,
    /// The attempts that were asked to end first.
    pub dismissed: Mutex<Vec<AttemptId>>,
    pub at_once: Mutex<(usize, usize)>,
    /// How many removals are still to fail.
    pub stuck: Mutex<usize>,
    world: World,
}

impl Machine {
    pub fn new(
        name: &str,
        script: impl Fn(&AttemptId) -> Outcome + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            script: Box::new(script),
            gate: watch::Sender::new(true),
            instances: Mutex::default(),
            begun: watch::Sender::default(),
            abandoned: watch::Sender::default(),
            dismissed: Mutex::default(),
            at_once: Mutex::default(),
            stuck: Mutex::default(),
            world: world(),
        })
    }

    pub fn ready(name: &str) -> Arc<Self> {
        Self::new(name, |_| Outcome::SUCCESS)
    }

    pub fn close(&self) {
        self.gate.send_replace(false);
    }

    pub fn open(&self) {
        self.gate.send_replace(true);
    }

    /// Waits until `count` attempts have begun here.
    pub async fn has_begun(&self, count: usize) {
        let mut begun = self.begun.subscribe();
        let wait = begun.wait_for(|begun| begun.len() >= count);
        tokio::time::timeout(POLICY, wait).await.unwrap().unwrap();
    }

    pub async fn has_abandoned(&self, count: usize) {
        let mut abandoned = self.abandoned.subscribe();
        let wait = abandoned.wait_for(|abandoned| abandoned.len() >= count);
        tokio::time::timeout(POLICY, wait).await.unwrap().unwrap();
    }

    fn is_stuck(&self) -> bool {
        let mut stuck = self.stuck.lock();
        let is_stuck = *stuck > 0;
        *stuck = stuck.saturating_sub(1);
        is_stuck
    }

    fn begin(&self, id: &AttemptId, assignment: &Assignment) -> bool {
        assert_eq!(assignment.arguments(), format!("{{\"index\":{}}}", id.task));
        let mut instances = self.instances.lock();
        if instances.contains_key(id) {
            return false;
        }
        instances.insert(id.clone(), None);
        self.begun.send_modify(|begun| *begun.entry(id.clone()).or_default() += 1);
        let mut at_once = self.at_once.lock();
        at_once.0 += 1;
        at_once.1 = at_once.1.max(at_once.0);
        true
    }
}

impl TaskRunner<Assignment> for Machine {
    fn name(&self) -> &str {
        &self.name
    }

    fn run<'a>(&'a self, id: &'a AttemptId, attempt: Assignment) -> BoxFuture<'a, WorkEnd> {
        Box::pin(async move {
            self.begin(id, &attempt);
            self.gate.subscribe().wait_for(|open| *open).await.unwrap();
            tokio::task::yield_now().await;
            let mut instances = self.instances.lock();
            let Some(instance) = instances.get_mut(id) else {
                let outcome = Outcome::Lost("it was taken away".into());
                return WorkEnd { started_at: None, ended_at: self.world.now(), outcome };
            };
            let now = self.world.now();
            let end =
                || WorkEnd { started_at: Some(now), ended_at: now, outcome: (self.script)(id) };
            instance.get_or_insert_with(end).clone()
        })
    }

    fn abandon<'a>(&'a self, id: &'a AttemptId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.is_stuck() {
                return;
            }
            if self.instances.lock().remove(id).is_some() {
                self.at_once.lock().0 -= 1;
                self.abandoned.send_modify(|abandoned| abandoned.push(id.clone()));
            }
        })
    }

    fn dismiss<'a>(&'a self, id: &'a AttemptId) -> BoxFuture<'a, ()> {
        self.dismissed.lock().push(id.clone());
        self.abandon(id)
    }

    fn present(&self) -> Vec<AttemptId> {
        self.instances.lock().keys().cloned().collect()
    }
}

/// A program that takes tasks for a machine. Dropping it is like killing it.
pub struct Program {
    pub queue: Queue,
    task: JoinHandle<()>,
    ending: CancellationToken,
}

impl Program {
    pub fn start(stage: &Stage, machine: &Arc<Machine>, settings: Settings) -> Self {
        let (queue, ending) = (stage.queue(settings), CancellationToken::new());
        let run = jobs::run(stage.store.clone(), queue.clone(), machine.clone(), ending.clone());
        Self { queue, task: tokio::spawn(run), ending }
    }

    pub async fn stop(mut self) {
        self.ending.cancel();
        (&mut self.task).await.unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.task.abort();
    }
}
