//! Usage as a table: a line for each group, with a chart of its cost over the time window.

use super::ask::{self, Question};
use super::figures::{bar, chart, grouped, money};
use crate::client::Client;
use crate::commands::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::term::{self, Style};
use crate::world;
use types::wire::{AccountMetrics, AccountMetricsDataEntry, GroupBy, Resolution};

const NOTHING: &str = "-";

pub(super) async fn run(args: super::Args, mut client: Client) -> Result<Exit, Error> {
    let (from, to) = args.window.read(world::system().now())?;
    let account = ask::account(&args.scope, &mut client).await?;
    let question =
        Question { from, to, by: args.by, resolution: args.resolution, scope: args.scope };
    let spinner = progress::spinner("adding up");
    let mut all = AccountMetrics::default();
    let asked = ask::pages(&account, &question, &mut client, |page| {
        let before = std::mem::take(&mut all.data);
        all = page;
        all.data.splice(0..0, before);
        Ok(())
    });
    let answered = asked.await;
    spinner.finish_and_clear();
    answered?;
    match args.output {
        Format::Table => table(&all, &question.by),
        format => {
            #[expect(clippy::expect_used, reason = "its maps have text keys only")]
            let item = |entry| serde_json::to_value(entry).expect("an entry is JSON");
            let items: Vec<_> = all.data.iter().map(item).collect();
            term::say(output::plain(&items, format));
        }
    }
    Ok(Exit::Success)
}

fn table(all: &AccountMetrics, by: &str) {
    let dimensions: Vec<_> = by.split(',').filter_map(|name| GroupBy::parse(name.trim())).collect();
    let with_usage = dimensions.contains(&GroupBy::BillingDimension);
    let mut heading: Vec<_> =
        dimensions.iter().map(|dimension| dimension.name().to_uppercase()).collect();
    heading.extend(["COST", "SHARE"].map(str::to_owned));
    if with_usage {
        heading.push("USAGE".to_owned());
    }
    heading.push(step(all.resolution).to_owned());
    let mut entries: Vec<_> = all.data.iter().collect();
    entries.sort_by(|one, other| other.summary.cost.total_cmp(&one.summary.cost));
    let rows = entries.iter().map(|entry| {
        let cell = |dimension: &GroupBy| {
            term::harmless(member(entry, *dimension)).replace(['\n', '\t'], " ")
        };
        let mut row: Vec<_> = dimensions.iter().map(cell).collect();
        row.push(money(entry.summary.cost));
        row.push(bar(entry.summary.cost, all.summary.total_cost));
        if with_usage {
            row.push(usage(entry));
        }
        row.push(chart(&entry.timeseries.iter().map(|point| point.cost).collect::<Vec<_>>()));
        row
    });
    if entries.is_empty() {
        term::note("nothing was used");
    } else {
        term::say(output::lines(&heading, rows));
    }
    let total = term::styled(Style::Bold, money(all.summary.total_cost));
    term::say(format!("{} to {}: {total}", all.start_time, all.end_time));
}

const fn step(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::Hourly => "BY HOUR",
        Resolution::Daily => "BY DAY",
        Resolution::Weekly => "BY WEEK",
        Resolution::Monthly => "BY MONTH",
    }
}

fn member(entry: &AccountMetricsDataEntry, dimension: GroupBy) -> &str {
    let value = match dimension {
        GroupBy::Workspace => &entry.workspace,
        GroupBy::ResourceType => &entry.resource_type,
        GroupBy::ResourceName => &entry.resource_name,
        GroupBy::ResourceUuid => &entry.resource_uuid,
        GroupBy::BillingDimension => &entry.billing_dimension,
    };
    value.as_deref().filter(|text| !text.is_empty()).unwrap_or(NOTHING)
}

/// Formats usage with its unit, which is the last part of the dimension's name.
fn usage(entry: &AccountMetricsDataEntry) -> String {
    let unit = match entry.billing_dimension.as_deref().and_then(|name| name.rsplit('_').next()) {
        Some("gbs") => " GB s",
        Some("hours") => " h",
        _ => "",
    };
    entry
        .summary
        .usage
        .map_or_else(|| NOTHING.to_owned(), |usage| format!("{}{unit}", grouped(usage, 3)))
}
