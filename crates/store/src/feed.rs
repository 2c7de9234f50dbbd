//! The change feed: one row per write, in an order in which followers miss nothing.
//!
//! A *revision* is a number that grows with every change. Following is safe if no change can ever
//! appear with a revision below one that was already read.
//!
//! On SQLite there is one writer, so revisions are simply numbered one after another.
//!
//! On PostgreSQL many servers commit at once, and a plain sequence would show 8 before 7 whenever 7
//! commits later. Queueing all writers would prevent that, but at the cost of speed. Instead a
//! revision is derived from the number of its transaction, `((xid + xid_offset) << 20) | n`, where
//! `n` counts the changes of that transaction, and readers stop at the *horizon*: below the oldest
//! transaction that is still running, nothing new can appear. A follower lags by the longest
//! writing transaction, which `statement_timeout_ms` bounds, except while a step of `migrations`
//! runs. Transactions in other databases of the cluster hold it back for a few polls only
//! (`db::horizon`).
//!
//! A transaction that got its number early may write an object after one with a higher number has
//! done so. The object's history would then run backwards. So `resources` keeps the revision of the
//! last change in its row, and if that is not below the present revision, asks for a repetition
//! under a new number.
//!
//! `xid_offset` keeps revisions growing when the rows move to another cluster, whose numbers start
//! anew. After a restore, revisions leap ahead by [`LEAP`], and followers of the earlier state get
//! [`Error::Gone`].
//!
//! A *failover* can take transaction numbers back: a standby that had not received the last
//! transactions gives their numbers to others. A follower may then have been told something else
//! under a revision than what is now stored, and one that is ahead would wait silently until the
//! numbers have caught up. So `feed_origin` records the *history* in which revisions were given
//! out: the identity of the cluster and the timeline, which changes with a promotion
//! ([`Tx::history`]). The first connection that sees a different history leaps, as a restore does,
//! whether anything was lost or not, since a promoted standby cannot know. Nothing is read or
//! written in a new history before that, because each new connection checks first
//! (`db::postgres::follow_history`), no connection outlives a primary, and connections to a
//! standby, which would outlive its promotion, are refused. [`LEAP`] is further than a standby can
//! be behind. One case goes unnoticed: a cluster that is put back from a copy of its files without
//! recovery from an archive, because its history has the same name.

mod change;
mod follower;
mod recent;

pub use change::{Act, Change, NewChange};
pub use follower::Follower;
pub(crate) use recent::Recent;

use crate::{Error, Row, Tx, params};
use recent::Seen;
use types::Timestamp;
use types::ids::WorkspaceId;

/// How far revisions jump at a restore or failover: further than the source can have continued
/// after the backup, and than a standby can be behind. The range of revisions has room for 8000
/// jumps.
pub const LEAP: i64 = 1 << 50;

/// Appends a change, in the transaction that makes it.
pub fn record(tx: &mut Tx<'_>, change: NewChange<'_>) -> Result<(), Error> {
    let revision = tx.next_revision()?;
    record_at(tx, revision, change)
}

pub(crate) fn record_at(
    tx: &mut Tx<'_>,
    revision: i64,
    change: NewChange<'_>,
) -> Result<(), Error> {
    let now = tx.world().now();
    tx.execute(
        "INSERT INTO changes (revision, workspace_id, kind, resource_id, parent, name, act, version, actor, at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        params![
            revision,
            change.workspace,
            change.kind,
            change.resource_id,
            change.parent,
            change.name,
            change.act.name(),
            change.version,
            change.actor,
            now
        ],
    )?;
    tx.note_change(|| Change {
        revision,
        workspace: change.workspace.clone(),
        kind: change.kind.to_owned(),
        resource_id: change.resource_id.to_owned(),
        parent: change.parent.to_owned(),
        name: change.name.to_owned(),
        act: change.act,
        version: change.version,
        actor: change.actor.to_owned(),
        at: now,
    });
    Ok(())
}

/// Lists changes after a revision, oldest first, of one workspace or of all.
pub fn since(
    tx: &mut Tx<'_>,
    workspace: Option<&WorkspaceId>,
    after: i64,
    limit: i64,
) -> Result<Vec<Change>, Error> {
    Ok(read(tx, workspace, after, limit)?.0)
}

/// Returns the changes after a revision, and the revision up to which they are complete.
fn read(
    tx: &mut Tx<'_>,
    workspace: Option<&WorkspaceId>,
    after: i64,
    limit: i64,
) -> Result<Seen, Error> {
    let (oldest, horizon) = tx.feed_bounds()?;
    if after < oldest {
        return Err(Error::Gone { oldest });
    }
    let rows = match workspace {
        None => tx.query(
            "changes",
            "SELECT revision, workspace_id, kind, resource_id, parent, name, act, version, actor, at FROM changes
             WHERE revision > $1 AND revision < $2 ORDER BY revision LIMIT $3",
            params![after, horizon, limit],
        )?,
        Some(workspace) => tx.query(
            "changes",
            "SELECT revision, workspace_id, kind, resource_id, parent, name, act, version, actor, at FROM changes
             WHERE workspace_id = $4 AND revision > $1 AND revision < $2 ORDER BY revision LIMIT $3",
            params![after, horizon, limit, workspace],
        )?,
    };
    let changes = rows.into_iter().map(change).collect::<Result<Vec<_>, _>>()?;
    let upto = match (changes.last(), workspace) {
        (Some(last), _) => last.revision,
        (None, None) => after,
        // Otherwise a follower of a quiet workspace would fall behind what is kept.
        (None, Some(_)) => newest_below(tx, horizon)?.max(after),
    };
    Ok((changes, upto))
}

