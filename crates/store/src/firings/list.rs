//! Lists of firings, in pages.

use super::{ACCEPTED, Firing, Outcome, Submission, TABLE};
use crate::resources::containing;
use crate::value::Value;
use crate::{Error, Row, Tx};
use types::Timestamp;
use types::ids::{ResourceId, WorkspaceId};

/// Longer lists are not counted to their end.
pub const TOTAL_MAX: i64 = 100_000;

/// Whose firings to list.
#[derive(Debug, Clone, Copy)]
pub enum Of<'a> {
    Sandbox(&'a ResourceId),
    Workspace(&'a WorkspaceId),
}

/// Which firings to list.
#[derive(Debug, Clone)]
pub struct Query<'a> {
    pub of: Of<'a>,
    pub schedule: Option<&'a str>,
    pub submission: Option<Submission>,
    /// Text to find anywhere in the names of the schedule and the process, ignoring case.
    pub text: Option<&'a str>,
    /// Earliest and latest time of creation.
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub oldest_first: bool,
    /// Position after which to continue in this order.
    pub after: Option<(Timestamp, &'a str)>,
    pub limit: i64,
}

impl<'a> Query<'a> {
    /// Makes a query for everything, newest first.
    pub fn new(of: Of<'a>) -> Self {
        Self {
            of,
            schedule: None,
            submission: None,
            text: None,
            since: None,
            until: None,
            oldest_first: false,
            after: None,
            limit: i64::MAX,
        }
    }
}

pub fn list(tx: &mut Tx<'_>, query: &Query<'_>) -> Result<Vec<Firing>, Error> {
    let mut statement = Statement::new(query);
    let (operator, direction) = if query.oldest_first { ('>', "ASC") } else { ('<', "DESC") };
    if let Some((time, id)) = query.after {
        let (time, id) = (statement.bind(time), statement.bind(id));
        statement.and(&format!("(created_at, id) {operator} ({time}, {id})"));
    }
    let limit = statement.bind(query.limit);
    let sql = format!(
        "SELECT id, (SELECT name FROM resources WHERE resources.id = sandbox_id), schedule, created_at, timeout_s,
                executed_at, process_name, status_code, error
         FROM schedule_firings WHERE {} ORDER BY created_at {direction}, id {direction} LIMIT {limit}",
        statement.conditions
    );
    tx.query(TABLE, &sql, &statement.params)?.iter().map(read).collect()
}

/// Returns how many firings are on all pages of a list, or [`TOTAL_MAX`] if there are more.
pub fn count(tx: &mut Tx<'_>, query: &Query<'_>) -> Result<i64, Error> {
    let mut statement = Statement::new(query);
    let limit = statement.bind(TOTAL_MAX);
    let sql = format!(
        "SELECT COUNT(*) FROM (SELECT 1 FROM schedule_firings WHERE {} LIMIT {limit}) counted",
        statement.conditions
    );
    tx.find(TABLE, &sql, &statement.params)?.map_or(Ok(0), |row| row.int(0))
}

/// A statement under construction.
struct Statement {
    conditions: String,
    params: Vec<Value>,
}

impl Statement {
    /// Builds the conditions of a query without its page.
    fn new(query: &Query<'_>) -> Self {
        let mut statement = Self { conditions: String::new(), params: Vec::with_capacity(8) };
        statement.conditions = match query.of {
            Of::Sandbox(id) => format!("sandbox_id = {}", statement.bind(id)),
            Of::Workspace(id) => format!("workspace_id = {}", statement.bind(id)),
        };
        if let Some(schedule) = query.schedule {
            let schedule = statement.bind(schedule);
            statement.and(&format!("schedule = {schedule}"));
        }
        let (first, last) = (ACCEPTED.start(), ACCEPTED.end());
        match query.submission {
            None => {}
            Some(Submission::Accepted) => {
                statement.and(&format!("status_code BETWEEN {first} AND {last}"));
            }
            Some(Submission::Refused) => {
                statement.and(&format!("status_code NOT BETWEEN {first} AND {last}"));
            }
        }
        if let Some(text) = query.text {
            let text = statement.bind(containing(&text.to_lowercase()));
            statement.and(&format!(
                r"(LOWER(schedule) LIKE {text} ESCAPE '\' OR LOWER(process_name) LIKE {text} ESCAPE '\')"
            ));
        }
        for (operator, time) in [(">=", query.since), ("<=", query.until)] {
            if let Some(time) = time {
                let time = statement.bind(time);
                statement.and(&format!("created_at {operator} {time}"));
            }
        }
        statement
    }

    /// Binds a value and returns its placeholder.
    fn bind(&mut self, value: impl Into<Value>) -> String {
        self.params.push(value.into());
        format!("${}", self.params.len())
    }

    fn and(&mut self, condition: &str) {
        self.conditions.push_str(" AND ");
        self.conditions.push_str(condition);
    }
}

fn read(row: &Row) -> Result<Firing, Error> {
    let outcome = match row.opt_time(5)? {
        None => None,
        Some(executed_at) => Some(Outcome {
            executed_at,
            process_name: row.opt_text(6)?,
            status_code: row.opt_int(7)?.unwrap_or(0),
            error: row.opt_text(8)?,
        }),
    };
    let (id, sandbox, schedule) = (row.text(0)?, row.text(1)?, row.text(2)?);
    Ok(Firing {
        id,
        sandbox,
        schedule,
        created_at: row.time(3)?,
        timeout_s: row.opt_int(4)?,
        outcome,
    })
}
