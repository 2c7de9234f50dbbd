//! Batch jobs: ten thousand tasks through the public API, each in an instance of its own and
//! recorded durably; how soon a task starts; and what the queue itself can do. Beside programs that
//! run as many commands.

mod batch;
mod noop;
mod rivals;

use crate::cloud::{Client, Cloud, Setting, with_setting};
use crate::machine;
use crate::peers::{Peers, Root};
use crate::program::{self, Parts};
use crate::report::{Goal, Report};
use crate::samples::{Samples, median};
use anyhow::ensure;
use batch::Job;
use images::{Config, Overlay, Settings, Store};
use rivals::{Rival, Venv, Work};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use store::Target;
use testing::Cluster;

const PARTS: [&str; 3] = ["sqlite", "postgres", "noop"];
const IMAGE: &str = "holm-bench/true";
const TASKS: usize = 10_000;
/// Fills caches and creates what the first tasks create for all.
const WARM_UP: usize = 300;
const REPETITIONS: usize = 3;
/// One task at a time on an otherwise idle server.
const SINGLE: usize = 200;
const PAUSE: Duration = Duration::from_millis(50);
const TASKS_GOAL: f64 = 300.0;
const NOOP_GOAL: f64 = 10_000.0;
const DISPATCH_GOAL_MS: f64 = 10.0;

/// Measures the named parts, or all.
pub(crate) async fn run(parts: &[String]) -> anyhow::Result<()> {
    for part in parts {
        ensure!(
            PARTS.contains(&part.as_str()),
            "there is no part `{part}`; there are: {}",
            PARTS.join(", ")
        );
    }
    let chosen = |part: &str| parts.is_empty() || parts.iter().any(|chosen| chosen == part);
    println!(
        "{TASKS} tasks of /bin/true by one execution, each in an instance of its own; {REPETITIONS} times in turns with the"
    );
    println!(
        "peers, and the median. Then {SINGLE} executions of one task, {} ms apart.",
        PAUSE.as_millis()
    );
    let place = tempfile::Builder::new().prefix("holm-bench-jobs-").tempdir()?;
    program::build()?;
    program::find_guest()?;
    let mut report = machine::begin(place.path()).await?;
    if chosen("sqlite") {
        let setting = setting(place.path(), None)?;
        with_setting(setting, async |cloud| on_sqlite(cloud, &mut report).await).await?;
    }
    if chosen("postgres") {
        let cluster = Cluster::start(&std::env::temp_dir())?;
        println!("postgres   {}", cluster.version()?);
        let setting = setting(place.path(), Some(cluster.url()))?;
        with_setting(setting, async |cloud| on_postgres(cloud, &cluster, &mut report).await)
            .await?;
    }
    if chosen("noop") {
        idle(place.path(), &mut report)?;
    }
    report.set_goal("tasks_per_s", Goal::AtLeast(TASKS_GOAL));
    beside_parallel(&mut report);
    report.set_goal("dispatch_p50_ms", Goal::AtMost(DISPATCH_GOAL_MS));
    report.set_goal("noop_per_s", Goal::AtLeast(NOOP_GOAL));
    report.finish("jobs")
}

/// Adds the comparison with commands that `parallel` starts in `bwrap` and nobody records. These
/// run beside SQLite, on the same machine and in the same run.
fn beside_parallel(report: &mut Report) {
    let Some((_, theirs)) = report.values("tasks_per_s", Rival::Parallel.name()) else { return };
    for metric in ["tasks_per_s", "tasks_per_s_postgres"] {
        if let Some(ours) = report.value(metric) {
            report.add_ratio(format!("{metric}_per_parallel"), ours, theirs, Goal::AtLeast(1.5));
        }
    }
}

/// Configures a server with an image of its own, whose command is the task.
fn setting(place: &Path, database: Option<String>) -> anyhow::Result<Setting> {
    let images = place.join("images");
    make_image(place, &images)?;
    let parts = Parts { guest: program::find_guest()?, images };
    Ok(Setting { program: program::build()?, parts, database, more: Vec::new() })
}

fn make_image(place: &Path, images: &Path) -> anyhow::Result<()> {
    if images.exists() {
        return Ok(());
    }
    let archive = testing::small_root(place, &[])?;
    let store = Store::open(images, Settings { overlay: Overlay::User, ..Settings::default() })?;
    let config = Config { entrypoint: vec!["/bin/true".to_owned()], ..Config::default() };
    store.import_rootfs(archive.as_slice(), &config, &IMAGE.parse()?)?;
    Ok(())
}

