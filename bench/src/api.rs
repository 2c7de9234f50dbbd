//! The management API: durable writes, reads by name and lists, on both databases, beside etcd.

use crate::etcd::Etcd;
use crate::grpc::Grpc;
use crate::http1::{Http1, Requests};
use crate::load::{self, Caller, Mix, Seen};
use crate::machine;
use crate::report::{Goal, Report};
use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};
use testing::{Cluster, Start};

const PARTS: [&str; 3] = ["sqlite", "postgres", "etcd"];
const OBJECTS: usize = 100_000;
const CONNECTIONS: [usize; 3] = [1, 16, 64];
const CONNECTIONS_MAX: usize = 64;
const MIXES: [(Mix, &str); 2] = [(Mix::Put, "put"), (Mix::Get, "get")];
/// The largest page, and how many of them lead to the middle of all objects.
const PAGE_MAX: usize = 200;
const PAGES_TO_THE_MIDDLE: usize = OBJECTS / PAGE_MAX / 2;
/// Time in which a server that was busy comes to rest.
const REST: Duration = Duration::from_secs(15);
const STARTS: usize = 5;
const MIB: f64 = 1024.0 * 1024.0;

/// Measures the named parts, or all.
pub(crate) fn run(parts: &[String]) -> anyhow::Result<()> {
    for part in parts {
        ensure!(PARTS.contains(&part.as_str()), "there is no part `{part}`; there are: {}", PARTS.join(", "));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let chosen = |part: &str| parts.is_empty() || parts.iter().any(|chosen| chosen == part);
    tokio::task::LocalSet::new().block_on(&runtime, measure(chosen))
}

async fn measure(chosen: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let place = tempfile::Builder::new().prefix("holm-bench-").tempdir()?;
    open_to_the_database_user(place.path())?;
    let program = build()?;
    let mut report = Report::default();
    println!("Closed loop: each connection sends its next request when the last one is answered. 1 s to warm up,");
    println!("then the median of 3 times 4 s, over {OBJECTS} objects. Server and callers share the machine.");
    machine::describe(place.path());

    if chosen("sqlite") {
        measure_holm(&mut report, &program, place.path(), "sqlite", None).await?;
    }
    if chosen("postgres") {
        let cluster = Cluster::start(place.path())?;
        println!("postgres   {}", cluster.version()?);
        measure_holm(&mut report, &program, place.path(), "postgres", Some(cluster.url())).await?;
    }
    if chosen("etcd") {
        measure_etcd(&mut report, place.path()).await?;
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
    report.print();
    println!("\n{}", report.save("api")?.display());
    Ok(())
}

/// PostgreSQL runs as another user than root and must reach its folder.
fn open_to_the_database_user(folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711))?)
}

/// Builds the program, unless `HOLM_PROGRAM` names one: to compare two builds.
fn build() -> anyhow::Result<PathBuf> {
    if let Some(program) = std::env::var_os("HOLM_PROGRAM") {
        return Ok(program.into());
    }
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let built = Command::new(cargo)
        .current_dir(root)
        .args(["build", "--release", "--locked", "--quiet", "--package", "holm"])
        .status()?;
    ensure!(built.success(), "Holm could not be built");
    // This program stands where cargo puts the others.
    let folder = std::env::current_exe()?;
    Ok(folder.parent().context("no folder")?.join("holm"))
}

/// A server as users run it, but for the limits that guard against callers as fast as ours.
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

