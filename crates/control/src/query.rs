//! Query parameters of lists.

use crate::error::{Error, Unfit};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use std::borrow::Cow;
use std::cmp::Ordering;
use types::parts::Status;

/// A boolean parameter. Published clients write `true`, `True` or `1`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" => Ok(Self(true)),
            "false" | "0" | "no" | "" => Ok(Self(false)),
            _ => Err(de::Error::custom("must be true or false")),
        }
    }
}

impl JsonSchema for Flag {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Flag".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "boolean", "default": false})
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
pub enum Sort {
    #[default]
    #[serde(rename = "createdAt:desc")]
    CreatedDesc,
    #[serde(rename = "createdAt:asc")]
    CreatedAsc,
    #[serde(rename = "name:asc")]
    NameAsc,
    #[serde(rename = "name:desc")]
    NameDesc,
}

/// The order of lists that are sorted by age only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
pub enum AgeSort {
    #[default]
    #[serde(rename = "createdAt:desc")]
    CreatedDesc,
    #[serde(rename = "createdAt:asc")]
    CreatedAsc,
}

/// The order of lists that are sorted by name only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
pub enum NameSort {
    #[default]
    #[serde(rename = "name:asc")]
    Ascending,
    #[serde(rename = "name:desc")]
    Descending,
}

impl NameSort {
    pub fn compare(self, one: &str, other: &str) -> Ordering {
        match self {
            Self::Ascending => one.cmp(other),
            Self::Descending => other.cmp(one),
        }
    }
}

impl From<AgeSort> for Sort {
    fn from(sort: AgeSort) -> Self {
        match sort {
            AgeSort::CreatedDesc => Self::CreatedDesc,
            AgeSort::CreatedAsc => Self::CreatedAsc,
        }
    }
}

impl From<Sort> for store::resources::Order {
    fn from(sort: Sort) -> Self {
        match sort {
            Sort::CreatedDesc => Self::CreatedDesc,
            Sort::CreatedAsc => Self::CreatedAsc,
            Sort::NameAsc => Self::NameAsc,
            Sort::NameDesc => Self::NameDesc,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Anchor {
    /// The last page.
    End,
}

/// How many items a page has, by default and at most.
#[derive(Debug, Clone, Copy)]
pub struct PageSize {
    pub default: i64,
    pub max: i64,
}

/// The page size of most lists.
pub const PAGE: PageSize = PageSize { default: 50, max: 200 };
/// The page size of executions and schedules.
pub const SMALL_PAGE: PageSize = PageSize { default: 20, max: 100 };

/// Longest id that a caller may give to an object, in characters.
const EXTERNAL_ID_MAX: usize = 64;

/// What a list may be asked for.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListQuery {
    /// Items of a page, at most 200: more counts as 200.
    #[schemars(range(min = 1))]
    pub limit: Option<i64>,
    /// Where to go on: `meta.nextCursor` of the page before.
    pub cursor: Option<String>,
    #[serde(default)]
    pub sort: Sort,
    /// Text that names, display names or labels contain.
    #[schemars(length(max = 200))]
    pub q: Option<String>,
    /// `end` jumps to the last page.
    pub anchor: Option<Anchor>,
    /// Statuses, separated by commas.
    pub status: Option<String>,
    /// The caller's own id.
    #[schemars(length(max = "EXTERNAL_ID_MAX"))]
    pub external_id: Option<String>,
    /// Lists terminated objects too. `status` wins over it.
    #[serde(default)]
    pub show_terminated: Flag,
}

impl ListQuery {
    /// Returns the text to search for. Clients send an empty one for none.
    pub fn text(&self) -> Result<Option<String>, Error> {
        match self.q.as_deref().map(str::trim) {
            None | Some("") => Ok(None),
            Some(text) if (2..=200).contains(&text.chars().count()) => {
                Ok(Some(text.to_lowercase()))
            }
            Some(_) => Err(Unfit::SearchText.into()),
        }
    }

    /// Returns the external id to look for.
    pub fn external_id(&self) -> Result<Option<String>, Error> {
        match self.external_id.as_deref() {
            None => Ok(None),
            Some(id) if id.chars().count() <= EXTERNAL_ID_MAX => Ok(Some(id.to_owned())),
            Some(_) => Err(Unfit::ExternalId { max: EXTERNAL_ID_MAX }.into()),
        }
    }

    /// Returns whether only objects of some statuses are asked for.
    pub fn names_statuses(&self) -> bool {
        self.status.as_deref().is_some_and(|list| !list.is_empty())
    }

    /// Returns the statuses asked for: `None` for any, an empty list if nothing can match.
    pub fn statuses(&self) -> Result<Option<Vec<Status>>, Error> {
        let Some(list) = self.status.as_deref().filter(|_| self.names_statuses()) else {
            return Ok(None);
        };
        let mut statuses = Vec::new();
        for name in list.split(',').map(str::trim) {
            match Status::parse(&name.to_ascii_uppercase()) {
                Some(status) => statuses.push(status),
                // Clients know this status, although no object ever has it.
                None if name.eq_ignore_ascii_case("TERMINATING") => {}
                None => {
                    let known = Status::ALL.map(Status::name).join(", ");
                    return Err(Unfit::Status { known }.into());
                }
            }
        }
        Ok(Some(statuses))
    }

    pub fn size(&self, page: PageSize) -> Result<i64, Error> {
        match self.limit {
            None => Ok(page.default),
            Some(limit) if limit >= 1 => Ok(limit.min(page.max)),
            Some(_) => Err(Unfit::PageSize.into()),
        }
    }
}