/// Returns the newest revision that followers can see. Whatever else is read in the same
/// transaction includes all changes up to it.
pub fn latest(tx: &mut Tx<'_>) -> Result<i64, Error> {
    let (trimmed_to, horizon) = tx.feed_bounds()?;
    Ok(newest_below(tx, horizon)?.max(trimmed_to))
}

/// Returns the newest revision, even if followers cannot see it yet. A follower that claims to have
/// seen a later one has followed another database, or what a restore has undone.
pub fn newest(tx: &mut Tx<'_>) -> Result<i64, Error> {
    tx.highest_revision()
}

/// Returns the newest revision below the horizon, or 0, since revisions start above 0.
fn newest_below(tx: &mut Tx<'_>, horizon: i64) -> Result<i64, Error> {
    let row = tx.find(
        "changes",
        "SELECT revision FROM changes WHERE revision < $1 ORDER BY revision DESC LIMIT 1",
        params![horizon],
    )?;
    row.map_or(Ok(0), |row| row.int(0))
}

/// Deletes up to `limit` changes made before `older_than`, but keeps the newest `keep_min`. Returns
/// how many were deleted.
pub fn trim(
    tx: &mut Tx<'_>,
    older_than: Timestamp,
    keep_min: i64,
    limit: i64,
) -> Result<u64, Error> {
    let sql = "SELECT revision FROM changes ORDER BY revision DESC LIMIT 1 OFFSET $1";
    let Some(row) = tx.find("changes", sql, params![keep_min])? else {
        return Ok(0);
    };
    let keep_from = row.int(0)?;
    let rows = tx.query(
        "changes",
        "SELECT revision, at FROM changes ORDER BY revision LIMIT $1",
        params![limit],
    )?;
    let mut upto = 0;
    for row in rows {
        if row.int(0)? > keep_from || row.time(1)? >= older_than {
            break;
        }
        upto = row.int(0)?;
    }
    if upto == 0 {
        return Ok(0);
    }
    tx.execute("UPDATE feed_origin SET trimmed_to = $1 WHERE trimmed_to < $1", params![upto])?;
    tx.note_trim(upto);
    tx.execute("DELETE FROM changes WHERE revision <= $1", params![upto])
}

/// Keeps revisions growing when the rows came from another cluster, or the cluster has another
/// history. Runs alone in its transaction, so that its transaction number is above those of all
/// changes it sees.
pub(crate) fn anchor(tx: &mut Tx<'_>) -> Result<(), Error> {
    let highest = tx.highest_revision()?;
    let now = tx.history()?;
    let before = noted_history(tx)?;
    if before == now {
        return tx.move_revisions_above(highest);
    }
    tx.execute("UPDATE feed_origin SET history = $1 WHERE id = 1", params![now.as_deref()])?;
    match before {
        // An older release did not record the history.
        None => tx.move_revisions_above(highest),
        Some(_) => {
            tracing::warn!(
                "the database has another history than before: followers of the change feed begin anew"
            );
            leap(tx, highest)
        }
    }
}

/// Returns true if [`anchor`] has run in the present history.
pub(crate) fn is_anchored(tx: &mut Tx<'_>) -> Result<bool, Error> {
    Ok(noted_history(tx)? == tx.history()?)
}

fn noted_history(tx: &mut Tx<'_>) -> Result<Option<String>, Error> {
    let row = tx.find("feed_origin", "SELECT history FROM feed_origin WHERE id = 1", params![])?;
    row.ok_or_else(|| Error::corrupt("feed_origin", "1", "the row is missing"))?.opt_text(0)
}

/// Continues with revisions that nobody can have seen. Those who follow from before get
/// [`Error::Gone`].
pub(crate) fn leap(tx: &mut Tx<'_>, from: i64) -> Result<(), Error> {
    let moved_to = from.saturating_add(LEAP);
    tx.execute("UPDATE feed_origin SET trimmed_to = $1 WHERE id = 1", params![moved_to])?;
    tx.revisions_leapt();
    tx.move_revisions_above(moved_to)
}

fn change(row: Row) -> Result<Change, Error> {
    let act = row.text(6)?;
    Ok(Change {
        revision: row.int(0)?,
        workspace: WorkspaceId::known(row.text(1)?),
        kind: row.text(2)?,
        resource_id: row.text(3)?,
        parent: row.text(4)?,
        name: row.text(5)?,
        act: Act::parse(&act).ok_or_else(|| {
            Error::corrupt("changes", row.text(3).unwrap_or_default(), format!("act `{act}`"))
        })?,
        version: row.int(7)?,
        actor: row.text(8)?,
        at: row.time(9)?,
    })
}
