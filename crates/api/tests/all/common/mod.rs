//! A whole control plane in one process: real router and real store, with time and randomness
//! controlled by the test.

#![expect(
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a test without its set-up can only fail"
)]

pub mod browser;
pub mod builder;
pub mod dns;
pub mod late;
pub mod machine;
pub mod people;
pub mod routes;
pub mod s3;
pub mod samples;
pub mod snapshots;
pub mod tunnels;
pub mod volumes;

use auth::Auth;
use auth::setup::{FirstStart, Wishes, first_start};
use axum::Router;
use axum::body::Body;
use control::machine::{Builder, Edge};
use control::{Bill, BodyLimits, Catalogue, Control, Parts, Rate, Settings, StreamLimits};
use dns::Zone;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use jobs::logs::Logs;
use routes::Routes;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use store::identity::workspaces;
use store::{Store, Target, resources};
use types::parts::Status;
use types::wire::Region;
use types::{KindName, Timestamp, World};

/// Time stands still until a test moves it; random numbers count up from the test's seed.
#[derive(Clone)]
pub struct Clock(Arc<AtomicI64>);

impl Clock {
    pub fn advance_s(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    }
}

pub fn test_world() -> (World, Clock) {
    let clock = Clock(Arc::new(AtomicI64::new(1_776_300_000_000)));
    let now = clock.clone();
    // Each world in a test draws different numbers, because several servers write to one database.
    static WORLDS: AtomicU64 = AtomicU64::new(1);
    let state = AtomicU64::new(WORLDS.fetch_add(1, Ordering::SeqCst) << 56 | 0x37_79B9_7F4A_7C15);
    let fill = move |bytes: &mut [u8]| {
        for byte in bytes {
            // SplitMix64: every call differs, every run is the same.
            let mut z = state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            *byte = (z ^ (z >> 31)) as u8;
        }
    };
    // Each reading is a millisecond later, so that later events also have later times.
    (World::new(move || Timestamp::from_ms(now.0.fetch_add(1, Ordering::SeqCst)), fill), clock)
}

/// Returns settings short enough for tests to wait for.
fn deployments() -> control::Deployments {
    control::Deployments {
        start_timeout: Duration::from_secs(1),
        drain_timeout: Duration::from_secs(2),
        restart_pause: Duration::from_millis(10),
        restart_pause_max: Duration::from_millis(50),
        ..control::Deployments::default()
    }
}

pub struct Cloud {
    pub control: Control,
    pub router: Router,
    pub store: Store,
    pub auth: Auth,
    pub clock: Clock,
    pub first: FirstStart,
    pub dns: Arc<Zone>,
    /// Empty if there is no machine.
    pub routes: Arc<Routes>,
    builder: Option<Arc<dyn Builder>>,
    pub settings: Settings,
    _folder: tempfile::TempDir,
    _running: Option<tokio_util::sync::DropGuard>,
}

/// The parts that belong to one server.
#[derive(Default)]
struct Local {
    machine: Option<Arc<dyn control::machine::Machine>>,
    builder: Option<Arc<dyn Builder>>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Null if the answer is not JSON.
    pub body: Value,
    pub text: String,
}

impl Answer {
    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.body);
        self.body
    }

    /// Checks the form of a refusal and returns its message.
    #[track_caller]
    pub fn refused(self, status: u16) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        assert_eq!(self.body["code"], status, "{}", self.body);
        assert!(self.body["error"].is_string(), "{}", self.body);
        self.body["message"].as_str().expect("a message").to_owned()
    }
}

pub fn settings() -> Settings {
    Settings {
        public_url: "http://localhost:8080".into(),
        content_url: "http://localhost:8081".into(),
        own_names: vec!["localhost".into()],
        regions: vec![Region {
            name: Some("local".into()),
            continent: Some("eu".into()),
            ..Region::default()
        }],
        catalogue: Catalogue::default(),
        body_max: 1 << 20,
        bare_list_max: 1000,
        list_bytes_max: 32 << 20,
        sandbox_drives_max: 4,
        objects_bytes_max: 1 << 30,
        answers_day_bytes_max: 1 << 30,
        key_rate: Rate { per_second: 100_000, burst: 100_000 },
        workspace_rate: Rate { per_second: 100_000, burst: 100_000 },
        trigger_rate: Rate { per_second: 100_000, burst: 100_000 },
        quotas: Default::default(),
        bill: Bill {
            first_prices: [("sandbox_compute_runtime_gbs".to_owned(), "0.0000115".to_owned())]
                .into(),
            budget_every: Duration::from_millis(20),
            roll_every: Duration::from_millis(20),
            pack_every: Duration::from_millis(20),
            budgets_max: 10,
            points_max: 100_000,
        },
        streams: StreamLimits { total: 16, workspace: 16, holder: 16 },
        bodies: BodyLimits::default(),
        feed_poll: Duration::from_millis(20),
        jobs: jobs::Settings::default(),
        deployments: deployments(),
        registry: control::RegistryUpkeep {
            every: Duration::from_secs(3600),
            tags_max: 20,
            keep_tags: 0,
        },
        builds: control::builds::Settings::default(),
        snapshots: control::Snapshots::default(),
        template_copies: control::TemplateCopies::default(),
        s3: control::S3Limits::default(),
        log_searches: jobs::logs::SearchLimits::default(),
        egress: control::Egress {
            pool: control::EgressPool::read(["192.0.2.16/29", "2001:db8::10-2001:db8::1f"])
                .expect("addresses"),
            workspace_max: 6,
        },
        models: control::Models::default(),
    }
}

