use super::super::expiry;
use super::*;
use crate::domains::{Leads, Lookup, NoAnswer};
use crate::{Parts, Rate, Settings};
use auth::Auth;
use auth::setup::{Wishes, first_start};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use store::executions::Query;
use store::identity::workspaces;
use store::resources::Order;
use store::{Store, Target};
use types::KindName;
use types::World;
use types::ids::WorkspaceId;
use types::kinds::{Agent, Job};

struct NoDns;

impl Lookup for NoDns {
    fn texts<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, NoAnswer>> {
        Box::pin(async move { Err(NoAnswer { name: name.into(), why: "there is none".into() }) })
    }

    fn leads<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Leads, NoAnswer>> {
        Box::pin(async move { Err(NoAnswer { name: name.into(), why: "there is none".into() }) })
    }
}

/// Servers on one database, with one clock that stands still until it is set.
struct Servers {
    apps: Vec<Control>,
    clock: Arc<AtomicI64>,
    _folder: tempfile::TempDir,
}

fn settings() -> Settings {
    let rate = Rate { per_second: 1000, burst: 1000 };
    Settings {
        egress: crate::settings::Egress::default(),
        models: crate::settings::Models::default(),
        public_url: "http://localhost:8080".into(),
        content_url: "http://localhost:8081".into(),
        own_names: Vec::new(),
        regions: Vec::new(),
        catalogue: Default::default(),
        body_max: 1 << 20,
        bare_list_max: 1000,
        list_bytes_max: 32 << 20,
        sandbox_drives_max: 4,
        objects_bytes_max: 1 << 30,
        answers_day_bytes_max: 1 << 30,
        key_rate: rate,
        workspace_rate: rate,
        trigger_rate: rate,
        quotas: Default::default(),
        streams: crate::StreamLimits { total: 16, workspace: 16, holder: 16 },
        bodies: crate::BodyLimits::default(),
        feed_poll: Duration::from_millis(20),
        jobs: ::jobs::Settings::default(),
        deployments: crate::Deployments::default(),
        registry: crate::RegistryUpkeep {
            every: Duration::from_secs(3600),
            tags_max: 10,
            keep_tags: 0,
        },
        builds: crate::builds::Settings::default(),
        snapshots: crate::Snapshots::default(),
        template_copies: crate::TemplateCopies::default(),
        s3: crate::S3Limits::default(),
        log_searches: ::jobs::logs::SearchLimits::default(),
        bill: crate::settings::Bill {
            first_prices: Default::default(),
            budget_every: Duration::from_secs(1),
            roll_every: Duration::from_secs(1),
            pack_every: Duration::from_secs(1),
            budgets_max: 10,
            points_max: 1000,
        },
    }
}

const MINUTE: i64 = 60_000;

fn time(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().ms()
}

impl Servers {
    async fn start(now: &str) -> [Self; 2] {
        let folder = tempfile::tempdir().unwrap();
        let sqlite = Target::Sqlite { file: folder.path().join("holm.db") };
        let one = Self::on(sqlite, folder, 1, now).await;
        let postgres = Target::Postgres { url: testing::postgres() };
        [one, Self::on(postgres, tempfile::tempdir().unwrap(), 2, now).await]
    }

    async fn on(target: Target, folder: tempfile::TempDir, count: usize, now: &str) -> Self {
        Self::with(settings(), target, folder, count, now).await
    }

