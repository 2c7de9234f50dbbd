//! Requests with an idempotency key: the first one acts, and repetitions get its answer again.

use crate::{Error, Tx, params};
use types::Timestamp;
use types::ids::WorkspaceId;

const TABLE: &str = "idempotency";

/// How long an answer is kept.
pub const KEPT_MS: i64 = 24 * 3_600_000;

/// What a request with a key finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Nobody has used the key: act, then [`record`] the answer in the same transaction.
    New,
    /// The request was already answered, with this status and `body` as recorded.
    Done { status: i64, body: String },
    /// The key was used for a different request.
    Conflict,
}

/// Claims a key for a request with this `digest`. If two requests do so at once, one waits for the
/// other's transaction.
pub fn claim(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    key: &str,
    digest: &str,
) -> Result<Claim, Error> {
    let now = tx.world().now();
    let expired = now.plus_ms(-KEPT_MS);
    tx.execute(
        "DELETE FROM idempotency WHERE workspace_id = $1 AND claim = $2 AND created_at < $3",
        params![workspace, key, expired],
    )?;
    let done = tx.execute(
        "INSERT INTO idempotency (workspace_id, claim, digest, created_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (workspace_id, claim) DO NOTHING",
        params![workspace, key, digest, now],
    )?;
    if done == 1 {
        return Ok(Claim::New);
    }
    let sql = "SELECT digest, status, body FROM idempotency WHERE workspace_id = $1 AND claim = $2";
    let row = tx.find(TABLE, sql, params![workspace, key])?;
    let row = row.ok_or_else(|| Error::Stale { what: "the idempotency key".into() })?;
    if row.text(0)? != digest {
        return Ok(Claim::Conflict);
    }
    Ok(Claim::Done { status: row.int(1)?, body: row.text(2)? })
}

/// Returns what a request with a key would find, without claiming it. `None` if nobody has used the
/// key.
pub fn find(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    key: &str,
    digest: &str,
) -> Result<Option<Claim>, Error> {
    let sql = "SELECT digest, status, body FROM idempotency
               WHERE workspace_id = $1 AND claim = $2 AND created_at >= $3";
    let expired = tx.world().now().plus_ms(-KEPT_MS);
    let Some(row) = tx.find(TABLE, sql, params![workspace, key, expired])? else {
        return Ok(None);
    };
    if row.text(0)? != digest {
        return Ok(Some(Claim::Conflict));
    }
    Ok(Some(Claim::Done { status: row.int(1)?, body: row.text(2)? }))
}

/// Lets a key be used again, because what was done under it was undone.
pub fn forget(tx: &mut Tx<'_>, workspace: &WorkspaceId, key: &str) -> Result<(), Error> {
    let sql = "DELETE FROM idempotency WHERE workspace_id = $1 AND claim = $2";
    tx.execute(sql, params![workspace, key]).map(drop)
}

/// Keeps the answer to a request that claimed a key. The caller seals it in the context
/// `idempotency/<workspace>/<key>`, since it may contain secrets that are shown only once.
pub fn record(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    key: &str,
    status: i64,
    sealed: &str,
) -> Result<(), Error> {
    let sql =
        "UPDATE idempotency SET status = $3, body = $4 WHERE workspace_id = $1 AND claim = $2";
    match tx.execute(sql, params![workspace, key, status, sealed])? {
        1 => Ok(()),
        _ => Err(Error::Stale { what: "the idempotency key".into() }),
    }
}

/// Deletes up to `limit` expired answers. Returns how many were deleted.
pub fn trim(tx: &mut Tx<'_>, now: Timestamp, limit: i64) -> Result<u64, Error> {
    tx.execute(
        "DELETE FROM idempotency WHERE (workspace_id, claim) IN
             (SELECT workspace_id, claim FROM idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2)",
        params![now.plus_ms(-KEPT_MS), limit],
    )
}

pub(crate) fn delete_of_workspace(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    limit: i64,
) -> Result<u64, Error> {
    let sql = "DELETE FROM idempotency WHERE workspace_id = $1 AND claim IN
               (SELECT claim FROM idempotency WHERE workspace_id = $1 LIMIT $2)";
    tx.execute(sql, params![workspace, limit])
}
