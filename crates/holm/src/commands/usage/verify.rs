//! `holm usage verify`: checks that the sums on which bills are based match the facts.

use super::window::Window;
use crate::commands::config::Place;
use crate::commands::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::output;
use crate::server::setup;
use crate::term::{self, Style};
use crate::world;
use meter::{Difference, Verified};
use store::Store;
use store::usage;
use types::Timestamp;
use types::time::DAY_MS;

const WEEK_MS: i64 = 7 * DAY_MS;
/// Most differences that are shown one by one.
const SHOWN_MAX: usize = 100;

/// Computes all usage again from the facts in the database, and compares
///
/// Needs the server's settings, and works while the server runs. Exits with 1 if there are
/// differences.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    window: Window,
    #[command(flatten)]
    place: Place,
}

pub(super) async fn run(args: Args) -> Result<Exit, Error> {
    let (from, to) = args.window.read(world::system().now())?;
    let config = args.place.load(&[])?;
    let failed = |source| Error::Store { act: "verify the usage".into(), source };
    let mut settings = config.store_settings();
    settings.reads_beside = true;
    setup::must_have_keys(&config)?;
    let store = Store::open(settings, world::system()).await.map_err(failed)?;
    let found = compare(&store, from, to).await.map_err(failed)?;
    if found.differ == 0 {
        let verdict = term::styled(Style::Good, "the sums say what the facts say");
        term::say(format!("{} hours of resources from {from} to {to}: {verdict}", found.hours));
        return Ok(Exit::Success);
    }
    term::say(table(&store, &found.differences).await.map_err(failed)?);
    term::note(format!("{} of {} hours of resources differ", found.differ, found.hours));
    Ok(Exit::Failed)
}

/// Compares week by week, to be able to show progress.
async fn compare(store: &Store, from: Timestamp, to: Timestamp) -> Result<Verified, store::Error> {
    let (bar, mut found) = (progress::share(to.since(from).unsigned_abs()), Verified::default());
    let mut start = from;
    while start < to {
        // Weeks end at the end of a day, so that no hour is compared twice.
        let end = Timestamp::from_ms((start.ms().div_euclid(WEEK_MS) + 1) * WEEK_MS).min(to);
        let week = meter::verify(store, meter::Window { start, end }).await?;
        found.hours += week.hours;
        found.differ += week.differ;
        found
            .differences
            .extend(week.differences.into_iter().take(SHOWN_MAX - found.differences.len()));
        bar.set_position(end.since(from).unsigned_abs());
        bar.set_message(format!("{} hours of resources", found.hours));
        start = end;
    }
    bar.finish_and_clear();
    Ok(found)
}

async fn table(store: &Store, differences: &[Difference]) -> Result<String, store::Error> {
    let heading = ["HOUR", "WORKSPACE", "BILLING DIMENSION", "RESOURCE", "BY FACTS", "BY SUMS"]
        .map(str::to_owned);
    let mut rows = Vec::new();
    for difference in differences.iter().cloned() {
        let (class, series) = (difference.class.id, difference.series);
        let work = move |tx: &mut store::Tx<'_>| {
            usage::read_series(tx, class, (series, series), None, None)
        };
        let named = store.read(work).await?;
        let name =
            named.first().map_or_else(|| series.to_string(), |series| term::harmless(&series.name));
        rows.push(vec![
            difference.hour.to_string(),
            term::harmless(&difference.class.workspace),
            difference.class.dimension.name().to_owned(),
            name,
            difference.by_facts.to_string(),
            difference.by_hours.to_string(),
        ]);
    }
    Ok(output::lines(&heading, rows.into_iter()))
}
