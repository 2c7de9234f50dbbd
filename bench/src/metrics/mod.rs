//! Usage: questions over ten million hours, and how fast facts can be stored, on both databases.
//! Beside them the same hours in DuckDB and as plain rows in PostgreSQL.

mod facts;
mod hours;
mod peers;
mod shapes;

use crate::machine;
use crate::report::{Goal, Report};
use anyhow::ensure;
use hours::Town;
use peers::Peer;
use shapes::Shape;
use std::path::Path;
use std::time::Instant;
use store::{Settings, Store, Target};
use testing::Cluster;
use types::{Timestamp, World};

const PARTS: [&str; 4] = ["sqlite", "postgres", "duckdb", "rows"];
/// Rounds in which each question is asked once.
const ROUNDS: usize = 30;
/// Plain rows in PostgreSQL take seconds.
const ROUNDS_OF_ROWS: usize = 3;

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
    let place = tempfile::Builder::new().prefix("holm-bench-").tempdir()?;
    crate::api::open_to_the_database_user(place.path())?;
    let town = Town::new();
    let mut report = machine::begin(place.path()).await?;
    println!(
        "hours      {} of {} resources in 4 workspaces, a year",
        town.count(),
        hours::RESOURCES
    );
    let cluster = if chosen("postgres") || chosen("rows") {
        Some(Cluster::start(place.path())?)
    } else {
        None
    };
    let mut stores = Vec::new();
    if chosen("sqlite") {
        let file = place.path().join("holm.db");
        stores.push(("sqlite", open(place.path(), Target::Sqlite { file }).await?));
    }
    if let Some(cluster) = cluster.as_ref().filter(|_| chosen("postgres")) {
        println!("postgres   {}", cluster.version()?);
        stores
            .push(("postgres", open(place.path(), Target::Postgres { url: cluster.url() }).await?));
    }
    for (name, store) in &stores {
        facts::measure(&mut report, store, name).await?;
        let begun = Instant::now();
        town.fill(store).await?;
        report.add(
            format!("hours_per_s_{name}"),
            town.count() as f64 / begun.elapsed().as_secs_f64(),
            "1/s",
        );
    }
    let mut peers = Vec::new();
    if chosen("duckdb") || chosen("rows") {
        town.write_files(place.path())?;
    }
    if chosen("duckdb") {
        peers.push((Peer::duckdb(place.path())?, ROUNDS));
    }
    if let Some(cluster) = cluster.as_ref().filter(|_| chosen("rows")) {
        peers.push((Peer::postgres(place.path(), cluster)?, ROUNDS_OF_ROWS));
    }
    race(&mut report, &stores, &mut peers).await?;
    for (name, metric) in [
        ("query_p99_ms", "query_p99_ms_sqlite"),
        ("query_p50_ms", "query_p50_ms_sqlite"),
        ("facts_per_s", "facts_per_s_sqlite"),
    ] {
        report.alias(metric, name);
    }
    report.set_goal("query_p50_ms", Goal::AtMost(150.0));
    report.set_goal("query_p99_ms", Goal::AtMost(400.0));
    report.set_goal("facts_per_s", Goal::AtLeast(50_000.0));
    report.finish("metrics")
}

/// Opens the store with a clock that stands still at the end of the year in question.
async fn open(folder: &Path, target: Target) -> anyhow::Result<Store> {
    let world = World::new(|| Timestamp::from_ms(hours::END * hours::HOUR_MS), fastrand::fill);
    let settings = Settings::new(target, folder.join("keys"));
    Ok(Store::open(settings, world).await?)
}

/// Has all contenders answer each question in turns.
async fn race(
    report: &mut Report,
    stores: &[(&'static str, Store)],
    peers: &mut [(Peer, usize)],
) -> anyhow::Result<()> {
    let shapes = Shape::all();
    let mut times = shapes::Times::default();
    for round in 0..=ROUNDS {
        for shape in &shapes {
            for (name, store) in stores {
                let took = shape.ask(store).await?;
                // The first round warms up.
                times.add(name, shape, took, round > 0);
            }
            for (peer, rounds) in peers.iter_mut().filter(|(_, rounds)| round <= *rounds) {
                let took = peer.ask(shape)?;
                times.add(peer.name, shape, took, round > 0 && *rounds > 0);
            }
        }
    }
    times.tell(report, &shapes)
}
