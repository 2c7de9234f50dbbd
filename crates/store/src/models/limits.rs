//! Accounts of limits on models, and how much of them each server holds.
//!
//! By granting, `used` and everything `held` of an account never exceed its amount: to grant, a
//! server locks the account's row and sees what all others hold. To use or give back what it holds,
//! a server only needs its own row.

use super::{ledgers, read_word, usage, written};
use crate::usage::{insert, pieces};
use crate::{Error, Row, Tx, Value, params};
use std::collections::BTreeMap;
use types::Timestamp;
use types::model_books::{Batch, Beginning, LimitAccount, SUM_MAX, Standing, Want};

const LIMITS: &str = "model_limits";
const GRANTS: &str = "model_grants";
/// How long a ledger's unmet request for more counts.
const WANTED_MS: i64 = 5_000;

/// SQL condition for the row of an account, using `$1` to `$5`.
const ACCOUNT: &str =
    "limit_id = $1 AND measure = $2 AND subject = $3 AND starts_at = $4 AND ends_at = $5";

/// Returns where a ledger resumes after a start, and what it holds.
pub fn begin(tx: &mut Tx<'_>, ledger: &str) -> Result<Beginning, Error> {
    let (number, position) = ledgers::begin(tx, ledger)?;
    let now = tx.world().now();
    let sql = "SELECT limit_id, measure, subject, starts_at, ends_at, held FROM model_grants
               WHERE ledger = $1 AND held > 0 AND ends_at > $2
               ORDER BY limit_id, measure, subject, starts_at";
    let held = tx.query(GRANTS, sql, params![ledger, now])?;
    let held =
        held.iter().map(|row| Ok((account(row)?, row.int(5)?))).collect::<Result<_, Error>>()?;
    Ok(Beginning { number, position, held })
}

/// Takes a batch in once, and answers its wants in order. A repeated batch gets answers too.
pub fn keep(tx: &mut Tx<'_>, batch: &Batch) -> Result<Vec<Standing>, Error> {
    let is_new = ledgers::note(tx, batch)?;
    let used: &[(LimitAccount, i64)] = if is_new { &batch.used } else { &[] };
    let wanted = batch.wants.iter().map(|want| (&want.account, 0));
    add_used(tx, &sums(used.iter().map(|(account, used)| (account, *used)).chain(wanted)))?;
    if is_new {
        let gone = batch.used.iter().chain(&batch.given_back);
        let gone = sums(gone.map(|(account, amount)| (account, *amount)));
        take_off(tx, &batch.ledger, &gone)?;
        usage::add(tx, &batch.usage)?;
    }
    batch.wants.iter().map(|want| grant(tx, &batch.ledger, want)).collect()
}

fn key(account: &LimitAccount) -> Result<Vec<Value>, Error> {
    Ok(vec![
        account.limit.as_str().into(),
        written(LIMITS, &account.measure)?.into(),
        account.subject.as_str().into(),
        account.starts_at.into(),
        account.ends_at.into(),
    ])
}

/// Adds up the amounts of each account. They are in the same order everywhere, so that two servers
/// do not deadlock.
fn sums<'b>(
    amounts: impl Iterator<Item = (&'b LimitAccount, i64)>,
) -> BTreeMap<&'b LimitAccount, i64> {
    let mut sums = BTreeMap::new();
    for (account, amount) in amounts {
        let sum: &mut i64 = sums.entry(account).or_default();
        *sum = sum.saturating_add(amount).clamp(0, SUM_MAX);
    }
    sums
}

fn rows(sums: &BTreeMap<&LimitAccount, i64>) -> Result<Vec<Vec<Value>>, Error> {
    let row = |(account, amount): (&&LimitAccount, &i64)| {
        let mut values = key(account)?;
        values.push((*amount).into());
        Ok(values)
    };
    sums.iter().map(row).collect()
}

/// Adds to the used amounts, which locks the accounts' rows until the end of the transaction.
fn add_used(tx: &mut Tx<'_>, used: &BTreeMap<&LimitAccount, i64>) -> Result<(), Error> {
    let clash = format!(
        "ON CONFLICT (limit_id, measure, subject, starts_at, ends_at) DO UPDATE SET
             used = CASE WHEN model_limits.used > {SUM_MAX} THEN model_limits.used
                 ELSE model_limits.used + excluded.used END"
    );
    let into = "model_limits (limit_id, measure, subject, starts_at, ends_at, used)";
    insert(tx, into, &clash, &rows(used)?)
}

