//! A workspace with a job that provides runners, a queue in memory, and a clock that only tests
//! move.

use super::code_host::{CodeHost, TOKEN};
use hmac::{Hmac, KeyInit, Mac};
use jobs::runners::{Progress, Runners, Settings, StartError, Starter, Webhook, WebhookRefused};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use store::identity::workspaces::{self, Workspace};
use store::resources::{self, Stored};
use store::{Store, Target, Tx};
use tempfile::TempDir;
use types::ids::{AccountId, ExecutionId, ResourceId, WorkspaceId};
use types::parts::Sensitive;
use types::wire::WorkspaceStatus;
use types::{KindName, Timestamp, World};

pub(crate) const SECRET: &str = "hook secret";
pub(crate) const JOB: &str = "builder";
pub(crate) const WORKSPACE: &str = "wsp_abcdefghijkmnpqrstuv";
const START_MS: i64 = 1_800_000_000_000;

/// One execution in the queue.
#[derive(Debug, Clone)]
pub(crate) struct Executed {
    pub(crate) job: ResourceId,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) progress: Progress,
    pub(crate) cancelled: bool,
}

/// A queue in memory. Every execution runs at once, unless the queue is told to be full.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) executions: Mutex<BTreeMap<String, Executed>>,
    /// If set, nothing can be started, for this reason.
    pub(crate) refuses: Mutex<Option<String>>,
    pub(crate) full: Mutex<bool>,
    next: AtomicU64,
}

impl Starter for Queue {
    fn start(
        &self,
        tx: &mut Tx<'_>,
        job: &ResourceId,
        variables: &[(&str, Sensitive<String>)],
    ) -> Result<ExecutionId, StartError> {
        if let Some(why) = self.refuses.lock().clone() {
            return Err(StartError::Refused(why));
        }
        let id = format!("exe_{}", self.next.fetch_add(1, Ordering::SeqCst));
        let now = tx.world().now();
        let progress =
            if *self.full.lock() { Progress::Queued } else { Progress::Running { since: now } };
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), value.0.clone())).collect();
        let executed = Executed { job: job.clone(), variables, progress, cancelled: false };
        self.executions.lock().insert(id.clone(), executed);
        Ok(ExecutionId::known(id))
    }

    fn cancel(&self, _: &mut Tx<'_>, execution: &ExecutionId) -> Result<(), store::Error> {
        let mut all = self.executions.lock();
        let executed = all.get_mut(execution.as_str()).expect("only what was started is cancelled");
        (executed.cancelled, executed.progress) = (true, Progress::Ended);
        Ok(())
    }

    fn progress(&self, _: &mut Tx<'_>, execution: &ExecutionId) -> Result<Progress, store::Error> {
        Ok(self
            .executions
            .lock()
            .get(execution.as_str())
            .map_or(Progress::Ended, |executed| executed.progress))
    }
}

impl Queue {
    /// Returns the names of the runners whose programs are running.
    pub(crate) fn running(&self) -> Vec<String> {
        let all = self.executions.lock();
        let running = all.values().filter(|executed| executed.progress != Progress::Ended);
        running.map(|executed| runner_of(executed).to_owned()).collect()
    }

    /// Ends the program of a runner.
    pub(crate) fn end(&self, runner: &str) {
        let mut all = self.executions.lock();
        let executed = all.values_mut().find(|executed| runner_of(executed) == runner).unwrap();
        executed.progress = Progress::Ended;
    }

    pub(crate) fn started(&self) -> usize {
        self.executions.lock().len()
    }
}

fn runner_of(executed: &Executed) -> &str {
    assert_eq!(executed.variables[0].0, "ACTIONS_RUNNER_INPUT_JITCONFIG");
    executed.variables[0].1.strip_prefix("jit:").unwrap()
}

pub(crate) struct Cloud {
    pub(crate) store: Store,
    pub(crate) runners: Runners,
    pub(crate) queue: Arc<Queue>,
    pub(crate) host: CodeHost,
    pub(crate) job: Stored,
    pub(crate) now: Arc<AtomicI64>,
    settings: Settings,
    store_settings: store::Settings,
    _folder: TempDir,
}

