//! Numbers of objects, kept up to date so that nothing needs counting.

use super::stored::Stored;
use crate::{Error, Tx, params};
use types::KindName;
use types::ids::WorkspaceId;
use types::parts::Status;

const TABLE: &str = "resource_counts";

/// Number of rows over which one count is spread.
const SHARDS: i64 = 16;
/// Only whole blocks are counted, so that saving a small object, as most are, changes no count.
pub(super) const BLOCK_BYTES: usize = 4_096;

/// Snapshots that are deleted, or that a fork or an archive took, are hidden and stay until nothing
/// begins with them. Callers cannot delete them, so they are counted apart.
const HIDDEN: (KindName, Status) = (KindName::Snapshot, Status::Deleting);

/// What an object adds to the counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub(super) objects: i64,
    pub(super) blocks: i64,
}

/// Returns how many bytes the objects of a workspace take in whole blocks, without revisions.
pub fn bytes(tx: &mut Tx<'_>, workspace: &WorkspaceId) -> Result<u64, Error> {
    let sql = "SELECT CAST(COALESCE(SUM(blocks), 0) AS BIGINT) FROM resource_counts WHERE workspace_id = $1";
    let blocks = tx.find(TABLE, sql, params![workspace])?.map_or(Ok(0), |row| row.int(0))?;
    // An older server beside this one does not count them.
    Ok(u64::try_from(blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES as u64))
}

/// Returns the number of objects of a kind in a workspace, whatever their status, without hidden
/// ones.
pub fn count(tx: &mut Tx<'_>, workspace: &WorkspaceId, kind: KindName) -> Result<i64, Error> {
    let row = tx.find(
        TABLE,
        "SELECT CAST(COALESCE(SUM(total), 0) AS BIGINT) FROM resource_counts
         WHERE workspace_id = $1 AND kind = $2 AND NOT (kind = $3 AND status = $4)",
        params![workspace, kind.name(), HIDDEN.0.name(), HIDDEN.1.name()],
    )?;
    row.map_or(Ok(0), |row| row.int(0))
}

/// Like [`count`], for somebody who adds an object if that is below `limit`.
pub fn count_towards(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    limit: i64,
) -> Result<i64, Error> {
    tx.count_towards(&format!("{workspace}/{kind}"), limit, |tx| count(tx, workspace, kind))
}

/// Returns the number of hidden snapshots of a workspace, without those that are being taken.
pub fn hidden_snapshots(tx: &mut Tx<'_>, workspace: &WorkspaceId) -> Result<i64, Error> {
    let row = tx.find(
        TABLE,
        "SELECT CAST(COALESCE(SUM(total), 0) AS BIGINT) FROM resource_counts
         WHERE workspace_id = $1 AND kind = $2 AND status = $3",
        params![workspace, HIDDEN.0.name(), HIDDEN.1.name()],
    )?;
    row.map_or(Ok(0), |row| row.int(0))
}

/// Counts the objects of a kind below an object at the top, up to `most`, for somebody who adds one
/// if there are fewer.
pub fn count_below(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    top: &str,
    most: i64,
) -> Result<i64, Error> {
    // See [`super::delete`].
    let sql = "SELECT COUNT(*) FROM (
                   SELECT 1 FROM resources WHERE workspace_id = $1 AND kind = $2
                       AND parent >= $3 AND parent < $3 || '0' AND (parent = $3 OR parent >= $3 || '/')
                   LIMIT $4) AS below";
    let values = params![workspace, kind.name(), top, most];
    tx.count_towards(&format!("{workspace}/{kind}/{top}"), most, |tx| {
        tx.find(TABLE, sql, values)?.map_or(Ok(0), |row| row.int(0))
    })
}

/// Returns the counts of all kinds of which a workspace has any objects, without hidden ones.
pub fn counts(tx: &mut Tx<'_>, workspace: &WorkspaceId) -> Result<Vec<(KindName, i64)>, Error> {
    let rows = tx.query(
        TABLE,
        "SELECT kind, CAST(SUM(total) AS BIGINT) FROM resource_counts
         WHERE workspace_id = $1 AND NOT (kind = $2 AND status = $3)
         GROUP BY kind HAVING SUM(total) > 0 ORDER BY kind",
        params![workspace, HIDDEN.0.name(), HIDDEN.1.name()],
    )?;
    rows.into_iter()
        .map(|row| {
            let name = row.text(0)?;
            let kind = KindName::parse(&name)
                .ok_or_else(|| Error::corrupt(TABLE, &name, "no such kind"))?;
            Ok((kind, row.int(1)?))
        })
        .collect()
}

/// Returns the count of a kind for each status that occurs.
pub(super) fn by_status(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
) -> Result<Vec<(String, i64)>, Error> {
    let rows = tx.query(
        TABLE,
        "SELECT status, CAST(SUM(total) AS BIGINT) FROM resource_counts WHERE workspace_id = $1 AND kind = $2
         GROUP BY status",
        params![workspace, kind.name()],
    )?;
    rows.into_iter().map(|row| Ok((row.text(0)?, row.int(1)?))).collect()
}

pub(super) fn add(
    tx: &mut Tx<'_>,
    stored: &Stored,
    status: &str,
    by: Counted,
) -> Result<(), Error> {
    let shard = i64::from(stored.id.as_str().bytes().last().unwrap_or(0)) % SHARDS;
    tx.execute(
        "INSERT INTO resource_counts (workspace_id, kind, status, shard, total, blocks) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (workspace_id, kind, status, shard) DO UPDATE SET
             total = resource_counts.total + excluded.total, blocks = resource_counts.blocks + excluded.blocks",
        params![&stored.workspace, stored.kind.name(), status, shard, by.objects, by.blocks],
    )?;
    Ok(())
}

/// Counts an object that had another status or size before.
pub(super) fn moved(
    tx: &mut Tx<'_>,
    stored: &Stored,
    (status, blocks): (&str, i64),
) -> Result<(), Error> {
    if status != stored.status_name() {
        add(tx, stored, status, Counted { objects: -1, blocks: -blocks })?;
        return add(tx, stored, stored.status_name(), stored.counted());
    }
    match stored.counted().blocks - blocks {
        0 => Ok(()),
        more => add(tx, stored, status, Counted { objects: 0, blocks: more }),
    }
}

pub(super) fn delete_of_workspace(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    limit: i64,
) -> Result<u64, Error> {
    let sql = "DELETE FROM resource_counts WHERE workspace_id = $1 AND (kind, status, shard) IN (
                   SELECT kind, status, shard FROM resource_counts WHERE workspace_id = $1 LIMIT $2)";
    tx.execute(sql, params![workspace, limit])
}
