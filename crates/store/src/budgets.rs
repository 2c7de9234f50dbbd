//! Budgets per calendar month, and the thresholds that were reached.

use crate::{Error, Row, Tx, params};
use types::Timestamp;
use types::ids::{AccountId, BudgetId};

const TABLE: &str = "budgets";
const CROSSINGS: &str = "budget_crossings";
/// Columns of a budget, in the order of [`read`].
const COLUMNS: &str =
    "id, account_id, name, workspace, amount, thresholds, hard_limit, webhook_url, webhook_secret,
    version, created_at, updated_at, created_by, updated_by, exhausted_until";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub id: BudgetId,
    pub account: AccountId,
    pub name: String,
    /// Name of the workspace the budget is for; `None` for the whole account.
    pub workspace: Option<String>,
    /// US dollars, as a decimal text.
    pub amount: String,
    /// Percentages of the amount at which the webhook is called.
    pub thresholds: Vec<i64>,
    /// True if new work is refused once the amount is spent.
    pub hard_limit: bool,
    pub webhook: Option<Webhook>,
    /// Rises with each change by the owner; set by this module.
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub created_by: String,
    pub updated_by: String,
    pub exhausted_until: Option<Timestamp>,
}

/// The address that is called when a threshold is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub url: String,
    /// Sealed in the context `budgets/<id>`.
    pub secret: String,
}

/// A threshold of a budget that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    /// Beginning of the month.
    pub period: Timestamp,
    /// Percentage of the amount.
    pub threshold: i64,
    /// The budget's amount when the threshold was reached.
    pub amount: String,
    pub spent: String,
    pub crossed_at: Timestamp,
}

/// Inserts a budget. Returns [`Error::Duplicate`] if the account has one with this name.
pub fn insert(tx: &mut Tx<'_>, budget: &Budget) -> Result<(), Error> {
    let sql = format!(
        "INSERT INTO budgets ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1, $10, $11, $12, $13, $14)"
    );
    let Budget { created_at, updated_at, .. } = *budget;
    tx.execute(
        &sql,
        params![
            &budget.id,
            &budget.account,
            budget.name.as_str(),
            budget.workspace.as_deref(),
            budget.amount.as_str(),
            thresholds_text(&budget.thresholds),
            budget.hard_limit,
            budget.webhook.as_ref().map(|webhook| webhook.url.as_str()),
            budget.webhook.as_ref().map(|webhook| webhook.secret.as_str()),
            created_at,
            updated_at,
            budget.created_by.as_str(),
            budget.updated_by.as_str(),
            budget.exhausted_until,
        ],
    )?;
    Ok(())
}

/// Saves the owner's changes, unless the row has changed since it was read.
pub fn update(tx: &mut Tx<'_>, budget: &Budget) -> Result<(), Error> {
    let sql = "UPDATE budgets SET workspace = $3, amount = $4, thresholds = $5, hard_limit = $6, webhook_url = $7,
                   webhook_secret = $8, updated_at = $9, updated_by = $10, version = version + 1
               WHERE id = $1 AND version = $2";
    let done = tx.execute(
        sql,
        params![
            &budget.id,
            budget.version,
            budget.workspace.as_deref(),
            budget.amount.as_str(),
            thresholds_text(&budget.thresholds),
            budget.hard_limit,
            budget.webhook.as_ref().map(|webhook| webhook.url.as_str()),
            budget.webhook.as_ref().map(|webhook| webhook.secret.as_str()),
            budget.updated_at,
            budget.updated_by.as_str(),
        ],
    )?;
    fresh(done, budget)
}

/// Saves until when the budget counts as spent; `None` if it does not. Fails if the owner has
/// changed the budget since it was read.
pub fn set_exhausted(
    tx: &mut Tx<'_>,
    budget: &Budget,
    until: Option<Timestamp>,
) -> Result<(), Error> {
    let sql = "UPDATE budgets SET exhausted_until = $3 WHERE id = $1 AND version = $2";
    let done = tx.execute(sql, params![&budget.id, budget.version, until])?;
    fresh(done, budget)
}

fn fresh(done: u64, budget: &Budget) -> Result<(), Error> {
    match done {
        1 => Ok(()),
        _ => Err(Error::Stale { what: format!("the budget `{}`", budget.name) }),
    }
}

pub fn find(tx: &mut Tx<'_>, account: &AccountId, name: &str) -> Result<Option<Budget>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM budgets WHERE account_id = $1 AND name = $2");
    tx.find(TABLE, &sql, params![account, name])?.as_ref().map(read).transpose()
}

/// Finds a budget like [`find`], and locks it until this transaction ends.
pub fn lock(tx: &mut Tx<'_>, account: &AccountId, name: &str) -> Result<Option<Budget>, Error> {
    let sql = tx.locking("SELECT id FROM budgets WHERE account_id = $1 AND name = $2").into_owned();
    tx.find(TABLE, &sql, params![account, name])?;
    find(tx, account, name)
}

/// Lists the budgets of an account, by name.
pub fn list(tx: &mut Tx<'_>, account: &AccountId) -> Result<Vec<Budget>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM budgets WHERE account_id = $1 ORDER BY name");
    tx.query(TABLE, &sql, params![account])?.iter().map(read).collect()
}

