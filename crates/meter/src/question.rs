//! Questions about usage, and their answers.

use crate::money::{Money, Quantity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use types::Timestamp;
use types::ids::AccountId;
use types::time::HOUR_MS;
use types::usage::{Dimension, ResourceType};
use types::wire::{
    AccountMetrics, AccountMetricsDataEntry, AccountMetricsMeta, AccountMetricsPoint,
    AccountMetricsSummary, EntrySummary, GroupBy, Resolution,
};

/// The time from `start` up to, but not including, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub start: Timestamp,
    pub end: Timestamp,
}

impl Window {
    /// Returns the hours that the window touches, counted from 1970: the first, and the one after
    /// the last.
    pub(crate) fn hours(self) -> (i64, i64) {
        let first = self.start.ms().div_euclid(HOUR_MS);
        (first, self.end.ms().saturating_add(HOUR_MS - 1).div_euclid(HOUR_MS).max(first))
    }
}

/// What usage has to belong to. With nothing set, all usage counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The workspaces that the caller may know of. Other workspaces add to no number.
    pub within: Option<BTreeSet<String>>,
    pub workspace: Option<String>,
    pub resource_type: Option<ResourceType>,
    pub resource_name: Option<String>,
    pub resource_uuid: Option<String>,
    pub dimension: Option<Dimension>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub account: AccountId,
    pub window: Window,
    pub resolution: Resolution,
    /// In any order, without duplicates.
    pub group_by: Vec<GroupBy>,
    pub filter: Filter,
    /// Most groups on a page.
    pub limit: usize,
    /// The last group of the page before.
    pub after: Option<Key>,
}

/// Identifies a group, and orders groups: members as [`GroupBy`] lists them. A member has a value
/// if usage is split by it, or if another member implies it: a name implies its workspace and type,
/// an id all of these, a dimension its type.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub workspace: Option<String>,
    pub resource_type: Option<String>,
    pub resource_name: Option<String>,
    pub resource_uuid: Option<String>,
    pub dimension: Option<String>,
}

/// One page of groups, and the sums of all pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub total: Sums,
    pub entries: Vec<Entry>,
    /// Where the steps of all series begin, by the calendar in UTC. The first may begin before the
    /// window.
    pub steps: Vec<Timestamp>,
    /// The group after which the next page begins.
    pub next: Option<Key>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub sums: Sums,
    /// One sum for each step.
    pub series: Vec<Sums>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    pub cost: Money,
    pub usage: Quantity,
}

impl std::ops::AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.cost += other.cost;
        self.usage += other.usage;
    }
}

impl Answer {
    /// Returns the wire form. `next_cursor` is [`Answer::next`] in the form that callers are given.
    pub fn wire(&self, question: &Question, next_cursor: Option<String>) -> AccountMetrics {
        let units_are_known = question.group_by.contains(&GroupBy::BillingDimension);
        let usage = |sums: &Sums| units_are_known.then(|| sums.usage.units());
        let point = |(timestamp, sums): (&Timestamp, &Sums)| AccountMetricsPoint {
            timestamp: *timestamp,
            cost: sums.cost.dollars(),
            usage: usage(sums),
        };
        let entry = |entry: &Entry| AccountMetricsDataEntry {
            workspace: entry.key.workspace.clone(),
            resource_type: entry.key.resource_type.clone(),
            resource_name: entry.key.resource_name.clone(),
            resource_uuid: entry.key.resource_uuid.clone().filter(|uuid| !uuid.is_empty()),
            billing_dimension: entry.key.dimension.clone(),
            summary: EntrySummary { cost: entry.sums.cost.dollars(), usage: usage(&entry.sums) },
            timeseries: self.steps.iter().zip(&entry.series).map(point).collect(),
        };
        AccountMetrics {
            start_time: question.window.start,
            end_time: question.window.end,
            resolution: question.resolution,
            summary: AccountMetricsSummary {
                total_cost: self.total.cost.dollars(),
                total_usage: usage(&self.total),
            },
            data: self.entries.iter().map(entry).collect(),
            meta: AccountMetricsMeta {
                has_more: next_cursor.is_some(),
                next_cursor: next_cursor.unwrap_or_default(),
            },
        }
    }
}
