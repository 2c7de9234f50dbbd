//! A year of usage: ten thousand resources, each used for a thousand hours of it.

use anyhow::Context as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use store::usage::{self, Added};
use store::{Error, Store};
use types::Timestamp;
use types::ids::AccountId;
use types::usage::Dimension;

pub(crate) const RESOURCES: usize = 10_000;
pub(crate) const HOUR_MS: i64 = 3_600_000;
/// 1 January 2026, and a year later, in hours since 1970.
pub(crate) const BEGIN: i64 = 490_896;
pub(crate) const END: i64 = BEGIN + 365 * 24;
const WORKSPACES: [&str; 4] = ["main", "staging", "research", "agents"];
/// Eight hours on 125 days of the year.
const DAYS_USED: u64 = 125;
const SEED: u64 = 7;

/// One resource in one dimension.
struct Resource {
    workspace: &'static str,
    dimension: Dimension,
    name: String,
    uuid: String,
    first_hour: i64,
    amount: i64,
}

pub(crate) struct Town {
    resources: Vec<Resource>,
    /// Resource, hour and amount, by day.
    days: Vec<Vec<(usize, i64, i64)>>,
}

pub(crate) fn account() -> AccountId {
    AccountId::known("acc_bench")
}

impl Town {
    pub(crate) fn new() -> Self {
        let mut rng = fastrand::Rng::with_seed(SEED);
        let resource = |number: usize| Resource {
            workspace: WORKSPACES[number % 4],
            dimension: Dimension::ALL[number / 4 % Dimension::ALL.len()],
            name: format!("resource-{number:05}"),
            uuid: format!("res_{:016x}", fastrand::Rng::with_seed(number as u64).u64(..)),
            first_hour: (number % 16) as i64,
            amount: 2048 * HOUR_MS,
        };
        let resources: Vec<_> = (0..RESOURCES).map(resource).collect();
        let mut days = Vec::new();
        for day in 0..365 {
            let mut rows = Vec::new();
            for (number, resource) in resources.iter().enumerate() {
                if rng.u64(..365) >= DAYS_USED {
                    continue;
                }
                for hour in 0..8 {
                    // Nothing begins or ends on the hour.
                    let part = if hour == 0 || hour == 7 { rng.i64(1..HOUR_MS) } else { HOUR_MS };
                    let hour = BEGIN + day * 24 + resource.first_hour + hour;
                    rows.push((number, hour, resource.amount / HOUR_MS * part));
                }
            }
            days.push(rows);
        }
        Self { resources, days }
    }

    pub(crate) fn count(&self) -> usize {
        self.days.iter().map(Vec::len).sum()
    }

    /// Adds all hours as the intake does, day by day, and packs them as time goes by.
    pub(crate) async fn fill(&self, store: &Store) -> anyhow::Result<()> {
        let mut series = Vec::new();
        for resources in self.resources.chunks(1000) {
            let wanted: Vec<_> = resources
                .iter()
                .map(|resource| {
                    (
                        resource.workspace,
                        resource.dimension,
                        resource.name.clone(),
                        resource.uuid.clone(),
                    )
                })
                .collect();
            series.extend(
                store
                    .write(move |tx| {
                        let find = |(workspace, dimension, name, uuid): &(
                            &str,
                            Dimension,
                            String,
                            String,
                        )| {
                            let class = usage::class(tx, &account(), workspace, *dimension)?;
                            Ok::<_, Error>((class, usage::find_series(tx, class, name, uuid)?))
                        };
                        wanted.iter().map(find).collect::<Result<Vec<_>, _>>()
                    })
                    .await?,
            );
        }
        for (day, rows) in self.days.iter().enumerate() {
            let added = |(number, hour, amount): &(usize, i64, i64)| {
                let (class, series) = series[*number];
                Added { class, hour: *hour, series, amount: *amount }
            };
            for rows in rows.chunks(10_000) {
                let rows: Vec<_> = rows.iter().map(added).collect();
                store.write(move |tx| usage::add_hours(tx, &rows)).await?;
            }
            let now = (BEGIN + (day as i64 + 1) * 24 + 2) * HOUR_MS;
            meter::pack(store, Timestamp::from_ms(now)).await?;
        }
        Ok(())
    }

    /// Writes the same rows to files, for peers.
    pub(crate) fn write_files(&self, folder: &Path) -> anyhow::Result<()> {
        let create = |name: &str| {
            File::create(folder.join(name)).map(BufWriter::new).context("the rows are written")
        };
        let mut file = create("series.csv")?;
        for (number, resource) in self.resources.iter().enumerate() {
            let Resource { workspace, dimension, name, uuid, .. } = resource;
            writeln!(
                file,
                "{number},{workspace},{},{name},{uuid},{dimension}",
                dimension.resource_type()
            )?;
        }
        file.flush()?;
        let mut file = create("hours.csv")?;
        for (number, hour, amount) in self.days.iter().flatten() {
            writeln!(file, "{number},{hour},{amount}")?;
        }
        Ok(file.flush()?)
    }
}