fn take_off(
    tx: &mut Tx<'_>,
    ledger: &str,
    gone: &BTreeMap<&LimitAccount, i64>,
) -> Result<(), Error> {
    const COLUMNS: usize = 6;
    // Databases know the types of columns that are written, but not of those that are compared.
    let place = |row: usize| {
        let first = row * COLUMNS + 1;
        let number = |column| format!("CAST(${} AS BIGINT)", first + column);
        let [starts_at, ends_at, amount] = [3, 4, 5].map(number);
        format!("(${first}, ${}, ${}, {starts_at}, {ends_at}, {amount})", first + 1, first + 2)
    };
    for piece in pieces(&rows(gone)?, COLUMNS) {
        let places: Vec<_> = (0..piece.len()).map(place).collect();
        let sql = format!(
            "WITH gone (limit_id, measure, subject, starts_at, ends_at, amount) AS (VALUES {})
             UPDATE model_grants SET held = CASE WHEN held > gone.amount THEN held - gone.amount ELSE 0 END
             FROM gone WHERE model_grants.limit_id = gone.limit_id AND model_grants.measure = gone.measure
                 AND model_grants.subject = gone.subject AND model_grants.starts_at = gone.starts_at
                 AND model_grants.ends_at = gone.ends_at AND ledger = ${}",
            places.join(", "),
            piece.len() * COLUMNS + 1
        );
        let mut values = piece.concat();
        values.push(ledger.into());
        tx.execute(&sql, &values)?;
    }
    Ok(())
}

/// Grants a ledger what it wants, as far as the account allows. The account's row must be locked.
fn grant(tx: &mut Tx<'_>, ledger: &str, want: &Want) -> Result<Standing, Error> {
    let sql = format!(
        "SELECT used,
             COALESCE((SELECT held FROM model_grants WHERE {ACCOUNT} AND ledger = $6), 0),
             COALESCE((SELECT CAST(SUM(held) AS BIGINT) FROM model_grants WHERE {ACCOUNT} AND ledger <> $6), 0)
         FROM model_limits WHERE {ACCOUNT}"
    );
    let mut values = key(&want.account)?;
    values.push(ledger.into());
    let row = tx.find(LIMITS, &sql, &values)?;
    let row = row.ok_or_else(|| Error::corrupt(LIMITS, &want.account.limit, "it is gone"))?;
    let (used, held, elsewhere) = (row.int(0)?, row.int(1)?, row.int(2)?);
    let spare = want.amount.saturating_sub(used).saturating_sub(elsewhere).saturating_sub(held);
    let held = held + want.hold.saturating_sub(held).min(spare).max(0);
    let sql = "INSERT INTO model_grants
                   (limit_id, measure, subject, starts_at, ends_at, ledger, held, wanted_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
               ON CONFLICT (limit_id, measure, subject, starts_at, ends_at, ledger)
               DO UPDATE SET held = excluded.held, wanted_at = excluded.wanted_at";
    let now = tx.world().now();
    let wanted_at = (held < want.hold && elsewhere > 0).then_some(now);
    values.extend([held.into(), wanted_at.into()]);
    tx.execute(sql, &values)?;
    Ok(Standing { account: want.account.clone(), used, held, elsewhere })
}

/// Returns the accounts of which a ledger holds some while other ledgers got less than they need,
/// each with the first such ledger by name. Windows that are over do not count.
pub fn asked_for(tx: &mut Tx<'_>, ledger: &str) -> Result<Vec<(LimitAccount, String)>, Error> {
    let sql = "SELECT g.limit_id, g.measure, g.subject, g.starts_at, g.ends_at, MIN(o.ledger) FROM model_grants g
               JOIN model_grants o ON o.limit_id = g.limit_id AND o.measure = g.measure
                   AND o.subject = g.subject AND o.starts_at = g.starts_at AND o.ends_at = g.ends_at
               WHERE g.ledger = $1 AND g.held > 0 AND g.ends_at > $3 AND o.ledger <> $1 AND o.wanted_at > $2
               GROUP BY g.limit_id, g.measure, g.subject, g.starts_at, g.ends_at";
    let now = tx.world().now();
    let asked = tx.query(GRANTS, sql, params![ledger, now.plus_ms(-WANTED_MS), now])?;
    asked.iter().map(|row| Ok((account(row)?, row.text(5)?))).collect()
}

fn account(row: &Row) -> Result<LimitAccount, Error> {
    Ok(LimitAccount {
        limit: row.text(0)?,
        measure: read_word(LIMITS, &row.text(1)?)?,
        subject: row.text(2)?,
        starts_at: row.time(3)?,
        ends_at: row.time(4)?,
    })
}

/// Deletes windows that ended before a time. What a server that is gone for good held of them is
/// deleted with them; until then it counts as used.
pub fn trim_limits(tx: &mut Tx<'_>, before: Timestamp, limit: i64) -> Result<u64, Error> {
    let sql = "DELETE FROM model_grants WHERE (limit_id, measure, subject, starts_at, ends_at, ledger) IN (
                   SELECT limit_id, measure, subject, starts_at, ends_at, ledger FROM model_grants
                   WHERE ends_at < $1 LIMIT $2)";
    let grants = tx.execute(sql, params![before, limit])?;
    let sql = "DELETE FROM model_limits WHERE (limit_id, measure, subject, starts_at, ends_at) IN (
                   SELECT limit_id, measure, subject, starts_at, ends_at FROM model_limits
                   WHERE ends_at < $1 LIMIT $2)";
    Ok(grants + tx.execute(sql, params![before, limit])?)
}