impl Cloud {
    pub async fn start() -> Self {
        Self::start_with(settings()).await
    }

    pub async fn start_with(settings: Settings) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let target = Target::Sqlite { file: folder.path().join("holm.db") };
        Self::start_on(target, folder, settings, Local::default()).await
    }

    /// Starts one control plane on each database.
    pub async fn on_both() -> [Self; 2] {
        let folder = tempfile::tempdir().expect("a folder");
        let target = Target::Postgres { url: testing::postgres() };
        [Self::start().await, Self::start_on(target, folder, settings(), Local::default()).await]
    }

    /// Starts one with a machine, which runs what its rows ask for.
    pub async fn start_on_machine(
        machine: Arc<dyn control::machine::Machine>,
        settings: Settings,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let target = Target::Sqlite { file: folder.path().join("holm.db") };
        Self::start_on(target, folder, settings, Local { machine: Some(machine), builder: None })
            .await
    }

    /// Starts one on each database, each with a machine of its own.
    pub async fn start_on_machines(
        machine: impl Fn() -> Arc<dyn control::machine::Machine>,
    ) -> [Self; 2] {
        let folder = tempfile::tempdir().expect("a folder");
        let target = Target::Postgres { url: testing::postgres() };
        let local = Local { machine: Some(machine()), builder: None };
        let second = Self::start_on(target, folder, settings(), local).await;
        [Self::start_on_machine(machine(), settings()).await, second]
    }

    /// Starts one with a machine on the PostgreSQL database at this address.
    pub async fn start_over(url: &str, machine: Arc<dyn control::machine::Machine>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let target = Target::Postgres { url: url.to_owned() };
        Self::start_on(target, folder, settings(), Local { machine: Some(machine), builder: None })
            .await
    }

    /// Starts one with a machine that also builds, on SQLite or PostgreSQL.
    pub async fn start_building(
        machine: Arc<dyn control::machine::Machine>,
        builder: Arc<dyn Builder>,
        settings: Settings,
        postgres: bool,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let target = match postgres {
            true => Target::Postgres { url: testing::postgres() },
            false => Target::Sqlite { file: folder.path().join("holm.db") },
        };
        Self::start_on(
            target,
            folder,
            settings,
            Local { machine: Some(machine), builder: Some(builder) },
        )
        .await
    }

    async fn start_on(
        target: Target,
        folder: tempfile::TempDir,
        settings: Settings,
        Local { machine, builder }: Local,
    ) -> Self {
        let (world, clock) = test_world();
        let store_settings = store::Settings::new(target, folder.path().join("keys"));
        let store = Store::open(store_settings, world.clone()).await.expect("a store");
        let first = first_start(&store, &world, Wishes::default())
            .await
            .expect("a first start")
            .expect("it is the first");
        let auth_settings = auth::Settings {
            issuer: settings.public_url.clone(),
            feed_poll: settings.feed_poll,
            outside: None,
            limits: auth::Limits::default(),
        };
        let auth = Auth::new(store.clone(), auth_settings, world.clone()).await.expect("identity");
        let runs = machine.is_some();
        let routes = Arc::new(Routes::default());
        let edge = runs.then(|| routes.clone() as Arc<dyn Edge>);
        let dns = Arc::new(Zone::default());
        let logs = Logs::start(store.clone(), jobs::logs::Settings::default());
        let parts = Parts {
            store: store.clone(),
            auth: auth.clone(),
            world,
            settings: settings.clone(),
            machine,
            edge,
            builder: builder.clone(),
            logs,
            dns: dns.clone(),
        };
        let control = Control::new(parts).await.expect("a control plane");
        let router = api::router(api::App::new(control.clone()));
        let _running = runs.then(|| {
            let ending = tokio_util::sync::CancellationToken::new();
            drop(control::start(&control, &ending));
            ending.drop_guard()
        });
        Self {
            control,
            router,
            store,
            auth,
            clock,
            first,
            dns,
            routes,
            builder,
            settings,
            _folder: folder,
            _running,
        }
    }

    /// Restarts it without a machine.
    pub async fn restart(&mut self) {
        self.restart_with(None, None).await;
    }

    /// Turns to a server of the same installation that runs nothing. The one before goes on, and
    /// the new one does until what is returned is dropped.
    pub async fn turn_to_one_without_machine(&mut self) -> tokio_util::sync::DropGuard {
        self.routes = Arc::default();
        self.restart_with(None, Some(self.routes.clone())).await;
        let ending = tokio_util::sync::CancellationToken::new();
        drop(control::start(&self.control, &ending));
        ending.drop_guard()
    }

    /// Restarts it with the machine that it had.
    pub async fn restart_on(&mut self, machine: Arc<dyn control::machine::Machine>) {
        self.restart_with(Some(machine), Some(self.routes.clone())).await;
        let ending = tokio_util::sync::CancellationToken::new();
        drop(control::start(&self.control, &ending));
        self._running = Some(ending.drop_guard());
    }

    async fn restart_with(
        &mut self,
        machine: Option<Arc<dyn control::machine::Machine>>,
        edge: Option<Arc<dyn Edge>>,
    ) {
        let (world, _) = test_world();
        let parts = Parts {
            store: self.store.clone(),
            auth: self.auth.clone(),
            world,
            settings: self.settings.clone(),
            builder: self.builder.clone().filter(|_| machine.is_some()),
            machine,
            edge,
            logs: Logs::start(self.store.clone(), jobs::logs::Settings::default()),
            dns: self.dns.clone(),
        };
        self.control = Control::new(parts).await.expect("a control plane");
        self.router = api::router(api::App::new(self.control.clone()));
    }

    /// Returns the id of a workspace.
    pub async fn workspace(&self, name: &'static str) -> types::ids::WorkspaceId {
        let find = move |tx: &mut store::Tx<'_>| workspaces::find_by_name(tx, name);
        self.store.read(find).await.expect("an answer").expect("the workspace").id
    }

    /// Changes the spec of an object in the first workspace without anybody noticing.
    pub async fn tell_wish(&self, kind: KindName, name: &'static str, spec: Value) {
        let workspace = self.workspace("main").await;
        let work = move |tx: &mut store::Tx<'_>| {
            let mut row = resources::lock(tx, &workspace, kind, "", name)?.expect("the object");
            let mut wish: Value = serde_json::from_str(&row.wish).expect("a wish");
            for (member, value) in spec.as_object().into_iter().flatten() {
                wish["spec"][member] = value.clone();
            }
            row.wish = wish.to_string();
            resources::update(tx, row).map(drop)
        };
        self.store.write(work).await.expect("it is written");
    }

    /// Changes what the server knows of an object in the first workspace, as an engine would.
    pub async fn tell(
        &self,
        kind: KindName,
        parent: &'static str,
        name: &'static str,
        state: Value,
    ) {
        let workspace = self.workspace("main").await;
        let work = move |tx: &mut store::Tx<'_>| {
            let mut row = resources::lock(tx, &workspace, kind, parent, name)?.expect("the object");
            let mut known: Value = serde_json::from_str(&row.state).expect("a state");
            for (member, value) in state.as_object().into_iter().flatten() {
                known[member] = value.clone();
            }
            row.status = state
                .pointer("/events/0/status")
                .and_then(Value::as_str)
                .and_then(Status::parse)
                .or(row.status);
            row.state = known.to_string();
            resources::update(tx, row).map(drop)
        };
        self.store.write(work).await.expect("it is stored");
    }

    /// Sends a request with the first key and the newest version but one.
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.call_with(method, path, &[], body).await
    }

    pub async fn call_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Answer {
        let key = format!("Bearer {}", self.first.api_key);
        let mut all = vec![("authorization", key.as_str()), ("blaxel-version", "2026-04-28")];
        for header in headers {
            all.retain(|(name, _)| !name.eq_ignore_ascii_case(header.0));
            all.push(*header);
        }
        self.raw(
            method,
            path,
            &all,
            body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
        )
        .await
    }

    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(body)).expect("a request")).await
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        use tower::ServiceExt;
        let response = self.router.clone().oneshot(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer { status: parts.status, headers: parts.headers, body, text }
    }

    /// Waits until an object is as wanted.
    pub async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut commits = self.store.commits();
        loop {
            commits.mark_unchanged();
            let now = self.get(path).await.ok();
            if wanted(&now) {
                return now;
            }
            let changed = tokio::time::timeout(Duration::from_secs(60), commits.changed());
            changed.await.expect("it changes").expect("a store");
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, Some(body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.call(Method::PUT, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, None).await
    }
}
