//! The same rows in other databases: in DuckDB, sorted by time, and in PostgreSQL, with an index by
//! time. One row for each hour of a resource, including everything that it is grouped by.
//!
//! They compute one page: the sums of the groups by step, in order. The sum over all groups, which
//! our answers also have, is left out, and so is sending the rows to the caller: the result stays
//! in the database.

use super::hours::{BEGIN, END};
use super::shapes::Shape;
use crate::peers::python_with;
use crate::running::{Running, Signal};
use anyhow::{Context as _, bail};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use testing::Cluster;
use types::wire::Resolution;

/// A program that runs one statement for each line that it reads, and answers with the time it took
/// in ms.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    _process: Running,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

const DUCKDB: &str = include_str!("duckdb.py");
const POSTGRES: &str = include_str!("postgres.py");

impl Peer {
    /// Starts DuckDB from PyPI, with its defaults, on a file.
    pub(crate) fn duckdb(folder: &Path) -> anyhow::Result<Self> {
        let python =
            python_with("duckdb-venv", &["duckdb"]).context("DuckDB cannot be had from PyPI")?;
        let mut peer =
            Self::start("duckdb", Command::new(python).arg("-c").arg(DUCKDB).arg(folder))?;
        peer.run(&load("read_csv('series.csv', names=['series','workspace','resource_type','resource_name','resource_uuid','billing_dimension'])",
            "read_csv('hours.csv', names=['series','hour','amount'])"))?;
        Ok(peer)
    }

    /// Starts Debian's PostgreSQL, with its defaults.
    pub(crate) fn postgres(folder: &Path, cluster: &Cluster) -> anyhow::Result<Self> {
        let mut peer = Self::start(
            "postgres rows",
            Command::new("python3").arg("-c").arg(POSTGRES).arg(folder).arg(cluster.url()),
        )?;
        peer.run("CREATE TABLE series (series BIGINT, workspace TEXT, resource_type TEXT, resource_name TEXT, resource_uuid TEXT, billing_dimension TEXT)")?;
        peer.run("CREATE TABLE hours (series BIGINT, hour BIGINT, amount BIGINT)")?;
        peer.run("\\copy series FROM 'series.csv' CSV")?;
        peer.run("\\copy hours FROM 'hours.csv' CSV")?;
        peer.run(&load("series", "hours"))?;
        peer.run("CREATE INDEX usage_by_time ON usage (hour)")?;
        peer.run("VACUUM ANALYZE usage")?;
        Ok(peer)
    }

    fn start(name: &'static str, command: &mut Command) -> anyhow::Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("a peer does not start")?;
        let questions = process.stdin.take().context("a peer listens")?;
        let answers = BufReader::new(process.stdout.take().context("a peer answers")?);
        let _process = Running::new(process, Signal::Kill);
        Ok(Self { name, _process, questions, answers })
    }

    pub(crate) fn ask(&mut self, shape: &Shape) -> anyhow::Result<Duration> {
        self.run(&sql(shape))
    }

    fn run(&mut self, sql: &str) -> anyhow::Result<Duration> {
        writeln!(self.questions, "{}", sql.replace('\n', " "))?;
        self.questions.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.trim().parse::<f64>() {
            Ok(ms) => Ok(Duration::from_secs_f64(ms / 1e3)),
            Err(_) => bail!("{} failed: {line}", self.name),
        }
    }
}

fn load(series: &str, hours: &str) -> String {
    format!(
        "CREATE TABLE usage AS SELECT s.*, h.hour, h.amount FROM {hours} h JOIN {series} s ON s.series = h.series ORDER BY h.hour"
    )
}

/// Returns one statement for the page of a question.
fn sql(shape: &Shape) -> String {
    let mut by: Vec<&str> = shape.group_by.iter().map(|by| by.name()).collect();
    if by.iter().any(|by| ["resource_name", "resource_uuid"].contains(by)) {
        // What our answers fill in as well.
        by.extend(
            ["workspace", "resource_type"]
                .into_iter()
                .filter(|implied| !by.contains(implied))
                .collect::<Vec<_>>(),
        );
    }
    let hours = match shape.resolution {
        Resolution::Hourly => 1,
        Resolution::Daily => 24,
        Resolution::Weekly => 7 * 24,
        // Months have equal lengths here, which is cheaper.
        Resolution::Monthly => 730,
    };
    let (first, end) = shape.hours();
    let mut filter = format!("hour >= {first} AND hour < {end}");
    for (column, wanted) in [("resource_name", &shape.resource), ("workspace", &shape.workspace)] {
        if let Some(wanted) = wanted {
            let _ = write!(filter, " AND {column} = '{wanted}'");
        }
    }
    let columns: String = by.iter().map(|by| format!("{by}, ")).collect();
    let steps = (end - first) / hours + 1;
    let change = END - 30 * 24 + 7;
    format!(
        "CREATE TEMP TABLE answer AS SELECT {columns} (hour - {BEGIN}) / {hours} * {hours} AS step,
         SUM(amount) AS usage, SUM(amount * CASE WHEN hour < {change} THEN 0.0000115 ELSE 0.0000125 END) AS cost
         FROM usage WHERE {filter} GROUP BY {columns} step ORDER BY {columns} step LIMIT {}",
        100 * steps
    )
    .replace("/ 1 * 1", "")
}
