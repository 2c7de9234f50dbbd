//! `holm usage export`: writes all usage in a time window to a file, with a row for each resource,
//! dimension and step that has some.

use super::ask::{self, Question, RESOLUTIONS, Scope};
use super::csv::Csv;
use super::file::{Form, form_of, part_of};
use super::parquet::Parquet;
use super::row::{Row, used};
use super::window::Window;
use crate::client::Client;
use crate::commands::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::output;
use crate::term;
use crate::world;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use types::Timestamp;
use types::time::DAY_MS;
use types::wire::AccountMetrics;

/// The finest grouping that one request can ask for; it determines the other columns, too.
const BY: &str = "resource_name,resource_uuid,billing_dimension";
/// The first Monday after 1970-01-01.
const MONDAY_MS: i64 = 4 * DAY_MS;

/// Writes all usage in a time window to a file
///
/// Has a row for each resource, billing dimension and step with usage, with the cost in US dollars.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// New file to write
    file: PathBuf,
    /// Format of the file; by default from the end of its name
    #[arg(long, value_enum)]
    format: Option<Form>,
    #[command(flatten)]
    window: Window,
    #[command(flatten)]
    scope: Scope,
    /// Length of the steps
    #[arg(long, value_parser = RESOLUTIONS, default_value = "daily")]
    resolution: String,
}

enum Writer {
    Csv(Box<Csv<BufWriter<File>>>),
    Parquet(Box<Parquet<BufWriter<File>>>),
}

pub(super) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let (from, to) = args.window.read(world::system().now())?;
    let form = form_of(args.format, &args.file)?;
    // An incomplete export never has the final name.
    let part = part_of(&args.file)?;
    let written = write(&args, form, (from, to), &part, &mut client).await;
    let rows = written.inspect_err(|_| {
        // If it cannot be removed, its name says that it is only a part.
        let _ = fs::remove_file(&part);
    })?;
    files::rename(&part, &args.file)
        .map_err(Error::io(format!("write {}", args.file.display())))?;
    term::say(format!("{} in {}", output::counted(rows, "row"), args.file.display()));
    Ok(Exit::Success)
}

async fn write(
    args: &Args,
    form: Form,
    (from, to): (Timestamp, Timestamp),
    part: &Path,
    client: &mut Client,
) -> Result<u64, Error> {
    let account = ask::account(&args.scope, client).await?;
    let mut writer = Writer::create(form, part)?;
    let bar = progress::share(to.since(from).unsigned_abs());
    let (mut start, mut rows) = (from, 0);
    while start < to {
        let end = next_end(start, to, &args.resolution);
        let question = Question {
            from: start,
            to: end,
            by: BY.to_owned(),
            resolution: Some(args.resolution.clone()),
            scope: args.scope.clone(),
        };
        let asked = ask::pages(&account, &question, client, |page| {
            rows += writer.page(&page)?;
            bar.set_message(format!("{rows} rows"));
            Ok(())
        });
        asked.await?;
        bar.set_position(end.since(from).unsigned_abs());
        start = end;
    }
    writer.finish()?;
    bar.finish_and_clear();
    Ok(rows)
}

/// Returns the end of the next request: as far as the server answers at once with this resolution,
/// and at the end of a step.
fn next_end(start: Timestamp, to: Timestamp, resolution: &str) -> Timestamp {
    let (longest, step, first) = match resolution {
        "hourly" => (7 * DAY_MS, DAY_MS / 24, 0),
        "daily" => (90 * DAY_MS, DAY_MS, 0),
        "weekly" => (364 * DAY_MS, 7 * DAY_MS, MONDAY_MS),
        _ => return to,
    };
    let end = start.plus_ms(longest).ms();
    Timestamp::from_ms(end - (end - first).rem_euclid(step)).min(to)
}

impl Writer {
    fn create(form: Form, part: &Path) -> Result<Self, Error> {
        let failed = || Error::io(format!("write {}", part.display()));
        let file = BufWriter::new(File::create(part).map_err(failed())?);
        Ok(match form {
            Form::Csv => Self::Csv(Box::new(Csv::begin(file).map_err(failed())?)),
            Form::Parquet => Self::Parquet(Box::new(Parquet::begin(file).map_err(failed())?)),
        })
    }

    /// Writes the rows of a page, and returns how many there were.
    fn page(&mut self, page: &AccountMetrics) -> Result<u64, Error> {
        let mut rows = 0;
        for entry in &page.data {
            for point in entry.timeseries.iter().filter(|point| used(point)) {
                let row = Row::of(entry, point);
                let written = match self {
                    Self::Csv(csv) => csv.row(&row),
                    Self::Parquet(parquet) => parquet.row(&row),
                };
                written.map_err(Error::io("write a row"))?;
                rows += 1;
            }
        }
        Ok(rows)
    }

    fn finish(self) -> Result<(), Error> {
        let finished = match self {
            Self::Csv(csv) => csv.finish(),
            Self::Parquet(parquet) => parquet.finish(),
        };
        let file = finished.map_err(Error::io("finish the file"))?;
        let file =
            file.into_inner().map_err(|error| Error::io("finish the file")(error.into_error()))?;
        file.sync_all().map_err(Error::io("finish the file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn windows(from: &str, to: &str, resolution: &str) -> Vec<String> {
        let (mut start, to) = (from.parse().unwrap(), to.parse().unwrap());
        let mut ends = Vec::new();
        while start < to {
            start = next_end(start, to, resolution);
            ends.push(start.to_string());
        }
        ends
    }

    #[test]
    fn questions_end_where_steps_do() {
        assert_eq!(
            windows("2026-04-01T00:30:00Z", "2026-04-10T00:00:00Z", "hourly"),
            ["2026-04-08T00:00:00.000Z", "2026-04-10T00:00:00.000Z"]
        );
        // A Monday.
        assert_eq!(
            windows("2026-01-01T00:00:00Z", "2027-06-01T00:00:00Z", "weekly")[0],
            "2026-12-28T00:00:00.000Z"
        );
        assert_eq!(windows("1990-01-01T00:00:00Z", "2027-06-01T00:00:00Z", "monthly").len(), 1);
    }

    proptest! {
        #[test]
        fn questions_are_short_enough_and_come_to_the_end(from in 0_i64..4_000_000_000_000, length in 1_i64..100_000_000_000, which in 0_usize..3) {
            let (resolution, days) = [("hourly", 7), ("daily", 90), ("weekly", 365)][which];
            let (mut start, to) = (Timestamp::from_ms(from), Timestamp::from_ms(from + length));
            while start < to {
                let end = next_end(start, to, resolution);
                prop_assert!(end > start && end.since(start) <= days * DAY_MS);
                start = end;
            }
            prop_assert_eq!(start, to);
        }
    }
}
