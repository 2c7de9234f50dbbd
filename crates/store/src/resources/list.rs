//! Lists: filters, four orders, and pages that show each object once while others come and go.

use super::counts;
use super::stored::{Stored, TABLE, select};
use crate::value::{Portion, Value};
use crate::{Error, Tx};
use std::fmt;
use std::str::FromStr;
use types::ids::WorkspaceId;
use types::parts::Status;
use types::{KindName, Timestamp};

/// Longest search text. Longer ones find nothing: SQLite refuses long patterns, and no object has
/// that much text to search.
const TEXT_BYTES_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    CreatedDesc,
    CreatedAsc,
    NameAsc,
    NameDesc,
}

/// Which objects to list.
#[derive(Debug, Clone)]
pub struct Query<'a> {
    pub workspace: &'a WorkspaceId,
    pub kind: KindName,
    /// Path of the enclosing objects; `None` for any. Lists at any path are sorted in memory, except
    /// for those of schedules by age.
    pub parent: Option<&'a str>,
    /// Statuses to list; empty for all.
    pub statuses: &'a [Status],
    pub hidden_statuses: &'a [Status],
    pub external_id: Option<&'a str>,
    /// Text to find anywhere in the search text.
    pub text: Option<&'a str>,
    /// Text to find in the stored wish. `_` and `%` in it act as wildcards.
    pub wish: Option<&'a str>,
    pub order: Order,
    /// Position after which to continue in this order.
    pub after: Option<Position>,
    pub limit: i64,
    /// True for the last page instead of the first.
    pub from_end: bool,
}

impl<'a> Query<'a> {
    /// Makes a query for everything below a path, newest first.
    pub fn new(workspace: &'a WorkspaceId, kind: KindName, parent: Option<&'a str>) -> Self {
        Self {
            workspace,
            kind,
            parent,
            statuses: &[],
            hidden_statuses: &[],
            external_id: None,
            text: None,
            wish: None,
            order: Order::CreatedDesc,
            after: None,
            limit: i64::MAX,
            from_end: false,
        }
    }
}

/// The position of an object in an order. Cursors contain its text form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    Age { created_at: Timestamp, id: String },
    Name { name: String, parent: String },
}

