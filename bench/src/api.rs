//! The management API on both databases, beside etcd: durable writes, reads by name and lists.

use crate::acts::{self, Act, Manager, Mix};
use crate::etcd::Etcd;
use crate::grpc::Grpc;
use crate::http1::{Http1, Origin};
use crate::load::{self, Caller, Seen};
use crate::machine;
use crate::program;
use crate::report::{Goal, Report};
use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use testing::{Cluster, Holm, Start};

const DATABASES: [&str; 2] = ["sqlite", "postgres"];
const PARTS: [&str; 3] = ["sqlite", "postgres", "etcd"];
const OBJECTS: usize = 100_000;
const CONNECTIONS: [usize; 3] = [1, 16, 64];
const REPETITIONS: usize = 3;
const PGBENCH_SECONDS: u64 = 5;
const CONNECTIONS_MAX: usize = 64;
const MIXES: [(Mix, &str); 2] = [(Mix::Put, "put"), (Mix::Get, "get")];
/// The largest page, and how many of these lead to the middle of all objects.
const PAGE_MAX: usize = 200;
const PAGES_TO_THE_MIDDLE: usize = OBJECTS / PAGE_MAX / 2;
/// Time for a busy server to settle.
const REST: Duration = Duration::from_secs(15);
const STARTS: usize = 5;
const MIB: f64 = 1024.0 * 1024.0;

/// Measures the named parts, or all.
pub(crate) async fn run(parts: &[String]) -> anyhow::Result<()> {
    for part in parts {
        ensure!(
            PARTS.contains(&part.as_str()),
            "there is no part `{part}`; there are: {}",
            PARTS.join(", ")
        );
    }
    measure(|part| parts.is_empty() || parts.iter().any(|chosen| chosen == part)).await
}

async fn measure(chosen: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let place = tempfile::Builder::new().prefix("holm-bench-").tempdir()?;
    open_to_the_database_user(place.path())?;
    let program = program::build()?;
    println!(
        "Closed loop: each connection sends its next request when the last one is answered. 1 s to warm up,"
    );
    println!(
        "then 4 s; all in turns, {REPETITIONS} times, and the median of each, over {OBJECTS} objects. Server and callers share the machine."
    );
    let mut report = machine::begin(place.path()).await?;
    println!(
        "etcd       {}",
        machine::said("etcd", &["--version"]).lines().next().unwrap_or_default()
    );

    let cluster = if chosen("postgres") { Some(Cluster::start(place.path())?) } else { None };
    let mut servers = Vec::new();
    if chosen("sqlite") {
        servers.push(Server::start(&program, place.path(), "sqlite", None)?);
    }
    if let Some(cluster) = &cluster {
        println!("postgres   {}", cluster.version()?);
        servers.push(Server::start(&program, place.path(), "postgres", Some(cluster.url()))?);
    }
    let etcd = if chosen("etcd") { Some(Etcd::start(place.path())?) } else { None };
    let etcd_contender =
        etcd.iter().map(|etcd| Contender { name: "etcd", way: Way::Etcd(etcd.address.clone()) });
    let contenders: Vec<_> = servers.iter().map(Server::contender).chain(etcd_contender).collect();
    race(&mut report, &contenders).await?;
    for (connections, least) in CONNECTIONS.into_iter().zip([0.8, 1.0, 1.0]) {
        let metric = format!("put_rps_sqlite_c{connections}");
        let ratio = format!("put_per_etcd_c{connections}");
        report.add_ratio_to(&ratio, &metric, "etcd", Goal::AtLeast(least));
    }
    if let Some(cluster) = &cluster {
        beside_pgbench(&mut report, cluster)?;
    }
    for server in servers {
        server.finish(&mut report).await?;
    }

    for (name, metric) in [
        ("start_ms", "start_ms_sqlite"),
        ("rss_idle_mib", "rss_idle_mib_sqlite"),
        ("get_rps", "get_rps_sqlite_c64"),
        ("put_rps", "put_rps_sqlite_c64"),
    ] {
        report.alias(metric, name);
    }
    report.set_goal("put_rps", Goal::AtLeast(3000.0));
    report.set_goal("get_rps", Goal::AtLeast(15_000.0));
    report.set_goal("rss_idle_mib", Goal::AtMost(150.0));
    report.set_goal("start_ms", Goal::AtMost(1000.0));
    report.finish("api")
}