async fn measure_holm(
    report: &mut Report,
    program: &Path,
    place: &Path,
    database: &str,
    url: Option<String>,
) -> anyhow::Result<()> {
    let data = tempfile::Builder::new().prefix("holm").tempdir_in(place)?;
    let start = start(program, data.path(), url);
    let server = start.run()?;
    let key = server.key.clone().context("the first start shows a key")?;
    let mut requests = Requests {
        address: server.address.clone(),
        headers: format!(
            "authorization: Bearer {key}\r\nservice-version: 2026-04-28\r\ncontent-type: application/json\r\n"
        ),
        lists: Vec::new(),
    };
    let shared = Rc::new(requests.clone());
    let filled = load::fill(&mut connect(&shared, CONNECTIONS_MAX).await?, OBJECTS).await?;
    report.add(format!("create_rps_{database}_c{CONNECTIONS_MAX}"), filled, "1/s");
    for (mix, name) in MIXES {
        for connections in CONNECTIONS {
            // New ones each time: the server closes those that were idle meanwhile.
            let seen = load::measure(&mut connect(&shared, connections).await?, mix, OBJECTS).await?;
            add(report, &format!("{name}_{{}}_{database}_c{connections}"), seen);
        }
    }
    let (names, lists) = lists(&mut Http1::connect(&shared).await?).await?;
    requests.lists = lists;
    let mut caller = [Http1::connect(&Rc::new(requests.clone())).await?];
    for (query, name) in names.into_iter().enumerate() {
        let seen = load::measure(&mut caller, Mix::List { query }, OBJECTS).await?;
        report.add(format!("list_{name}_p50_ms_{database}"), seen.p50_us / 1e3, "ms");
        report.add(format!("list_{name}_p99_ms_{database}"), seen.p99_us / 1e3, "ms");
    }
    drop(caller);
    tokio::time::sleep(REST).await;
    report.add(format!("rss_idle_mib_{database}"), server.resident_bytes()? as f64 / MIB, "MiB");
    drop(server);
    report.add(format!("start_ms_{database}"), starts(&start, &requests).await?, "ms");
    Ok(())
}

fn add(report: &mut Report, pattern: &str, seen: Seen) {
    report.add(pattern.replace("{}", "rps"), seen.rps, "1/s");
    report.add(pattern.replace("{}", "p50_us"), seen.p50_us, "us");
    report.add(pattern.replace("{}", "p99_us"), seen.p99_us, "us");
}

async fn connect(requests: &Rc<Requests>, connections: usize) -> anyhow::Result<Vec<Http1>> {
    let mut callers = Vec::new();
    for _ in 0..connections {
        callers.push(Http1::connect(requests).await?);
    }
    Ok(callers)
}

/// The lists of 50 that are measured: names and query strings.
async fn lists(caller: &mut Http1) -> anyhow::Result<(Vec<&'static str>, Vec<String>)> {
    let mut cursor = String::new();
    for _ in 0..PAGES_TO_THE_MIDDLE {
        let page = caller.ask("GET", &format!("/sandboxes?limit={PAGE_MAX}&sort=name:asc&cursor={cursor}"), "").await?;
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

/// How long from the start of the process, on a full database, to its first answer.
async fn starts(start: &Start<'_>, requests: &Requests) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let begun = Instant::now();
        let server = start.run()?;
        let requests = Rc::new(Requests { address: server.address.clone(), ..requests.clone() });
        Http1::connect(&requests).await?.call(load::Act::Get { object: 0 }).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

async fn measure_etcd(report: &mut Report, place: &Path) -> anyhow::Result<()> {
    let etcd = Etcd::start(place)?;
    let mut callers = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        callers.push(Grpc::connect(&etcd.address).await?);
    }
    load::fill(&mut callers, OBJECTS).await?;
    for (mix, name) in MIXES {
        for connections in CONNECTIONS {
            let seen = load::measure(&mut callers[..connections], mix, OBJECTS).await?;
            for database in ["sqlite", "postgres"] {
                let peer = |what: &str| format!("{name}_{what}_{database}_c{connections}");
                report.set_peer(&peer("rps"), "etcd", seen.rps);
                report.set_peer(&peer("p50_us"), "etcd", seen.p50_us);
                report.set_peer(&peer("p99_us"), "etcd", seen.p99_us);
            }
        }
    }
    Ok(())
}
