//! Usage as a table: a line for each group, with a chart of its cost over the time window.

use super::ask::{self, Question};
use crate::client::Client;
use crate::commands::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::term::{self, Style};
use crate::world;
use types::wire::{AccountMetrics, AccountMetricsDataEntry, GroupBy, Resolution};

/// Width of the chart in columns.
const CHART: usize = 32;
/// Characters for heights of a column, from nothing to the highest.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Width of the bar that shows a share.
const BAR: usize = 10;
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

/// Formats US dollars: with cents, or with more decimals if cents would show nothing.
pub(super) fn money(cost: f64) -> String {
    let decimals = if cost == 0.0 || cost.abs() >= 1.0 { 2 } else { 6 };
    format!("${}", grouped(cost, decimals))
}

/// Formats a number with separators between thousands.
pub(super) fn grouped(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut spaced = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            spaced.push(',');
        }
        spaced.push(digit);
    }
    format!("{sign}{spaced}{rest}")
}

/// Formats a share as a bar and in percent.
pub(super) fn bar(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
    let filled = (share * BAR as f64).round() as usize;
    format!("{}{} {:>3.0}%", "█".repeat(filled), "░".repeat(BAR - filled), share * 100.0)
}

/// Draws costs over time. If there are more steps than columns, several steps share a column and
/// are added up.
fn chart(costs: &[f64]) -> String {
    let columns = costs.len().clamp(1, CHART);
    let mut sums = vec![0.0; columns];
    for (index, cost) in costs.iter().enumerate() {
        if let Some(sum) = sums.get_mut(index * columns / costs.len()) {
            *sum += cost.max(0.0);
        }
    }
    let highest = sums.iter().copied().fold(0.0, f64::max);
    let height = |sum: f64| if highest > 0.0 { (sum / highest * 8.0).ceil() as usize } else { 0 };
    sums.into_iter().filter_map(|sum| HEIGHTS.get(height(sum))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_chart_is_as_high_as_its_highest_step() {
        assert_eq!(chart(&[0.0, 1.0, 4.0, 8.0]), " ▁▄█");
        assert_eq!(chart(&[0.0, 0.0]), "  ");
        assert_eq!(chart(&[]), " ");
        assert_eq!(chart(&[1.0; 3200]).chars().count(), CHART);
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [money(0.0), money(0.000_012), money(1_234_567.891)],
            ["$0.00", "$0.000012", "$1,234,567.89"]
        );
        assert_eq!(grouped(-1234.5, 1), "-1,234.5");
        assert_eq!(bar(1.0, 4.0), "███░░░░░░░  25%");
        assert_eq!(bar(0.0, 0.0), "░░░░░░░░░░   0%");
    }

    proptest! {
        #[test]
        fn any_course_is_drawn(costs in proptest::collection::vec(-1e12..1e12_f64, 0..400)) {
            prop_assert_eq!(chart(&costs).chars().count(), costs.len().clamp(1, CHART));
        }
    }
}