    async fn with(
        settings: Settings,
        target: Target,
        folder: tempfile::TempDir,
        count: usize,
        now: &str,
    ) -> Self {
        let clock = Arc::new(AtomicI64::new(time(now)));
        let mut apps = Vec::new();
        for _ in 0..count {
            let now = Arc::clone(&clock);
            let world = World::new(
                move || Timestamp::from_ms(now.load(Ordering::SeqCst)),
                |bytes| getrandom::fill(bytes).unwrap(),
            );
            let place = store::Settings::new(target.clone(), folder.path().join("keys"));
            let store = Store::open(place, world.clone()).await.unwrap();
            first_start(&store, &world, Wishes::default()).await.unwrap();
            let outside = auth::Settings {
                issuer: "http://localhost:8080".into(),
                feed_poll: Duration::from_millis(20),
                outside: None,
                limits: auth::Limits::default(),
            };
            let auth = Auth::new(store.clone(), outside, world.clone()).await.unwrap();
            let logs = ::jobs::logs::Logs::start(store.clone(), ::jobs::logs::Settings::default());
            let (settings, dns) = (settings.clone(), Arc::new(NoDns));
            let parts = Parts {
                store,
                auth,
                world,
                settings,
                machine: None,
                edge: None,
                builder: None,
                logs,
                dns,
            };
            apps.push(Control::new(parts).await.unwrap());
        }
        Self { apps, clock, _folder: folder }
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl Fn(&Context, &mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> T {
        let control = self.apps[0].clone();
        let in_main = move |tx: &mut Tx<'_>| {
            let main = workspaces::find_by_name(tx, "main")?.unwrap();
            let (context, _) = rows::context(&control, tx, &main.id)?.unwrap();
            work(&context, tx)
        };
        self.apps[0].store.write(in_main).await.unwrap()
    }

    async fn make(&self, triggers: Value) -> ResourceId {
        let wish = move || serde_json::from_value::<Job>(body(&triggers)).unwrap();
        self.write(move |context, tx| {
            crate::engine::create(context, tx, &[], wish())?;
            Ok(Held::<Job>::get(context, tx, &[], "j")?.row.id)
        })
        .await
    }

    /// Returns the messages of the job's events about triggers.
    async fn notes(&self) -> Vec<String> {
        self.write(|context, tx| {
            let events = Held::<Job>::get(context, tx, &[], "j")?.state.events;
            let notes = events.into_iter().filter(|event| event.kind == EVENT);
            Ok(notes.filter_map(|event| event.message).collect())
        })
        .await
    }

    async fn change(&self, triggers: Value) {
        let wish = move || serde_json::from_value::<Job>(body(&triggers)).unwrap();
        self.write(move |context, tx| {
            crate::engine::replace(context, tx, &[], "j", wish()).map(drop)
        })
        .await;
    }

    /// Every server looks twice at the same time: once for the due time, once for the changed row.
    async fn look(&self, job: &ResourceId) {
        let looks = self.apps.iter().chain(&self.apps).map(|control| fire::<Job>(control, job));
        for look in futures_util::future::join_all(looks).await {
            look.unwrap();
        }
    }

    /// Advances the clock to a time, and looks every ten minutes.
    async fn walk(&self, job: &ResourceId, until: &str) {
        while self.clock.load(Ordering::SeqCst) < time(until) {
            self.clock.fetch_add(10 * MINUTE, Ordering::SeqCst);
            self.look(job).await;
        }
    }

    /// Returns the times that were fired since the last call, and how many tasks each has.
    async fn fired(&self, before: &mut BTreeSet<String>) -> Vec<(String, i64)> {
        let list = |context: &Context, tx: &mut Tx<'_>| {
            let query = Query {
                workspace: &context.member.workspace,
                job: "j",
                text: None,
                order: Order::NameAsc,
                after: None,
                offset: 0,
                limit: 10_000,
            };
            Ok(store::executions::list(tx, &query)?)
        };
        let all = self.write(list).await;
        let fresh: Vec<_> = all.into_iter().filter(|one| before.insert(one.name.clone())).collect();
        fresh.into_iter().map(|one| (one.name[5..17].to_owned(), one.total)).collect()
    }
}

fn body(triggers: &Value) -> Value {
    json!({"metadata": {"name": "j"}, "spec": {"runtime": {"image": "x"}, "triggers": triggers}})
}

fn every(id: &str, line: &str) -> Value {
    json!({"id": id, "type": "cron", "configuration": {"schedule": line}})
}