/// Lists up to `limit` budgets of all accounts that follow one of them.
pub fn all(tx: &mut Tx<'_>, after: Option<&BudgetId>, limit: i64) -> Result<Vec<Budget>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM budgets WHERE id > $1 ORDER BY id LIMIT $2");
    let after = after.map_or("", |id| id.as_str());
    tx.query(TABLE, &sql, params![after, limit])?.iter().map(read).collect()
}

pub fn count(tx: &mut Tx<'_>, account: &AccountId) -> Result<i64, Error> {
    let sql = "SELECT COUNT(*) FROM budgets WHERE account_id = $1";
    tx.find(TABLE, sql, params![account])?.map_or(Ok(0), |row| row.int(0))
}

/// Removes a budget with its crossings. Returns whether there was one.
pub fn delete(tx: &mut Tx<'_>, budget: &BudgetId) -> Result<bool, Error> {
    tx.execute("DELETE FROM budget_crossings WHERE budget_id = $1", params![budget])?;
    Ok(tx.execute("DELETE FROM budgets WHERE id = $1", params![budget])? > 0)
}

/// Returns the name of a spent budget with a hard limit, which therefore refuses new work in a
/// workspace.
pub fn exhausted(
    tx: &mut Tx<'_>,
    account: &AccountId,
    workspace: &str,
    now: Timestamp,
) -> Result<Option<String>, Error> {
    let sql = "SELECT name FROM budgets
               WHERE account_id = $1 AND exhausted_until > $2 AND (workspace IS NULL OR workspace = $3)
               ORDER BY name LIMIT 1";
    tx.find(TABLE, sql, params![account, now, workspace])?.map(|row| row.text(0)).transpose()
}

/// Records that a threshold was reached. Returns true for exactly one caller: the first to record
/// it sends the notification.
pub fn cross(tx: &mut Tx<'_>, budget: &BudgetId, crossing: &Crossing) -> Result<bool, Error> {
    let sql =
        "INSERT INTO budget_crossings (budget_id, period, threshold, amount, spent, crossed_at)
               VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
    let done = tx.execute(
        sql,
        params![
            budget,
            crossing.period,
            crossing.threshold,
            crossing.amount.as_str(),
            crossing.spent.as_str(),
            crossing.crossed_at,
        ],
    )?;
    Ok(done == 1)
}

/// Forgets a crossing, so that the same threshold of a different amount is reported again.
pub fn uncross(tx: &mut Tx<'_>, budget: &BudgetId, crossing: &Crossing) -> Result<(), Error> {
    let sql = "DELETE FROM budget_crossings WHERE budget_id = $1 AND period = $2 AND threshold = $3 AND amount = $4";
    tx.execute(
        sql,
        params![budget, crossing.period, crossing.threshold, crossing.amount.as_str()],
    )?;
    Ok(())
}

/// Lists the thresholds that were reached in a month, lowest first.
pub fn crossings(
    tx: &mut Tx<'_>,
    budget: &BudgetId,
    period: Timestamp,
) -> Result<Vec<Crossing>, Error> {
    let sql = "SELECT period, threshold, amount, spent, crossed_at FROM budget_crossings
               WHERE budget_id = $1 AND period = $2 ORDER BY threshold";
    let read = |row: &Row| {
        let (amount, spent) = (row.text(2)?, row.text(3)?);
        Ok(Crossing {
            period: row.time(0)?,
            threshold: row.int(1)?,
            amount,
            spent,
            crossed_at: row.time(4)?,
        })
    };
    tx.query(CROSSINGS, sql, params![budget, period])?.iter().map(read).collect()
}

/// Forgets up to `limit` crossings of months that began before a time.
pub fn trim(tx: &mut Tx<'_>, before: Timestamp, limit: i64) -> Result<u64, Error> {
    let sql = "DELETE FROM budget_crossings WHERE (budget_id, period, threshold) IN (
                   SELECT budget_id, period, threshold FROM budget_crossings WHERE period < $1 LIMIT $2)";
    tx.execute(sql, params![before, limit])
}

fn thresholds_text(thresholds: &[i64]) -> String {
    let texts: Vec<_> = thresholds.iter().map(ToString::to_string).collect();
    format!("[{}]", texts.join(","))
}

fn read(row: &Row) -> Result<Budget, Error> {
    let id = BudgetId::known(row.text(0)?);
    let thresholds = serde_json::from_str(&row.text(5)?);
    let thresholds = thresholds.map_err(|error| Error::corrupt(TABLE, id.as_str(), error))?;
    let webhook = match (row.opt_text(7)?, row.opt_text(8)?) {
        (Some(url), Some(secret)) => Some(Webhook { url, secret }),
        (None, None) => None,
        _ => {
            return Err(Error::corrupt(TABLE, id.as_str(), "a webhook is an address and a secret"));
        }
    };
    Ok(Budget {
        id,
        account: AccountId::known(row.text(1)?),
        name: row.text(2)?,
        workspace: row.opt_text(3)?,
        amount: row.text(4)?,
        thresholds,
        hard_limit: row.flag(6)?,
        webhook,
        version: row.int(9)?,
        created_at: row.time(10)?,
        updated_at: row.time(11)?,
        created_by: row.text(12)?,
        updated_by: row.text(13)?,
        exhausted_until: row.opt_time(14)?,
    })
}
