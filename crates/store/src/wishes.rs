//! Looking for a text in everything that a workspace wishes. Its wishes may be many megabytes, so
//! whoever writes looks through them in a read before, and in the transaction that writes only
//! through those written since.
//!
//! In all texts looked for, `_` and `%` act as wildcards.

use crate::{Error, Row, Tx, Value, params};
use types::KindName;
use types::ids::WorkspaceId;
use types::parts::Status;

const TABLE: &str = "resources";
/// How much of what was found is in memory at once: rows, and bytes of them.
const ROWS_AT_ONCE: i64 = 500;
const BYTES_AT_ONCE: usize = 8 << 20;

const OF_OBJECTS: &str = "SELECT wish, parent, name FROM resources
    WHERE workspace_id = $1 AND kind = $2 AND status <> $3 AND wish LIKE $4 AND (parent, name) > ($6, $7)
    ORDER BY parent, name LIMIT $5";
const OF_REVISIONS: &str = "SELECT r.wish, o.parent, o.name, r.number
    FROM resources o JOIN revisions r ON r.resource_id = o.id
    WHERE o.workspace_id = $1 AND o.kind = $2 AND r.wish LIKE $3
        AND (o.parent, o.name) >= ($5, $6) AND (o.parent, o.name, r.number) > ($5, $6, $7)
    ORDER BY o.parent, o.name, r.number LIMIT $4";

/// What was written since: the newest revisions of an object, as many as it was written.
const REVISIONS_SINCE: &str = "FROM (
        SELECT resource_id, COUNT(*) AS times FROM changes
        WHERE workspace_id = $1 AND revision > $3 AND kind = $2 GROUP BY resource_id
    ) written JOIN revisions r ON r.resource_id = written.resource_id
    WHERE r.number > (SELECT MAX(number) FROM revisions WHERE resource_id = written.resource_id) - written.times
        AND r.wish LIKE $4";
const OBJECTS_SINCE: &str = "FROM resources
    WHERE id IN (SELECT resource_id FROM changes WHERE workspace_id = $1 AND revision > $3 AND kind = $2)
        AND status <> $5";

/// Passes on the wishes in which a text occurs: of all objects of a kind except terminated ones, and
/// those kept as revisions of the kind's objects.
pub fn each(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    text: &str,
    mut act: impl FnMut(&str) -> Result<(), Error>,
) -> Result<(), Error> {
    let (gone, text) = (Status::Terminated.name(), format!("%{text}%"));
    let of = [workspace.into(), kind.name().into()];
    let objects = [&of[..], &[gone.into(), text.as_str().into(), ROWS_AT_ONCE.into()]].concat();
    paged(tx, OF_OBJECTS, &objects, &["".into(), "".into()], &mut act)?;
    let revisions = [&of[..], &[text.into(), ROWS_AT_ONCE.into()]].concat();
    paged(tx, OF_REVISIONS, &revisions, &["".into(), "".into(), 0.into()], &mut act)
}

/// Goes through all rows of a statement, whose last parameters are the place of the row to go on
/// after. Each row has a wish, and then its place.
fn paged(
    tx: &mut Tx<'_>,
    sql: &str,
    fixed: &[Value],
    start: &[Value],
    act: &mut dyn FnMut(&str) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut place = start.to_vec();
    loop {
        let values = [fixed, &place].concat();
        let page = tx.query_within(TABLE, sql, &values, BYTES_AT_ONCE)?;
        for row in &page.rows {
            act(&row.text(0)?)?;
        }
        let full = i64::try_from(page.rows.len()).is_ok_and(|rows| rows >= ROWS_AT_ONCE);
        match page.rows.last() {
            Some(last) if page.is_cut || full => {
                place = place_of(last, start.len())?;
            }
            _ => return Ok(()),
        }
    }
}

fn place_of(row: &Row, columns: usize) -> Result<Vec<Value>, Error> {
    let mut place = vec![row.text(1)?.into(), row.text(2)?.into()];
    if columns > place.len() {
        place.push(row.int(3)?.into());
    }
    Ok(place)
}

/// Passes on what [`each`] would, of what was written after a revision of the feed.
pub fn each_since(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    after: i64,
    text: &str,
    mut act: impl FnMut(&str) -> Result<(), Error>,
) -> Result<(), Error> {
    require_kept(tx, after)?;
    let (gone, text) = (Status::Terminated.name(), format!("%{text}%"));
    let objects = format!("SELECT wish {OBJECTS_SINCE} AND wish LIKE $4");
    let values = params![workspace, kind.name(), after, text.as_str(), gone];
    let mut rows = tx.query(TABLE, &objects, values)?;
    let revisions = format!("SELECT r.wish {REVISIONS_SINCE}");
    rows.extend(tx.query(TABLE, &revisions, params![workspace, kind.name(), after, text])?);
    rows.iter().try_for_each(|row| act(&row.text(0)?))
}

/// Returns true if a text occurs in the wish or the state of an object of a kind, except terminated
/// ones, or in a wish that is kept as its revision.
pub fn occurs(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    text: &str,
) -> Result<bool, Error> {
    let (gone, text) = (Status::Terminated.name(), format!("%{text}%"));
    let objects = "SELECT id FROM resources
                   WHERE workspace_id = $1 AND kind = $2 AND status <> $3 AND (state LIKE $4 OR wish LIKE $4)
                   LIMIT 1";
    let values = params![workspace, kind.name(), gone, text.as_str()];
    if tx.find(TABLE, objects, values)?.is_some() {
        return Ok(true);
    }
    let revisions = "SELECT r.id FROM resources o JOIN revisions r ON r.resource_id = o.id
                     WHERE o.workspace_id = $1 AND o.kind = $2 AND r.wish LIKE $3 LIMIT 1";
    Ok(tx.find(TABLE, revisions, params![workspace, kind.name(), text])?.is_some())
}

/// Returns what [`occurs`] would of what was written after a revision of the feed.
pub fn occurs_since(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    after: i64,
    text: &str,
) -> Result<bool, Error> {
    require_kept(tx, after)?;
    let (gone, text) = (Status::Terminated.name(), format!("%{text}%"));
    let objects = format!("SELECT id {OBJECTS_SINCE} AND (state LIKE $4 OR wish LIKE $4) LIMIT 1");
    let values = params![workspace, kind.name(), after, text.as_str(), gone];
    if tx.find(TABLE, &objects, values)?.is_some() {
        return Ok(true);
    }
    let revisions = format!("SELECT r.id {REVISIONS_SINCE} LIMIT 1");
    Ok(tx.find(TABLE, &revisions, params![workspace, kind.name(), after, text])?.is_some())
}

/// Refuses if changes after a revision may have been dropped from the feed.
fn require_kept(tx: &mut Tx<'_>, after: i64) -> Result<(), Error> {
    let (oldest, _) = tx.feed_bounds()?;
    if after < oldest { Err(Error::Gone { oldest }) } else { Ok(()) }
}
