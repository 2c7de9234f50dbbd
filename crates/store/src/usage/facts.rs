//! Facts, each stored once, and kept for as long as its life.

use super::{pieces, places};
use crate::{Error, Row, Tx, Value, params};
use std::collections::BTreeSet;
use types::instance::Stamp;

const TABLE: &str = "usage_facts";
const COLUMNS: &str = "id, life_id, number, at, kind, amount, boot, mono";

/// A stored fact. Only the crate `meter` knows what kind and amount mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactRow {
    pub id: String,
    pub life: i64,
    pub number: i64,
    pub at: i64,
    pub kind: i64,
    pub amount: i64,
    pub stamp: Option<Stamp>,
}

/// The outcome of storing facts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Met {
    /// Ids of facts that were not known before.
    pub new: BTreeSet<String>,
    /// Ids of facts that are already stored with different content, which stays.
    pub conflicts: Vec<String>,
}

/// Stores facts that are not known yet. The list must not contain an id twice.
pub fn insert_facts(tx: &mut Tx<'_>, facts: &[FactRow]) -> Result<Met, Error> {
    let mut facts: Vec<&FactRow> = facts.iter().collect();
    // Two servers that write the same facts in the same order do not deadlock.
    facts.sort_by(|a, b| a.id.cmp(&b.id));
    let mut met = Met::default();
    for piece in pieces(&facts, COLUMNS.split(',').count()) {
        let values: Vec<Value> = piece.iter().flat_map(|fact| values(fact)).collect();
        let places = places(piece.len(), values.len() / piece.len().max(1));
        let sql = format!(
            "INSERT INTO usage_facts ({COLUMNS}) VALUES {places} ON CONFLICT (id) DO NOTHING RETURNING id"
        );
        for row in tx.query(TABLE, &sql, &values)? {
            met.new.insert(row.text(0)?);
        }
    }
    let sql = format!("SELECT {COLUMNS} FROM usage_facts WHERE id = $1");
    for fact in facts.into_iter().filter(|fact| !met.new.contains(&fact.id)) {
        let known =
            tx.find(TABLE, &sql, params![fact.id.as_str()])?.map(|row| read(&row)).transpose()?;
        if known.as_ref() != Some(fact) {
            met.conflicts.push(fact.id.clone());
        }
    }
    Ok(met)
}

/// Returns all facts of a life, in no particular order.
pub fn facts_of(tx: &mut Tx<'_>, life: i64) -> Result<Vec<FactRow>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM usage_facts WHERE life_id = $1");
    tx.query(TABLE, &sql, params![life])?.iter().map(read).collect()
}

/// Returns the sum of the amounts of a life's facts of one kind between two times.
pub fn sum(tx: &mut Tx<'_>, life: i64, kind: i64, from: i64, to: i64) -> Result<i64, Error> {
    let sql = "SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM usage_facts
               WHERE life_id = $1 AND kind = $2 AND at >= $3 AND at < $4";
    tx.find(TABLE, sql, params![life, kind, from, to])?.map_or(Ok(0), |row| row.int(0))
}

fn values(fact: &FactRow) -> [Value; 8] {
    let stamp = fact.stamp.unwrap_or(Stamp { boot: 0, uptime_ms: 0 });
    [
        fact.id.as_str().into(),
        fact.life.into(),
        fact.number.into(),
        fact.at.into(),
        fact.kind.into(),
        fact.amount.into(),
        stamp.boot.into(),
        stamp.uptime_ms.into(),
    ]
}

fn read(row: &Row) -> Result<FactRow, Error> {
    let stamp = Stamp { boot: row.int(6)?, uptime_ms: row.int(7)? };
    Ok(FactRow {
        id: row.text(0)?,
        life: row.int(1)?,
        number: row.int(2)?,
        at: row.int(3)?,
        kind: row.int(4)?,
        amount: row.int(5)?,
        stamp: (stamp.boot != 0).then_some(stamp),
    })
}
