//! Pages of lists. One row more than asked for is read, which tells whether there is another page;
//! a signed cursor says where that page begins.

use crate::context::Context;
use crate::cursor::CursorKey;
use crate::error::BadCursor;
use std::fmt;
use std::str::FromStr;
use types::Timestamp;
use types::parts::{Page, PaginationMeta};

/// Cuts one list into pages. Its cursors are valid only for the same list with the same filters.
pub struct Pager<'p> {
    cursors: &'p CursorKey,
    /// Identifies the list and its filters.
    list: String,
    now: Timestamp,
}

impl<'p> Pager<'p> {
    pub fn new(context: &'p Context, list: String) -> Self {
        Self { cursors: &context.control.cursors, list, now: context.world().now() }
    }

    /// Returns the position after which a page begins.
    pub fn after<P: FromStr>(&self, cursor: Option<&str>) -> Result<Option<P>, BadCursor> {
        let Some(cursor) = cursor else { return Ok(None) };
        let position = self.cursors.open(&self.list, cursor, self.now)?;
        position.parse().map(Some).map_err(|_| BadCursor::OtherRelease)
    }

    /// Makes a page of rows that were read with a limit of `limit + 1`.
    pub fn page<T, P: fmt::Display>(
        &self,
        mut rows: Vec<T>,
        limit: i64,
        total: i64,
        position: impl Fn(&T) -> P,
    ) -> Page<T> {
        let limit = size(limit);
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| has_more);
        let meta = self.meta(last.map(position), total);
        Page { data: rows, meta }
    }

    /// Makes a page of these rows, which others follow.
    pub fn page_before_more<T, P: fmt::Display>(
        &self,
        rows: Vec<T>,
        total: i64,
        position: impl Fn(&T) -> P,
    ) -> Page<T> {
        let meta = self.meta(rows.last().map(position), total);
        Page { data: rows, meta }
    }

    /// Makes only the metadata of a page, with `next` as the position at which the next page
    /// begins.
    pub fn meta<P: fmt::Display>(&self, next: Option<P>, total: i64) -> PaginationMeta {
        let cursor = |position: P| self.cursors.sign(&self.list, &position.to_string(), self.now);
        PaginationMeta {
            has_more: next.is_some(),
            next_cursor: next.map(cursor).unwrap_or_default(),
            total,
        }
    }
}

/// Converts a page size, which was checked before.
#[expect(clippy::expect_used, reason = "a page size is 1 to some hundreds, which was checked")]
pub fn size(limit: i64) -> usize {
    usize::try_from(limit).expect("a page size")
}

/// A position in a list ordered by time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimePosition {
    pub at: Timestamp,
    pub id: String,
}

impl fmt::Display for TimePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.at.ms(), self.id)
    }
}

impl FromStr for TimePosition {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let (time, id) = text.split_once(':').ok_or(BadCursor::OtherRelease)?;
        let ms = time.parse().map_err(|_| BadCursor::OtherRelease)?;
        Ok(Self { at: Timestamp::from_ms(ms), id: id.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_back_as_it_was_written() {
        let position = TimePosition { at: Timestamp::from_ms(17), id: "exec_a:b".into() };
        assert_eq!(position.to_string().parse(), Ok(position));
        assert_eq!("17".parse::<TimePosition>(), Err(BadCursor::OtherRelease));
        assert_eq!("x:y".parse::<TimePosition>(), Err(BadCursor::OtherRelease));
    }
}