/// A week in which clocks are set forward in Berlin, on SQLite with one server and on PostgreSQL
/// with two.
#[tokio::test(flavor = "multi_thread")]
async fn each_due_time_of_a_week_starts_one_execution() {
    for servers in Servers::start("2026-03-25T00:05:00Z").await {
        let berlin = json!({"id": "b", "type": "cron", "configuration": {
            "schedule": "30 2 * * *", "timezone": "Europe/Berlin", "tasks": [{"a": 1}, {"b": 2}]}});
        let off = json!({"id": "o", "type": "cron", "enabled": false, "configuration": {"schedule": "* * * * *"}});
        let job = servers.make(json!([every("six", "0 */6 * * *"), berlin, off])).await;
        servers.look(&job).await;
        servers.walk(&job, "2026-04-01T00:05:00Z").await;
        let fired = servers.fired(&mut BTreeSet::new()).await;
        let of = |tasks: i64| {
            fired.iter().filter(|one| one.1 == tasks).map(|one| one.0.clone()).collect::<Vec<_>>()
        };
        let six: Vec<String> = (25..32)
            .flat_map(|day| [0, 6, 12, 18].map(|hour| format!("202603{day}{hour:02}00")))
            .skip(1)
            .chain(["202604010000".to_owned()])
            .collect();
        assert_eq!(of(1), six);
        let berlin = ["250130", "260130", "270130", "280130", "290100", "300030", "310030"];
        assert_eq!(of(2), berlin.map(|time| format!("202603{time}")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_was_there_and_clocks_jump() {
    for servers in Servers::start("2026-05-01T00:05:00Z").await {
        let mut seen = BTreeSet::new();
        let job = servers.make(json!([every("h", "0 * * * *")])).await;
        servers.look(&job).await;
        // All servers were off for five hours: only the newest time is made up for.
        servers.clock.store(time("2026-05-01T05:30:00Z"), Ordering::SeqCst);
        servers.look(&job).await;
        assert_eq!(servers.fired(&mut seen).await, [("202605010500".to_owned(), 1)]);
        // The clock is set back by two hours and goes on: nothing fires twice.
        servers.clock.store(time("2026-05-01T03:30:00Z"), Ordering::SeqCst);
        servers.walk(&job, "2026-05-01T05:50:00Z").await;
        assert_eq!(servers.fired(&mut seen).await, []);
        servers.walk(&job, "2026-05-01T06:10:00Z").await;
        assert_eq!(servers.fired(&mut seen).await, [("202605010600".to_owned(), 1)]);
        // It is set forward by a day: one run.
        servers.clock.store(time("2026-05-02T06:10:00Z"), Ordering::SeqCst);
        servers.look(&job).await;
        assert_eq!(servers.fired(&mut seen).await, [("202605020600".to_owned(), 1)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_schedule_begins_anew_and_what_is_off_is_not_made_up_for() {
    for servers in Servers::start("2026-05-01T00:05:00Z").await {
        let mut seen = BTreeSet::new();
        let job = servers.make(json!([every("h", "0 * * * *")])).await;
        servers.look(&job).await;
        let mut off = every("h", "0 * * * *");
        off["enabled"] = json!(false);
        servers.change(json!([off])).await;
        servers.look(&job).await;
        servers.walk(&job, "2026-05-01T03:05:00Z").await;
        servers.change(json!([every("h", "0 * * * *")])).await;
        servers.walk(&job, "2026-05-01T04:15:00Z").await;
        assert_eq!(servers.fired(&mut seen).await, [("202605010400".to_owned(), 1)]);
        servers.clock.store(time("2026-05-01T05:40:00Z"), Ordering::SeqCst);
        servers.change(json!([every("h", "30 * * * *")])).await;
        servers.walk(&job, "2026-05-01T06:40:00Z").await;
        assert_eq!(servers.fired(&mut seen).await, [("202605010630".to_owned(), 1)]);
        // With the job all marks are removed, and nothing fires any more.
        servers
            .write(|context, tx| crate::engine::remove::<Job>(context, tx, &[], "j").map(drop))
            .await;
        servers.walk(&job, "2026-05-01T09:40:00Z").await;
        assert_eq!(servers.fired(&mut seen).await, []);
        let left = servers.write({
            let job = job.clone();
            move |_, tx| Ok(marks::list(tx, &job)?)
        });
        assert_eq!(left.await, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_of_which_one_call_is_refused_makes_none_of_its_calls() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::Sqlite { file: folder.path().join("holm.db") };
    let mut settings = settings();
    settings.jobs.open_max = 2;
    let servers = Servers::with(settings, target, folder, 1, "2026-05-01T00:05:00Z").await;
    let calls = |id: &str, tasks: Value| json!({"id": id, "type": "cron", "configuration": {"schedule": "0 * * * *", "tasks": tasks}});
    let triggers = json!([calls("three", json!([{}, {}, {}])), calls("two", json!([{}, {}]))]);
    let agent = servers.write(move |context, tx| {
        let wish = json!({"metadata": {"name": "a"},
            "spec": {"runtime": {"image": "x"}, "triggers": triggers}});
        crate::engine::create(context, tx, &[], serde_json::from_value::<Agent>(wish).unwrap())?;
        Ok(Held::<Agent>::get(context, tx, &[], "a")?.row.id)
    });
    let agent = agent.await;
    fire::<Agent>(&servers.apps[0], &agent).await.unwrap();
    servers.clock.store(time("2026-05-01T01:05:00Z"), Ordering::SeqCst);
    let count = |context: &Context, tx: &mut Tx<'_>| {
        Ok(store::executions::count_open(tx, &context.member.workspace, 100)?)
    };
    // Looking again finds that all due times have passed.
    for _ in 0..2 {
        fire::<Agent>(&servers.apps[0], &agent).await.unwrap();
        assert_eq!(servers.write(count).await, 2, "the two calls of the other trigger");
    }
}

/// Returns a server in whose workspaces two executions may be open, with a job of many triggers.
async fn crowded() -> (Servers, ResourceId) {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::Sqlite { file: folder.path().join("holm.db") };
    let mut settings = settings();
    settings.jobs.open_max = 2;
    let servers = Servers::with(settings, target, folder, 1, "2026-05-01T00:05:00Z").await;
    let triggers: Vec<Value> =
        (0..100).map(|number| every(&format!("t{number:02}"), "0 * * * *")).collect();
    let job = servers.make(json!(triggers)).await;
    servers.look(&job).await;
    (servers, job)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_transaction_does_with_all_triggers_that_are_refused() {
    let (servers, job) = crowded().await;
    for (now, refused) in [("2026-05-01T01:05:00Z", 98), ("2026-05-01T02:05:00Z", 100)] {
        servers.clock.store(time(now), Ordering::SeqCst);
        let (control, id) = (servers.apps[0].clone(), job.clone());
        let fired = servers.write(move |context, tx| {
            let parsed = Parsed::of(&Held::<Job>::get(context, tx, &[], "j")?);
            let fired = fire_in::<Job>(&control, tx, &id, &parsed)?;
            Ok((fired.refused.len(), fired.next.map(Timestamp::ms)))
        });
        assert_eq!(fired.await, (refused, Some(time(now) + 55 * MINUTE)));
        servers.look(&job).await;
        assert_eq!(servers.fired(&mut BTreeSet::new()).await.len(), 2, "nothing is tried again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_reads_which_triggers_were_refused_and_why() {
    let (servers, job) = crowded().await;
    assert_eq!(servers.notes().await, [""; 0]);
    for hour in ["01", "02"] {
        servers.clock.store(time(&format!("2026-05-01T{hour}:05:00Z")), Ordering::SeqCst);
        servers.look(&job).await;
        let notes = servers.notes().await;
        assert_eq!(notes.len(), EVENTS_MAX, "{notes:?}");
        for (number, note) in (90..).zip(&notes) {
            let begin = format!("the trigger `t{number}`, due at 2026-05-01T{hour}:00:00.000Z,");
            assert!(note.starts_with(&begin) && note.contains("has 2 executions"), "{note}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_in_one_workspace_does_not_wait_for_another() {
    let (servers, _) = crowded().await;
    let add = |context: &Context, tx: &mut Tx<'_>| {
        let main = workspaces::find_by_name(tx, "main")?.unwrap();
        let other = workspaces::Workspace {
            id: WorkspaceId::known("wsp_other"),
            name: "other".into(),
            ..main.clone()
        };
        workspaces::create(tx, &other)?;
        let (other, _) = rows::context(&context.control, tx, &other.id)?.unwrap();
        let wish = serde_json::from_value::<Job>(body(&json!([every("h", "0 * * * *")]))).unwrap();
        crate::engine::create(&other, tx, &[], wish)?;
        let of = |context: &Context, tx: &mut Tx<'_>| {
            Held::<Job>::get(context, tx, &[], "j").map(|held| held.row.id)
        };
        Ok((main.id, of(context, tx)?, of(&other, tx)?))
    };
    let (main, slow, other) = servers.write(add).await;
    servers.look(&other).await;
    servers.clock.store(time("2026-05-01T01:05:00Z"), Ordering::SeqCst);
    let (control, acts) = (servers.apps[0].clone(), Arc::<expiry::Acts>::default());
    // The other rows of the workspace take long.
    let mut busy = Vec::new();
    for _ in 0..expiry::WORKSPACE_AT_ONCE {
        busy.push(acts.slots.take(main.as_str()).await);
    }
    for (id, due) in [(&slow, "2026-05-01T00:59:00Z"), (&other, "2026-05-01T01:00:00Z")] {
        control.workloads.alarm.set(id.clone(), KindName::Job, Some(due.parse().unwrap()));
    }
    let (store, mut commits) = (control.store.clone(), control.store.commits());
    let following = tokio::spawn(expiry::follow(control, acts));
    let open = async |workspace: WorkspaceId| {
        let count = move |tx: &mut Tx<'_>| store::executions::count_open(tx, &workspace, 100);
        store.read(count).await.unwrap()
    };
    while open(WorkspaceId::known("wsp_other")).await == 0 {
        commits.changed().await.unwrap();
    }
    assert_eq!(open(main.clone()).await, 0);
    drop(busy);
    while open(main.clone()).await == 0 {
        commits.changed().await.unwrap();
    }
    following.abort();
}
