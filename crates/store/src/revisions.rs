//! Revisions: earlier wishes of a resource that can be restored.

use crate::{Error, Row, Tx, params};
use types::Timestamp;
use types::ids::ResourceId;

const TABLE: &str = "revisions";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Id, unique within the resource.
    pub id: String,
    pub resource_id: ResourceId,
    /// Wish as in the resource, with its secrets sealed in the resource's context.
    pub wish: String,
    pub seal_key: Option<String>,
    pub created_at: Timestamp,
    pub created_by: String,
    /// Time at which it last began to serve.
    pub activated_at: Option<Timestamp>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT id, resource_id, wish, seal_key, created_at, created_by, activated_at FROM revisions ", $rest)
    };
}

/// Adds the newest revision. The caller has just written the resource, so no other revision can
/// come in between.
pub fn insert(tx: &mut Tx<'_>, revision: &Revision) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO revisions (id, resource_id, wish, seal_key, created_at, created_by, activated_at, number)
         VALUES ($1, $2, $3, $4, $5, $6, $7,
             (SELECT COALESCE(MAX(number), 0) + 1 FROM revisions WHERE resource_id = $2))",
        params![
            revision.id.as_str(),
            &revision.resource_id,
            revision.wish.as_str(),
            revision.seal_key.as_deref(),
            revision.created_at,
            revision.created_by.as_str(),
            revision.activated_at
        ],
    )?;
    Ok(())
}

/// Lists up to `limit` revisions of a resource, newest first.
pub fn list(tx: &mut Tx<'_>, resource: &ResourceId, limit: i64) -> Result<Vec<Revision>, Error> {
    let sql = select!("WHERE resource_id = $1 ORDER BY number DESC LIMIT $2");
    tx.query(TABLE, sql, params![resource, limit])?.into_iter().map(Revision::try_from).collect()
}

pub fn find(tx: &mut Tx<'_>, resource: &ResourceId, id: &str) -> Result<Option<Revision>, Error> {
    let sql = select!("WHERE resource_id = $1 AND id = $2");
    tx.find(TABLE, sql, params![resource, id])?.map(Revision::try_from).transpose()
}

/// Records that a revision serves from now on.
pub fn activate(
    tx: &mut Tx<'_>,
    resource: &ResourceId,
    id: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let sql = "UPDATE revisions SET activated_at = $3 WHERE resource_id = $1 AND id = $2";
    match tx.execute(sql, params![resource, id, now])? {
        1 => Ok(()),
        _ => Err(Error::Stale { what: format!("revision {id} of {resource}") }),
    }
}

/// Deletes all revisions of a resource except the newest `keep` and those that serve.
pub fn trim(
    tx: &mut Tx<'_>,
    resource: &ResourceId,
    keep: i64,
    serving: [Option<&str>; 3],
) -> Result<u64, Error> {
    let sql = "DELETE FROM revisions WHERE resource_id = $1 AND number <=
               (SELECT MAX(number) FROM revisions WHERE resource_id = $1) - $2
               AND id <> $3 AND id <> $4 AND id <> $5";
    let [active, canary, before] = serving.map(Option::unwrap_or_default);
    tx.execute(sql, params![resource, keep, active, canary, before])
}

impl TryFrom<Row> for Revision {
    type Error = Error;

    fn try_from(mut row: Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.take_text(0)?,
            resource_id: ResourceId::known(row.take_text(1)?),
            wish: row.take_text(2)?,
            seal_key: row.opt_text(3)?,
            created_at: row.time(4)?,
            created_by: row.take_text(5)?,
            activated_at: row.opt_time(6)?,
        })
    }
}
