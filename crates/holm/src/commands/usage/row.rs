//! The rows of an export: one for each resource, dimension and step that has usage.

use types::Timestamp;
use types::wire::{AccountMetricsDataEntry, AccountMetricsPoint};

/// One row of the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row<'e> {
    pub(super) start: Timestamp,
    pub(super) workspace: &'e str,
    pub(super) resource_type: &'e str,
    pub(super) resource_name: &'e str,
    pub(super) resource_uuid: &'e str,
    pub(super) billing_dimension: &'e str,
    pub(super) usage: f64,
    pub(super) cost: f64,
}

impl<'e> Row<'e> {
    pub(super) fn of(entry: &'e AccountMetricsDataEntry, point: &AccountMetricsPoint) -> Self {
        let text = |member: &'e Option<String>| member.as_deref().unwrap_or_default();
        Self {
            start: point.timestamp,
            workspace: text(&entry.workspace),
            resource_type: text(&entry.resource_type),
            resource_name: text(&entry.resource_name),
            resource_uuid: text(&entry.resource_uuid),
            billing_dimension: text(&entry.billing_dimension),
            usage: point.usage.unwrap_or_default(),
            cost: point.cost,
        }
    }
}

/// Whether anything was used in a step.
pub(super) fn used(point: &AccountMetricsPoint) -> bool {
    point.cost != 0.0 || point.usage.is_some_and(|usage| usage != 0.0)
}
