//! Pages of a list.

use super::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One page of a list, and where the next page begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub struct Page<T> {
    pub data: Vec<T>,
    pub meta: PaginationMeta,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PaginationMeta {
    pub has_more: bool,
    /// Cursor of the next page; empty on the last page.
    pub next_cursor: String,
    #[schemars(range(min = 0, max = limits::COUNT_MAX))]
    pub total: i64,
}