/// Measures what PostgreSQL's own benchmark reaches on the server that has just taken the puts.
fn beside_pgbench(report: &mut Report, cluster: &Cluster) -> anyhow::Result<()> {
    let mut rates = Vec::new();
    for _ in 0..REPETITIONS {
        rates.push(cluster.pgbench(CONNECTIONS_MAX, PGBENCH_SECONDS)?);
    }
    rates.sort_by(f64::total_cmp);
    let metric = format!("put_rps_postgres_c{CONNECTIONS_MAX}");
    let ours = report.value(&metric).context("no puts were measured")?;
    report.add("pgbench_tps", rates[REPETITIONS / 2], "1/s");
    let rate = rates[REPETITIONS / 2];
    report.add_ratio("put_pg_per_pgbench", ours, rate, Goal::AtLeast(0.5));
    Ok(())
}

/// Lets PostgreSQL, which does not run as root, reach its folder.
pub(crate) fn open_to_the_database_user(folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711))?)
}

/// Starts a server as users run it, except for the limits that guard against callers as fast as
/// ours.
fn start<'a>(program: &Path, data: &'a Path, database: Option<String>) -> Start<'a> {
    let names = [
        "HOLM_LIMITS__KEY_PER_SECOND",
        "HOLM_LIMITS__KEY_BURST",
        "HOLM_LIMITS__WORKSPACE_PER_SECOND",
        "HOLM_LIMITS__WORKSPACE_BURST",
        "HOLM_LIMITS__QUOTAS__SANDBOXES",
    ];
    let settings = names.map(|name| (name, "1000000".to_owned())).to_vec();
    Start { program: program.to_owned(), data, database, settings }
}

/// One of the systems that are measured side by side.
struct Contender {
    name: &'static str,
    way: Way,
}

enum Way {
    Holm(Rc<Origin>),
    Etcd(String),
}

enum Connection {
    Holm(Manager),
    Etcd(Grpc),
}

impl Caller for Connection {
    type Act = Act;

    async fn call(&mut self, act: Act) -> anyhow::Result<()> {
        match self {
            Self::Holm(caller) => caller.call(act).await,
            Self::Etcd(caller) => caller.call(act).await,
        }
    }
}

impl Contender {
    /// Opens new connections each time: servers close those that are idle while others are
    /// measured.
    async fn connect(&self, connections: usize) -> anyhow::Result<Vec<Connection>> {
        let mut made = Vec::new();
        for _ in 0..connections {
            made.push(match &self.way {
                Way::Holm(origin) => Connection::Holm(Manager {
                    http: Http1::connect(origin).await?,
                    lists: Rc::default(),
                }),
                Way::Etcd(address) => Connection::Etcd(Grpc::connect(address).await?),
            });
        }
        Ok(made)
    }

    /// Adds a result. One of ours gets a line of its own; one of a peer goes beside both of ours.
    fn tell(
        &self,
        report: &mut Report,
        metric: impl Fn(&str) -> String,
        value: f64,
        unit: &'static str,
    ) {
        match self.way {
            Way::Holm(_) => report.add(metric(self.name), value, unit),
            Way::Etcd(_) => {
                DATABASES
                    .iter()
                    .for_each(|database| report.set_peer(&metric(database), self.name, value));
            }
        }
    }
}

/// Fills all contenders and measures them in turns, so that other load on the machine affects all
/// alike.
async fn race(report: &mut Report, contenders: &[Contender]) -> anyhow::Result<()> {
    for contender in contenders {
        let filled = acts::fill(&mut contender.connect(CONNECTIONS_MAX).await?, OBJECTS).await?;
        contender.tell(
            report,
            |database| format!("create_rps_{database}_c{CONNECTIONS_MAX}"),
            filled,
            "1/s",
        );
    }
    for (mix, name) in MIXES {
        for connections in CONNECTIONS {
            let mut seen = vec![Vec::new(); contenders.len()];
            for _ in 0..REPETITIONS {
                for (contender, seen) in contenders.iter().zip(&mut seen) {
                    seen.push(
                        load::measure(&mut contender.connect(connections).await?, || {
                            mix.next(OBJECTS)
                        })
                        .await?,
                    );
                }
            }
            for (contender, seen) in contenders.iter().zip(&seen) {
                let Seen { rps, p50_us, p99_us } = load::medians(seen);
                for (what, value, unit) in
                    [("rps", rps, "1/s"), ("p50_us", p50_us, "us"), ("p99_us", p99_us, "us")]
                {
                    let metric =
                        |database: &str| format!("{name}_{what}_{database}_c{connections}");
                    contender.tell(report, metric, value, unit);
                }
            }
        }
    }
    Ok(())
}