pub fn position(stored: &Stored, order: Order) -> Position {
    match order {
        Order::CreatedDesc | Order::CreatedAsc => {
            Position::Age { created_at: stored.created_at, id: stored.id.as_str().to_owned() }
        }
        Order::NameAsc | Order::NameDesc => {
            Position::Name { name: stored.name.clone(), parent: stored.parent.clone() }
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Age { created_at, id } => write!(f, "a:{}:{id}", created_at.ms()),
            // Names contain no colon, but with the length in front nothing depends on that.
            Self::Name { name, parent } => write!(f, "n:{}:{name}{parent}", name.len()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("not a position in a list")]
pub struct BadPosition;

impl FromStr for Position {
    type Err = BadPosition;

    fn from_str(text: &str) -> Result<Self, BadPosition> {
        let mut parts = text.splitn(3, ':');
        let (Some(sort), Some(number), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(BadPosition);
        };
        match sort {
            "a" => {
                let created_at = Timestamp::from_ms(number.parse().map_err(|_| BadPosition)?);
                Ok(Self::Age { created_at, id: rest.to_owned() })
            }
            "n" => {
                let length = number.parse().map_err(|_| BadPosition)?;
                let (name, parent) = rest.split_at_checked(length).ok_or(BadPosition)?;
                Ok(Self::Name { name: name.to_owned(), parent: parent.to_owned() })
            }
            _ => Err(BadPosition),
        }
    }
}

pub fn list(tx: &mut Tx<'_>, query: &Query<'_>) -> Result<Vec<Stored>, Error> {
    Ok(list_within(tx, query, usize::MAX)?.rows)
}

/// Returns the first objects of a list (or the last ones, if it is read from its end), as many as
/// have `bytes_max` in all, but at least one.
pub fn list_within(
    tx: &mut Tx<'_>,
    query: &Query<'_>,
    bytes_max: usize,
) -> Result<Portion<Stored>, Error> {
    let Some(mut statement) = Statement::new(query) else {
        return Ok(Portion { rows: Vec::new(), is_cut: false });
    };
    let sql = statement.page(query);
    let rows = tx.query_within(TABLE, &sql, &statement.params, bytes_max)?;
    let mut found = rows.try_map(Stored::try_from)?;
    if query.from_end {
        found.rows.reverse();
    }
    Ok(found)
}

/// Returns the number of objects on all pages of a list.
pub fn total(tx: &mut Tx<'_>, query: &Query<'_>) -> Result<i64, Error> {
    let whole_kind = query.parent.is_none_or(str::is_empty);
    let filtered = query.external_id.or(query.text).or(query.wish).is_some();
    if whole_kind && !filtered {
        let counts = counts::by_status(tx, query.workspace, query.kind)?;
        return Ok(counts
            .into_iter()
            .filter(|(status, _)| shows(query, status))
            .map(|(_, total)| total)
            .sum());
    }
    let Some(statement) = Statement::new(query) else {
        return Ok(0);
    };
    let sql = format!("SELECT COUNT(*) FROM resources WHERE {}", statement.conditions);
    tx.find(TABLE, &sql, &statement.params)?.map_or(Ok(0), |row| row.int(0))
}

fn shows(query: &Query<'_>, status: &str) -> bool {
    let among = |statuses: &[Status]| statuses.iter().any(|one| one.name() == status);
    (query.statuses.is_empty() || among(query.statuses)) && !among(query.hidden_statuses)
}

/// A statement under construction.
struct Statement {
    conditions: String,
    params: Vec<Value>,
}

impl Statement {
    /// Builds the conditions of a query without its page; `None` if it cannot find anything.
    fn new(query: &Query<'_>) -> Option<Self> {
        let mut statement =
            Self { conditions: "workspace_id = $1".into(), params: Vec::with_capacity(8) };
        statement.params.push(query.workspace.into());
        match query.parent {
            Some(parent) => {
                statement.and("kind = ", query.kind.name());
                statement.and("parent = ", parent);
            }
            // Written out, because otherwise the index of schedules would not be used.
            None => statement.conditions.push_str(&format!(" AND kind = '{}'", query.kind.name())),
        }
        if let Some(external_id) = query.external_id {
            statement.and("external_id = ", external_id);
        }
        statement.and_status("IN", query.statuses);
        statement.and_status("NOT IN", query.hidden_statuses);
        if let Some(text) = query.text {
            if text.len() > TEXT_BYTES_MAX {
                return None;
            }
            statement.and("search LIKE ", containing(text));
            statement.conditions.push_str(r" ESCAPE '\'");
        }
        if let Some(wish) = query.wish {
            statement.and("wish LIKE ", format!("%{wish}%"));
        }
        Some(statement)
    }

    /// Binds a value and returns its placeholder.
    fn bind(&mut self, value: impl Into<Value>) -> String {
        self.params.push(value.into());
        format!("${}", self.params.len())
    }

    fn and(&mut self, condition: &str, value: impl Into<Value>) {
        let name = self.bind(value);
        self.conditions.push_str(" AND ");
        self.conditions.push_str(condition);
        self.conditions.push_str(&name);
    }

    fn and_status(&mut self, operator: &str, statuses: &[Status]) {
        if statuses.is_empty() {
            return;
        }
        let names: Vec<_> = statuses.iter().map(|status| self.bind(status.name())).collect();
        self.conditions.push_str(&format!(" AND status {operator} ({})", names.join(", ")));
    }

    fn page(&mut self, query: &Query<'_>) -> String {
        let (columns, descending) = match query.order {
            Order::CreatedDesc => (["created_at", "id"], true),
            Order::CreatedAsc => (["created_at", "id"], false),
            // Names are unique below one path; otherwise the path tells them apart.
            Order::NameAsc => (["name", "parent"], false),
            Order::NameDesc => (["name", "parent"], true),
        };
        if let Some(after) = query.after.as_ref().filter(|_| !query.from_end) {
            let operator = if descending { '<' } else { '>' };
            let (of, first, second) = match after {
                Position::Age { created_at, id } => {
                    ("created_at, id", self.bind(*created_at), self.bind(id.as_str()))
                }
                Position::Name { name, parent } => {
                    ("name, parent", self.bind(name.as_str()), self.bind(parent.as_str()))
                }
            };
            self.conditions.push_str(&format!(" AND ({of}) {operator} ({first}, {second})"));
        }
        let direction = if descending != query.from_end { "DESC" } else { "ASC" };
        let order = columns.map(|column| format!("{column} {direction}")).join(", ");
        let limit = self.bind(query.limit);
        format!(
            concat!(select!("WHERE "), "{} ORDER BY {} LIMIT {}"),
            self.conditions, order, limit
        )
    }
}

/// Returns the pattern of all texts that contain this one.
pub(crate) fn containing(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 2);
    pattern.push('%');
    for character in text.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_search_finds_exactly_the_texts_that_contain_it(text in r"[a-c%_\\']{0,8}", part in r"[a-c%_\\']{0,3}") {
            let conn = rusqlite::Connection::open_in_memory().unwrap();
            let sql = r"SELECT ?1 LIKE ?2 ESCAPE '\'";
            let found: bool = conn.query_row(sql, [&text, &containing(&part)], |row| row.get(0)).unwrap();
            prop_assert_eq!(found, text.contains(&part));
        }
    }
}