impl Cloud {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("holm.db");
        Self::start_on(folder, Target::Sqlite { file }, &json!({"token": TOKEN})).await
    }

    pub(crate) async fn start_on_postgres() -> Self {
        Self::start_on(
            tempfile::tempdir().unwrap(),
            Target::Postgres { url: testing::postgres() },
            &json!({"token": TOKEN}),
        )
        .await
    }

    pub(crate) async fn start_with(secret: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("holm.db");
        Self::start_on(folder, Target::Sqlite { file }, secret).await
    }

    async fn start_on(folder: TempDir, target: Target, secret: &Value) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let now = Arc::new(AtomicI64::new(START_MS));
        let store_settings = store::Settings {
            connections: 4,
            ..store::Settings::new(target, folder.path().join("keys"))
        };
        let store = Store::open(store_settings.clone(), world(&now)).await.unwrap();
        let host = CodeHost::start(Arc::clone(&now)).await;
        let settings = Settings {
            api_url: host.url.clone(),
            answer_max: Duration::from_secs(2),
            ..Settings::default()
        };
        let queue = Arc::new(Queue::default());
        let runners =
            Runners::new(store.clone(), settings.clone(), Arc::clone(&queue) as _).unwrap();
        let workspace = WorkspaceId::known(WORKSPACE);
        let of = workspace.clone();
        store.write(move |tx| add_workspace(tx, &of, "main")).await.unwrap();
        let mut secret = secret.clone();
        secret["webhookSecret"] = SECRET.into();
        add_connection(&store, &workspace, "github", &secret, "").await;
        let wish = json!({
            "metadata": {"name": JOB},
            "spec": {"enabled": true, "githubRunner": {"repositories": ["Me/Repo"]}, "runtime": {}},
        });
        let job = add_job(&store, &workspace, JOB, &wish).await;
        Self { store, runners, queue, host, job, now, settings, store_settings, _folder: folder }
    }

    /// Returns another server on the same database.
    pub(crate) async fn another(&self) -> Runners {
        let store = Store::open(self.store_settings.clone(), world(&self.now)).await.unwrap();
        Runners::new(store, self.settings.clone(), Arc::clone(&self.queue) as _).unwrap()
    }

    pub(crate) fn pass_s(&self, seconds: i64) {
        self.now.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    /// Works until nothing is left to do now.
    pub(crate) async fn settle(&self) {
        for _ in 0..50 {
            if self.runners.turn().await.unwrap() == 0 {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    pub(crate) async fn deliver(&self, delivery: &str, body: &[u8]) -> Result<(), WebhookRefused> {
        let signature = sign(SECRET, body);
        let webhook = Webhook { event: "workflow_job", delivery, signature: &signature, body };
        self.runners.take("main", webhook).await
    }

    /// Delivers a webhook about a workflow job, as the code host would.
    pub(crate) async fn tell(&self, id: i64) {
        let delivery = format!("d{}", rand_text(&self.store));
        self.deliver(&delivery, &self.host.webhook(id)).await.unwrap();
    }

    /// Changes the job, as a user would.
    pub(crate) async fn change_job(&mut self, change: impl FnOnce(&mut Value)) {
        let mut wish: Value = serde_json::from_str(&self.job.wish).unwrap();
        change(&mut wish);
        let row = Stored { wish: wish.to_string(), ..self.job.clone() };
        self.job = self.store.write(move |tx| resources::update(tx, row.clone())).await.unwrap();
    }

    /// Checks that no runner is left, neither here nor at the code host.
    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        assert_eq!(self.host.runner_names(), Vec::<String>::new());
        assert_eq!(self.queue.running(), Vec::<String>::new());
    }
}

fn rand_text(store: &Store) -> String {
    store.world().random_text(12)
}

fn world(now: &Arc<AtomicI64>) -> World {
    let now = Arc::clone(now);
    World::new(
        move || Timestamp::from_ms(now.load(Ordering::SeqCst)),
        |bytes| getrandom::fill(bytes).unwrap(),
    )
}

pub(crate) fn sign(secret: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    mac.finalize()
        .into_bytes()
        .iter()
        .fold("sha256=".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

pub(crate) fn add_workspace(
    tx: &mut Tx<'_>,
    id: &WorkspaceId,
    name: &str,
) -> Result<(), store::Error> {
    let now = tx.world().now();
    let workspace = Workspace {
        id: id.clone(),
        account: AccountId::known("acc_a"),
        name: name.into(),
        display_name: String::new(),
        labels: BTreeMap::new(),
        settings: workspaces::Settings::default(),
        region: None,
        status: WorkspaceStatus::Ready,
        version: 1,
        created_at: now,
        updated_at: now,
        created_by: "test".into(),
        updated_by: "test".into(),
    };
    workspaces::create(tx, &workspace)
}

pub(crate) async fn add_connection(
    store: &Store,
    workspace: &WorkspaceId,
    name: &str,
    secret: &Value,
    repositories: &str,
) -> Stored {
    let id = ResourceId::new(store.world());
    let keyring = store.keyring();
    let seal = |value: &Value| {
        keyring.read().seal(&format!("resources/{id}"), value.as_str().unwrap()).unwrap()
    };
    let secret: BTreeMap<String, String> = secret
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), seal(value)))
        .collect();
    let wish = json!({
        "metadata": {"name": name},
        "spec": {"integration": "github", "config": {"repositories": repositories}, "secret": secret},
    });
    add(store, workspace, KindName::IntegrationConnection, id.clone(), name, &wish).await
}

pub(crate) async fn add_job(
    store: &Store,
    workspace: &WorkspaceId,
    name: &str,
    wish: &Value,
) -> Stored {
    add(store, workspace, KindName::Job, ResourceId::new(store.world()), name, wish).await
}

async fn add(
    store: &Store,
    workspace: &WorkspaceId,
    kind: KindName,
    id: ResourceId,
    name: &str,
    wish: &Value,
) -> Stored {
    let now = store.world().now();
    let row = Stored {
        id,
        workspace: workspace.clone(),
        kind,
        parent: String::new(),
        name: name.into(),
        external_id: None,
        status: None,
        search: name.into(),
        wish: wish.to_string(),
        state: "{}".into(),
        seal_key: None,
        version: 0,
        created_at: now,
        updated_at: now,
        created_by: "test".into(),
        updated_by: "test".into(),
    };
    store.write(move |tx| resources::insert(tx, row.clone())).await.unwrap()
}
