//! Saving an object: the most frequent write of the management API.

use super::counts;
use super::stored::{Stored, TABLE};
use crate::feed::{self, Act};
use crate::{Error, Tx, Value, params, references};

/// What a write found in the row.
struct Written {
    revision: i64,
    status_before: String,
    blocks_before: i64,
}

/// What the counts need of the row as it was. 4096 is their `BLOCK_BYTES`.
macro_rules! before {
    () => {
        "SELECT status, CAST((OCTET_LENGTH(wish) + OCTET_LENGTH(state)) / 4096 AS BIGINT) AS blocks
         FROM resources WHERE id = $1 AND version = $2"
    };
}

/// Saves an object unless its row has changed since it was read. Workspace, kind, parent and name
/// stay as they are.
pub fn update(tx: &mut Tx<'_>, stored: Stored) -> Result<Stored, Error> {
    let after = Stored { version: stored.version + 1, ..stored };
    let written = match tx.prefers_one_statement() {
        true => at_once(tx, &after)?,
        false => step_by_step(tx, &after)?,
    };
    let Some(Written { revision, status_before, blocks_before }) = written else {
        return Err(Stored { version: after.version - 1, ..after }.stale());
    };
    if revision < 0 {
        return Err(tx.ask_for_repetition());
    }
    counts::moved(tx, &after, (&status_before, blocks_before))?;
    Ok(after)
}

macro_rules! set_columns {
    ($revision:literal) => {
        concat!(
            "SET external_id = $3, status = $4, search = $5, wish = $6, state = $7, seal_key = $8, updated_at = $9,
             updated_by = $10, version = version + 1, revision = CASE WHEN resources.revision < ",
            $revision,
            " THEN ",
            $revision,
            " ELSE -1 END"
        )
    };
}

fn values(after: &Stored) -> [Value; 10] {
    [
        (&after.id).into(),
        (after.version - 1).into(),
        after.external_id.as_deref().into(),
        after.status_name().into(),
        after.search.as_str().into(),
        after.wish.as_str().into(),
        after.state.as_str().into(),
        after.seal_key.as_deref().into(),
        after.updated_at.into(),
        after.updated_by.as_str().into(),
    ]
}

fn step_by_step(tx: &mut Tx<'_>, after: &Stored) -> Result<Option<Written>, Error> {
    let Some(before) = tx.find(TABLE, before!(), params![&after.id, after.version - 1])? else {
        return Ok(None);
    };
    let revision = tx.next_revision()?;
    let save = concat!(
        "UPDATE resources ",
        set_columns!("$11"),
        " WHERE id = $1 AND version = $2 RETURNING revision"
    );
    let values: Vec<_> = values(after).into_iter().chain([revision.into()]).collect();
    let Some(row) = tx.find(TABLE, save, &values)? else { return Ok(None) };
    let written = Written {
        revision: row.int(0)?,
        status_before: before.text(0)?,
        blocks_before: before.int(1)?,
    };
    if written.revision == revision {
        feed::record_at(tx, revision, after.change(Act::Updated, &after.updated_by))?;
    }
    Ok(Some(written))
}

/// Does the same in one statement, along with the query that usually follows: what the object
/// refers to.
fn at_once(tx: &mut Tx<'_>, after: &Stored) -> Result<Option<Written>, Error> {
    let sql = concat!(
        "WITH next AS MATERIALIZED (
             SELECT COALESCE($11::bigint, (pg_current_xact_id()::text::bigint + xid_offset) << 20) AS revision
             FROM feed_origin WHERE id = 1
         ), before AS (",
        before!(),
        "), written AS (
             UPDATE resources ",
        set_columns!("next.revision"),
        "    FROM next WHERE id = $1 AND version = $2
             RETURNING resources.revision, workspace_id, kind, parent, name, version
         ), noted AS (
             INSERT INTO changes (revision, workspace_id, kind, resource_id, parent, name, act, version, actor, at)
             SELECT revision, workspace_id, kind, $1, parent, name, $12::text, version, $10, $13::bigint FROM written
             WHERE revision >= 0
         )
         SELECT written.revision, before.status, before.blocks,
             (SELECT json_agg(json_build_array(to_kind, to_name))::text FROM resource_references WHERE from_id = $1)
         FROM written, before"
    );
    let rest = [tx.given_revision().into(), Act::Updated.name().into(), tx.world().now().into()];
    let values: Vec<_> = values(after).into_iter().chain(rest).collect();
    let Some(row) = tx.find(TABLE, sql, &values)? else { return Ok(None) };
    let written =
        Written { revision: row.int(0)?, status_before: row.text(1)?, blocks_before: row.int(2)? };
    if written.revision >= 0 {
        tx.take_revision(written.revision)?;
        tx.remember(&after.id, references::read_all(&row, 3)?);
    }
    Ok(Some(written))
}
