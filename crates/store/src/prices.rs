//! Prices of each billing dimension, and the times from which they apply.
//!
//! A version only states what changes with it: a dimension that it does not name keeps its price.
//! Versions that have begun cannot change, so that what was billed stays as it was billed.

use crate::{Error, Row, Tx, params};
use std::collections::BTreeMap;
use types::Timestamp;
use types::ids::AccountId;

const TABLE: &str = "price_versions";
/// Account id in the rows that apply to all accounts.
const INSTALLATION: &str = "";

/// Prices in US dollars by billing dimension, as decimal texts.
pub type Prices = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub valid_from: Timestamp,
    pub prices: Prices,
}

/// Stores the installation's initial prices, unless there are some. They apply to all usage until
/// an account has prices of its own. Returns whether they were stored.
pub fn seed(tx: &mut Tx<'_>, prices: &Prices) -> Result<bool, Error> {
    if tx
        .find(
            TABLE,
            "SELECT valid_from FROM price_versions WHERE account_id = $1",
            params![INSTALLATION],
        )?
        .is_some()
    {
        return Ok(false);
    }
    let sql = "INSERT INTO price_versions (account_id, valid_from, prices, created_at, created_by)
               VALUES ($1, 0, $2, $3, 'system') ON CONFLICT DO NOTHING";
    let now = tx.world().now();
    Ok(tx.execute(sql, params![INSTALLATION, written(prices)?, now])? == 1)
}

/// Lists all versions that apply to an account, oldest first.
pub fn list(tx: &mut Tx<'_>, account: &AccountId) -> Result<Vec<Version>, Error> {
    let sql = "SELECT account_id, valid_from, prices FROM price_versions WHERE account_id = $1 OR account_id = $2
               ORDER BY valid_from, account_id";
    tx.query(TABLE, sql, params![INSTALLATION, account])?.iter().map(read).collect()
}

/// Replaces the account's versions that begin at or after `now` by `coming`. Versions that have
/// begun stay.
pub fn replace_coming(
    tx: &mut Tx<'_>,
    account: &AccountId,
    coming: &[Version],
    by: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let sql = "DELETE FROM price_versions WHERE account_id = $1 AND valid_from >= $2";
    tx.execute(sql, params![account, now])?;
    let sql = "INSERT INTO price_versions (account_id, valid_from, prices, created_at, created_by)
               VALUES ($1, $2, $3, $4, $5)";
    for version in coming {
        tx.execute(sql, params![account, version.valid_from, written(&version.prices)?, now, by])?;
    }
    Ok(())
}

fn written(prices: &Prices) -> Result<String, Error> {
    serde_json::to_string(prices).map_err(|error| Error::corrupt(TABLE, "new", error))
}

fn read(row: &Row) -> Result<Version, Error> {
    let prices = serde_json::from_str(&row.text(2)?);
    let prices =
        prices.map_err(|error| Error::corrupt(TABLE, row.text(0).unwrap_or_default(), error))?;
    Ok(Version { valid_from: row.time(1)?, prices })
}
