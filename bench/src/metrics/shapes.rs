//! The questions.

use super::hours::{self, HOUR_MS};
use crate::report::{Goal, Report};
use crate::samples::Samples;
use anyhow::ensure;
use meter::{Filter, PriceBook, Question, Window};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use store::Store;
use types::Timestamp;
use types::usage::Dimension;
use types::wire::{GroupBy, Resolution};

const PAGE: usize = 100;

pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) days: i64,
    pub(crate) resolution: Resolution,
    pub(crate) group_by: Vec<GroupBy>,
    /// One resource by its name.
    pub(crate) resource: Option<String>,
    pub(crate) workspace: Option<String>,
    /// Whether the goals apply to it: 90 days daily by three dimensions.
    pub(crate) goal: bool,
}

impl Shape {
    pub(crate) fn all() -> Vec<Self> {
        use GroupBy::{BillingDimension, ResourceName, ResourceType, ResourceUuid, Workspace};
        use Resolution::{Daily, Hourly, Monthly, Weekly};
        let shape = |name, days, resolution, group_by: &[GroupBy]| Self {
            name,
            days,
            resolution,
            group_by: group_by.to_vec(),
            resource: None,
            workspace: None,
            goal: group_by.len() == 3 && days == 90,
        };
        vec![
            shape(
                "90d_workspace_type_dimension",
                90,
                Daily,
                &[Workspace, ResourceType, BillingDimension],
            ),
            shape(
                "90d_workspace_name_dimension",
                90,
                Daily,
                &[Workspace, ResourceName, BillingDimension],
            ),
            shape("90d_type_name_uuid", 90, Daily, &[ResourceType, ResourceName, ResourceUuid]),
            shape("90d_name", 90, Daily, &[ResourceName]),
            Self {
                workspace: Some("research".into()),
                ..shape("30d_workspace_name_of_one", 30, Daily, &[Workspace, ResourceName])
            },
            Self {
                resource: Some("resource-04711".into()),
                ..shape("90d_one_resource", 90, Daily, &[BillingDimension])
            },
            shape("7d_hourly_dimension", 7, Hourly, &[BillingDimension]),
            shape("7d_hourly_uuid", 7, Hourly, &[ResourceUuid]),
            shape("1y_weekly_workspace_name", 365, Weekly, &[Workspace, ResourceName]),
            shape("1y_monthly_total", 365, Monthly, &[]),
        ]
    }

    /// Returns the hours that it asks for: the last ones of the year.
    pub(crate) fn hours(&self) -> (i64, i64) {
        (hours::END - self.days * 24, hours::END)
    }

    pub(crate) async fn ask(&self, store: &Store) -> anyhow::Result<Duration> {
        let (first, end) = self.hours();
        let time = |hour: i64| Timestamp::from_ms(hour * HOUR_MS);
        let question = Question {
            account: hours::account(),
            window: Window { start: time(first), end: time(end) },
            resolution: self.resolution,
            group_by: self.group_by.clone(),
            filter: Filter {
                resource_name: self.resource.clone(),
                workspace: self.workspace.clone(),
                ..Filter::default()
            },
            limit: PAGE,
            after: None,
        };
        let prices = prices()?;
        let begun = Instant::now();
        let (asked, now) = (question.clone(), time(hours::END));
        let answer = store.read(move |tx| meter::answer(tx, &asked, &prices, now)).await?;
        let text = serde_json::to_vec(&answer.wire(&question, None))?;
        let took = begun.elapsed();
        ensure!(
            answer.total.cost > meter::Money::ZERO && !text.is_empty(),
            "nothing was answered to {}",
            self.name
        );
        Ok(took)
    }
}

/// Gives every dimension a price, and another one from a moment on that most windows contain.
fn prices() -> anyhow::Result<PriceBook> {
    let mut book = PriceBook::new();
    for dimension in Dimension::ALL {
        book.set(*dimension, Timestamp::from_ms(0), "0.0000115".parse()?);
        book.set(
            *dimension,
            Timestamp::from_ms((hours::END - 30 * 24 + 7) * HOUR_MS),
            "0.0000125".parse()?,
        );
    }
    Ok(book)
}

/// How long answers took, by contender and question.
#[derive(Default)]
pub(crate) struct Times(BTreeMap<(&'static str, &'static str), Samples>);

impl Times {
    pub(crate) fn add(&mut self, who: &'static str, shape: &Shape, took: Duration, counts: bool) {
        if counts {
            self.0.entry((who, shape.name)).or_default().add(took);
            let all = if shape.goal { "query" } else { "other" };
            self.0.entry((who, all)).or_default().add(took);
        }
    }

    pub(crate) fn tell(&self, report: &mut Report, shapes: &[Shape]) -> anyhow::Result<()> {
        for name in ["query"].into_iter().chain(shapes.iter().map(|shape| shape.name)) {
            for percent in [50, 99].into_iter().filter(|percent| *percent == 50 || name == "query")
            {
                for ours in ["sqlite", "postgres"] {
                    let Some(times) = self.0.get(&(ours, name)) else { continue };
                    let metric = format!("{name}_p{percent}_ms_{ours}");
                    report.add(metric.clone(), times.percentile_ms(percent)?, "ms");
                    for peer in ["duckdb", "postgres rows"] {
                        if let Some(times) = self.0.get(&(peer, name)) {
                            report.set_peer(&metric, peer, times.percentile_ms(percent)?);
                        }
                    }
                    if percent == 50 && name != "query" {
                        let ratio = format!("{name}_per_duckdb_{ours}");
                        report.add_ratio_to(&ratio, &metric, "duckdb", Goal::AtMost(0.7));
                    }
                }
            }
        }
        Ok(())
    }
}