/// A Holm with a database of its own.
struct Server {
    database: &'static str,
    program: PathBuf,
    url: Option<String>,
    data: tempfile::TempDir,
    process: Holm,
    origin: Rc<Origin>,
}

impl Server {
    fn start(
        program: &Path,
        place: &Path,
        database: &'static str,
        url: Option<String>,
    ) -> anyhow::Result<Self> {
        let data = tempfile::Builder::new().prefix("holm").tempdir_in(place)?;
        let process = start(program, data.path(), url.clone()).run()?;
        let key = process.key.as_deref().context("the first start shows a key")?;
        let headers = format!("authorization: Bearer {key}\r\nservice-version: 2026-04-28\r\n");
        let origin = Rc::new(Origin { address: process.address.clone(), headers });
        Ok(Self { database, program: program.to_owned(), url, data, process, origin })
    }

    fn contender(&self) -> Contender {
        Contender { name: self.database, way: Way::Holm(Rc::clone(&self.origin)) }
    }

    /// Measures what has no peer: lists, memory and starts.
    async fn finish(self, report: &mut Report) -> anyhow::Result<()> {
        let database = self.database;
        let (names, lists) = lists(&mut Http1::connect(&self.origin).await?).await?;
        let lists: Rc<[String]> = lists.into();
        for (query, name) in names.into_iter().enumerate() {
            let mut seen = Vec::new();
            for _ in 0..REPETITIONS {
                let http = Http1::connect(&self.origin).await?;
                let mut caller = [Manager { http, lists: Rc::clone(&lists) }];
                seen.push(load::measure(&mut caller, || Mix::List { query }.next(OBJECTS)).await?);
            }
            let seen = load::medians(&seen);
            report.add(format!("list_{name}_p50_ms_{database}"), seen.p50_us / 1e3, "ms");
            report.add(format!("list_{name}_p99_ms_{database}"), seen.p99_us / 1e3, "ms");
        }
        tokio::time::sleep(REST).await;
        report.add(
            format!("rss_idle_mib_{database}"),
            self.process.resident_bytes()? as f64 / MIB,
            "MiB",
        );
        drop(self.process);
        let start = start(&self.program, self.data.path(), self.url);
        report.add(format!("start_ms_{database}"), starts(&start, &self.origin).await?, "ms");
        Ok(())
    }
}

/// Returns the lists of 50 that are measured: names and query strings.
async fn lists(caller: &mut Http1) -> anyhow::Result<(Vec<&'static str>, Vec<String>)> {
    let mut cursor = String::new();
    for _ in 0..PAGES_TO_THE_MIDDLE {
        let page = caller
            .ask(
                "GET",
                &format!("/v0/sandboxes?limit={PAGE_MAX}&sort=name:asc&cursor={cursor}"),
                "",
            )
            .await?;
        let page: serde_json::Value = serde_json::from_slice(page)?;
        cursor = page["meta"]["nextCursor"].as_str().context("a page without a cursor")?.to_owned();
    }
    Ok([
        ("created_desc", "limit=50&sort=createdAt:desc".to_owned()),
        ("created_asc", "limit=50&sort=createdAt:asc".to_owned()),
        ("name_asc", "limit=50&sort=name:asc".to_owned()),
        ("name_desc", "limit=50&sort=name:desc".to_owned()),
        ("deep_cursor", format!("limit=50&sort=name:asc&cursor={cursor}")),
        ("last_page", "limit=50&anchor=end".to_owned()),
        ("q_common", "limit=50&q=measure".to_owned()),
        ("q_rare", "limit=50&q=bench-077777".to_owned()),
    ]
    .into_iter()
    .unzip())
}

/// Measures the time from the start of the process, on a full database, to its first answer.
async fn starts(start: &Start<'_>, origin: &Origin) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let begun = Instant::now();
        let server = start.run()?;
        let origin = Rc::new(Origin { address: server.address.clone(), ..origin.clone() });
        Http1::connect(&origin)
            .await?
            .ask("GET", &format!("/v0/sandboxes/{}", acts::name(0)), "")
            .await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