async fn on_sqlite(cloud: &Cloud, report: &mut Report) -> anyhow::Result<()> {
    let mut client = cloud.client().await?;
    let job = Job::make(&mut client, "true", IMAGE).await?;
    let peers = Peers::prepare(Root::mount(cloud.images(), IMAGE)?)?;
    let (rivals, refusals) = Rival::able(&peers);
    refusals.into_iter().for_each(|refusal| report.note(refusal));
    job.run(&mut client, WARM_UP).await?;

    let mut ours = Vec::new();
    let mut theirs = vec![Vec::new(); rivals.len()];
    for _ in 0..REPETITIONS {
        ours.push(Seen::of(cloud, &job).await?);
        for (rival, rates) in rivals.iter().zip(&mut theirs) {
            rates.push(rival.rate(&peers)?);
        }
    }
    report.add("tasks_per_s", median(ours.iter().map(|seen| seen.rate)), "1/s");
    for (rival, rates) in rivals.iter().zip(theirs) {
        report.set_peer("tasks_per_s", rival.name(), median(rates));
    }
    report.add("server_cpu_ms_per_task", median(ours.iter().map(|seen| seen.cpu_ms)), "ms");
    singles(&job, &mut cloud.client().await?, report).await
}

async fn on_postgres(cloud: &Cloud, cluster: &Cluster, report: &mut Report) -> anyhow::Result<()> {
    let mut client = cloud.client().await?;
    let job = Job::make(&mut client, "true", IMAGE).await?;
    let venv = Venv::make();
    job.run(&mut client, WARM_UP).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        ours.push(Seen::of(cloud, &job).await?.rate);
        if let Ok(venv) = &venv {
            theirs.push(venv.rate(&cluster.url(), Work::Program)?);
        }
    }
    report.add("tasks_per_s_postgres", median(ours), "1/s");
    set_queue(report, "tasks_per_s_postgres", venv, theirs);
    Ok(())
}

/// Measures the queue with nothing to run.
fn idle(place: &Path, report: &mut Report) -> anyhow::Result<()> {
    let cluster = Cluster::start(&std::env::temp_dir())?;
    let venv = Venv::make();
    let [mut sqlite, mut postgres, mut theirs] = <[Vec<f64>; 3]>::default();
    for repetition in 0..REPETITIONS {
        let file = place.join(format!("idle-{repetition}.db"));
        sqlite.push(noop::rate(Target::Sqlite { file }, &place.join("keys"))?);
        postgres.push(noop::rate(Target::Postgres { url: cluster.url() }, &place.join("keys"))?);
        if let Ok(venv) = &venv {
            theirs.push(venv.rate(&cluster.url(), Work::Nothing)?);
        }
    }
    report.add("noop_per_s", median(sqlite), "1/s");
    report.add("noop_per_s_postgres", median(postgres), "1/s");
    set_queue(report, "noop_per_s_postgres", venv, theirs);
    Ok(())
}

/// Adds the Python queue beside a metric, or notes why it is missing.
fn set_queue(report: &mut Report, metric: &str, venv: anyhow::Result<Venv>, rates: Vec<f64>) {
    match venv {
        Ok(_) => report.set_peer(metric, rivals::VENV_NAME, median(rates)),
        Err(error) => report.note(format!("{} cannot run here: {error:#}", rivals::VENV_NAME)),
    }
}

/// What was measured of one execution.
struct Seen {
    rate: f64,
    cpu_ms: f64,
}

impl Seen {
    async fn of(cloud: &Cloud, job: &Job) -> anyhow::Result<Self> {
        // The server has closed connections that were idle while a peer was measured.
        let mut client = cloud.client().await?;
        let (cpu, begun) = (cloud.process().processor_time()?, Instant::now());
        job.run(&mut client, TASKS).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let cpu = cloud.process().processor_time()?.saturating_sub(cpu);
        Ok(Self { rate: TASKS as f64 / seconds, cpu_ms: cpu.as_secs_f64() * 1e3 / TASKS as f64 })
    }
}

/// Measures the time from accepting an execution until its only task has started, and until it has
/// ended.
async fn singles(job: &Job, client: &mut Client, report: &mut Report) -> anyhow::Result<()> {
    let (mut starts, mut ends) = (Samples::default(), Samples::default());
    for _ in 0..SINGLE {
        tokio::time::sleep(PAUSE).await;
        let id = job.start(client, &[json!({})]).await?;
        // Long enough that hardly any task is still running: the server is not asked meanwhile.
        tokio::time::sleep(PAUSE).await;
        let times = job.times(client, &id).await?;
        starts.add(times.until_started);
        ends.add(times.until_ended);
    }
    report.add_times("dispatch", &starts)?;
    report.add_times("single_task", &ends)
}
