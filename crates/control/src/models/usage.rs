//! Answers to questions about the usage of models.

use store::models::{Question, UsageRow};
use store::{Error, Tx};
use types::Timestamp;
use types::ids::WorkspaceId;
use types::model_books::UsageSum;
use types::time::HOUR_MS;
use types::wire::{ModelUsage, ModelUsageBy, ModelUsageEntry, ModelUsageResolution};

/// Most rows of one answer.
pub const ROWS_MAX: usize = 10_000;
const DAY_HOURS: i64 = 24;

/// A question about usage. Hours that lie only partly in the window count as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuestion {
    pub workspace: WorkspaceId,
    /// Only usage of this model.
    pub model: Option<String>,
    pub start: Timestamp,
    pub end: Timestamp,
    /// Has no duplicates.
    pub group_by: Vec<ModelUsageBy>,
    pub resolution: ModelUsageResolution,
}

/// Returns the usage, or `None` if it has more than [`ROWS_MAX`] rows.
pub fn answer(tx: &mut Tx<'_>, asked: &UsageQuestion) -> Result<Option<ModelUsage>, Error> {
    let first = asked.start.ms().div_euclid(HOUR_MS);
    let end = asked.end.ms().saturating_add(HOUR_MS - 1).div_euclid(HOUR_MS);
    let question = Question {
        workspace: asked.workspace.clone(),
        model: asked.model.clone(),
        first,
        end,
        group_by: asked.group_by.clone(),
        step: match asked.resolution {
            ModelUsageResolution::Hourly => Some(1),
            ModelUsageResolution::Daily => Some(DAY_HOURS),
            ModelUsageResolution::Total => None,
        },
        rows_max: ROWS_MAX as i64 + 1,
    };
    let rows = store::models::usage(tx, &question)?;
    if rows.len() > ROWS_MAX {
        return Ok(None);
    }
    let mut total = UsageSum::default();
    rows.iter().for_each(|row| total.add(&row.sum));
    Ok(Some(ModelUsage {
        start: Timestamp::from_ms(first.saturating_mul(HOUR_MS)),
        end: Timestamp::from_ms(end.saturating_mul(HOUR_MS)),
        resolution: asked.resolution,
        group_by: asked.group_by.clone(),
        data: rows.into_iter().map(|row| entry(row, &asked.group_by)).collect(),
        total: total.into(),
    }))
}

fn entry(row: UsageRow, group_by: &[ModelUsageBy]) -> ModelUsageEntry {
    let mut entry = ModelUsageEntry {
        timestamp: Timestamp::from_ms(row.hour.saturating_mul(HOUR_MS)),
        sum: row.sum.into(),
        ..ModelUsageEntry::default()
    };
    for (by, name) in group_by.iter().zip(row.group) {
        let member = match by {
            ModelUsageBy::Model => &mut entry.model,
            ModelUsageBy::Key => &mut entry.key,
            ModelUsageBy::EndUser => &mut entry.end_user,
            ModelUsageBy::Tag => &mut entry.tag,
            ModelUsageBy::Provider => &mut entry.provider,
            ModelUsageBy::ProviderModel => &mut entry.provider_model,
        };
        *member = Some(name);
    }
    entry
}
