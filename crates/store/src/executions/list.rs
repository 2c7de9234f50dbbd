//! Lists of a job's executions, in pages.

use super::{Execution, TABLE, read, select};
use crate::resources::{Order, Position, containing};
use crate::{Error, Tx, Value};
use types::ids::WorkspaceId;

/// Selects executions of a job.
#[derive(Debug, Clone)]
pub struct Query<'a> {
    pub workspace: &'a WorkspaceId,
    pub job: &'a str,
    /// Text to find anywhere in the names, ignoring case.
    pub text: Option<&'a str>,
    pub order: Order,
    /// Position after which to continue in this order.
    pub after: Option<Position>,
    pub offset: i64,
    pub limit: i64,
}

impl Execution {
    /// Returns its position in an order.
    pub fn position(&self, order: Order) -> Position {
        match order {
            Order::CreatedDesc | Order::CreatedAsc => {
                Position::Age { created_at: self.created_at, id: self.id.as_str().to_owned() }
            }
            Order::NameAsc | Order::NameDesc => {
                Position::Name { name: self.name.clone(), parent: String::new() }
            }
        }
    }
}

// PostgreSQL needs the cast, because it cannot infer the type of a value that is only compared with
// null.
const CONDITIONS: &str = r"workspace_id = $1 AND job = $2 AND kind = 'job' AND (CAST($3 AS TEXT) IS NULL OR LOWER(name) LIKE CAST($3 AS TEXT) ESCAPE '\')";

fn conditions(query: &Query<'_>) -> [Value; 3] {
    [
        query.workspace.into(),
        query.job.into(),
        query.text.map(|text| containing(&text.to_lowercase())).into(),
    ]
}

pub fn list(tx: &mut Tx<'_>, query: &Query<'_>) -> Result<Vec<Execution>, Error> {
    let mut params = conditions(query).to_vec();
    let (columns, descending) = match query.order {
        Order::CreatedDesc => ("created_at, id", true),
        Order::CreatedAsc => ("created_at, id", false),
        Order::NameAsc => ("name", false),
        Order::NameDesc => ("name", true),
    };
    let (operator, direction) = if descending { ('<', "DESC") } else { ('>', "ASC") };
    params.extend([query.limit.into(), query.offset.into()]);
    let mut after = String::new();
    match &query.after {
        None => {}
        Some(Position::Age { created_at, id }) => {
            params.extend([(*created_at).into(), id.as_str().into()]);
            after = format!("AND (created_at, id) {operator} ($6, $7)");
        }
        Some(Position::Name { name, .. }) => {
            params.push(name.as_str().into());
            after = format!("AND name {operator} $6");
        }
    }
    let order = columns
        .split(", ")
        .map(|column| format!("{column} {direction}"))
        .collect::<Vec<_>>()
        .join(", ");
    let sql = format!(
        concat!(select!("WHERE "), "{} {} ORDER BY {} LIMIT $4 OFFSET $5"),
        CONDITIONS, after, order
    );
    tx.query(TABLE, &sql, &params)?.iter().map(read).collect()
}

/// How many executions a list has on all its pages.
pub fn count(tx: &mut Tx<'_>, query: &Query<'_>) -> Result<i64, Error> {
    let sql = format!("SELECT COUNT(*) FROM executions WHERE {}", CONDITIONS);
    tx.find(TABLE, &sql, &conditions(query))?.map_or(Ok(0), |row| row.int(0))
}
