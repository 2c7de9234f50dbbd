//! Objects of all kinds: one row each.

mod counts;
mod list;
pub mod offers;
mod stored;
mod update;

pub use counts::{bytes, count, count_below, count_towards, counts, hidden_snapshots};
pub(crate) use list::containing;
pub use list::{Order, Position, Query, list, list_within, position, total};
pub use stored::Stored;
pub use update::update;

use crate::feed::{self, Act};
use crate::{Error, Tx, params};
use counts::Counted;
use stored::{TABLE, select};
use types::KindName;
use types::ids::{ResourceId, WorkspaceId};
use types::parts::Status;

const BY_NAME: &str =
    select!("WHERE workspace_id = $1 AND kind = $2 AND parent = $3 AND name = $4");

pub fn find(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    parent: &str,
    name: &str,
) -> Result<Option<Stored>, Error> {
    tx.find(TABLE, BY_NAME, params![workspace, kind.name(), parent, name])?
        .map(Stored::try_from)
        .transpose()
}

/// Finds an object like [`find`], and locks it until this transaction ends. To add something below
/// an object, lock the object first, or it may be deleted in between.
pub fn lock(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    parent: &str,
    name: &str,
) -> Result<Option<Stored>, Error> {
    let sql = tx.locking(BY_NAME);
    tx.find(TABLE, &sql, params![workspace, kind.name(), parent, name])?
        .map(Stored::try_from)
        .transpose()
}

/// Keeps others from deleting an object, and from locking it, until this transaction ends; several
/// may do so at once. For what goes on using the object. Returns `false` if it does not exist.
pub fn keep(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    parent: &str,
    name: &str,
) -> Result<bool, Error> {
    let sql = tx.keeping(
        "SELECT id FROM resources WHERE workspace_id = $1 AND kind = $2 AND parent = $3 AND name = $4",
    );
    Ok(tx.find(TABLE, &sql, params![workspace, kind.name(), parent, name])?.is_some())
}

pub fn find_by_id(tx: &mut Tx<'_>, id: &ResourceId) -> Result<Option<Stored>, Error> {
    tx.find(TABLE, select!("WHERE id = $1"), params![id])?.map(Stored::try_from).transpose()
}

/// Makes others who ask for the same object wait until this transaction ends, even if there is no row
/// yet.
pub fn hold(tx: &mut Tx<'_>, id: &ResourceId) -> Result<(), Error> {
    tx.hold(&format!("resources/{id}"))
}

/// Finds the objects of a kind in a workspace that have this name, under any parent, newest first.
pub fn named(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    name: &str,
) -> Result<Vec<Stored>, Error> {
    let sql = select!(
        "WHERE workspace_id = $1 AND kind = $2 AND name = $3 ORDER BY created_at DESC, id DESC"
    );
    tx.query(TABLE, sql, params![workspace, kind.name(), name])?
        .into_iter()
        .map(Stored::try_from)
        .collect()
}

/// Lists the objects of a kind in a workspace, under any parent, that follow one of them, ordered
/// by parent and name: for work that goes through all of them.
pub fn walk(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    after: Option<&Stored>,
    limit: i64,
) -> Result<Vec<Stored>, Error> {
    let (parent, name) = after.map_or(("", ""), |last| (last.parent.as_str(), last.name.as_str()));
    let sql = select!(
        "WHERE workspace_id = $1 AND kind = $2 AND (parent, name) > ($3, $4) ORDER BY parent, name LIMIT $5"
    );
    tx.query(TABLE, sql, params![workspace, kind.name(), parent, name, limit])?
        .into_iter()
        .map(Stored::try_from)
        .collect()
}

/// Lists the objects of a kind in all workspaces that follow one of them, ordered by id: for
/// background work that serves all workspaces.
pub fn scan(
    tx: &mut Tx<'_>,
    kind: KindName,
    after: Option<&ResourceId>,
    limit: i64,
) -> Result<Vec<Stored>, Error> {
    let after = after.map_or("", ResourceId::as_str);
    let sql = select!("WHERE kind = $1 AND id > $2 ORDER BY id LIMIT $3");
    tx.query(TABLE, sql, params![kind.name(), after, limit])?
        .into_iter()
        .map(Stored::try_from)
        .collect()
}

/// Returns the name of an object of a kind in a workspace in whose state a text occurs, except
/// terminated ones. `_` and `%` in the text act as wildcards.
pub fn name_with_state(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    text: &str,
) -> Result<Option<String>, Error> {
    let sql = "SELECT name FROM resources
               WHERE workspace_id = $1 AND kind = $2 AND status <> $3 AND state LIKE $4 LIMIT 1";
    let gone = Status::Terminated.name();
    let rows = tx.query(TABLE, sql, params![workspace, kind.name(), gone, format!("%{text}%")])?;
    rows.first().map(|row| row.text(0)).transpose()
}

/// Returns the names of all objects that [`name_with_state`] would find.
pub fn names_with_state(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    text: &str,
) -> Result<Vec<String>, Error> {
    let sql = "SELECT name FROM resources
               WHERE workspace_id = $1 AND kind = $2 AND status <> $3 AND state LIKE $4
               ORDER BY name";
    let gone = Status::Terminated.name();
    let rows = tx.query(TABLE, sql, params![workspace, kind.name(), gone, format!("%{text}%")])?;
    rows.iter().map(|row| row.text(0)).collect()
}

/// Finds the newest object with this external id, except those in some statuses.
pub fn find_by_external_id(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    external_id: &str,
    without: &[Status],
) -> Result<Option<Stored>, Error> {
    let query = Query {
        external_id: Some(external_id),
        hidden_statuses: without,
        limit: 1,
        ..Query::new(workspace, kind, None)
    };
    Ok(list(tx, &query)?.into_iter().next())
}

/// Adds an object. Its recorded creator is `created_by`.
pub fn insert(tx: &mut Tx<'_>, stored: Stored) -> Result<Stored, Error> {
    let stored = Stored { version: 1, ..stored };
    let revision = tx.next_revision()?;
    let done = tx.execute(
        "INSERT INTO resources (id, workspace_id, kind, parent, name, external_id, status, search, wish, state,
             seal_key, version, revision, created_at, updated_at, created_by, updated_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
         ON CONFLICT (workspace_id, kind, parent, name) DO NOTHING",
        params![
            &stored.id,
            &stored.workspace,
            stored.kind.name(),
            stored.parent.as_str(),
            stored.name.as_str(),
            stored.external_id.as_deref(),
            stored.status_name(),
            stored.search.as_str(),
            stored.wish.as_str(),
            stored.state.as_str(),
            stored.seal_key.as_deref(),
            stored.version,
            revision,
            stored.created_at,
            stored.updated_at,
            stored.created_by.as_str(),
            stored.updated_by.as_str()
        ],
    )?;
    if done == 0 {
        return Err(tx.duplicate(TABLE));
    }
    counts::add(tx, &stored, stored.status_name(), stored.counted())?;
    feed::record_at(tx, revision, stored.change(Act::Created, &stored.created_by))?;
    Ok(stored)
}

/// Deletes an object and everything below it.
pub fn delete(tx: &mut Tx<'_>, stored: &Stored, actor: &str) -> Result<(), Error> {
    if !delete_row(tx, stored, actor)? {
        return Err(stored.stale());
    }
    delete_below(tx, stored, actor)
}

/// Deletes everything below an object.
pub fn delete_below(tx: &mut Tx<'_>, stored: &Stored, actor: &str) -> Result<(), Error> {
    let path = stored.path();
    for kind in stored.kind.below() {
        // `0` is the character after `/`, so this matches the path, and everything that starts with
        // it and a slash. It is written as one range, or all of the kind would be looked at. What is
        // found is locked, or a change of it in between would let it survive.
        let sql = tx.locking(select!(
            "WHERE workspace_id = $1 AND kind = $2 AND parent >= $3 AND parent < $3 || '0' AND (parent = $3 OR parent >= $3 || '/')"
        ));
        let children =
            tx.query(TABLE, &sql, params![&stored.workspace, kind.name(), path.as_str()])?;
        for child in children {
            delete_row(tx, &Stored::try_from(child)?, actor)?;
        }
    }
    Ok(())
}

/// Kinds that answer at hosts of their own.
const HAVE_EDGE_NAMES: [KindName; 4] =
    [KindName::Application, KindName::CustomDomain, KindName::Preview, KindName::Sandbox];

fn delete_row(tx: &mut Tx<'_>, stored: &Stored, actor: &str) -> Result<bool, Error> {
    let sql = "DELETE FROM resources WHERE id = $1 AND version = $2 RETURNING revision";
    let Some(row) = tx.find(TABLE, sql, params![&stored.id, stored.version])? else {
        return Ok(false);
    };
    let revision = tx.next_revision()?;
    if row.int(0)? >= revision {
        return Err(tx.ask_for_repetition());
    }
    tx.execute("DELETE FROM revisions WHERE resource_id = $1", params![&stored.id])?;
    if HAVE_EDGE_NAMES.contains(&stored.kind) {
        crate::edge_names::give_back(tx, &stored.id)?;
    }
    if stored.kind == KindName::EgressIp {
        crate::egress_addresses::give_back(tx, &stored.id)?;
    }
    if crate::builds::KINDS.contains(&stored.kind) {
        crate::builds::cancel(tx, &stored.id)?;
    }
    let Counted { objects, blocks } = stored.counted();
    let gone = Counted { objects: -objects, blocks: -blocks };
    counts::add(tx, stored, stored.status_name(), gone)?;
    feed::record_at(tx, revision, stored.change(Act::Deleted, actor))?;
    Ok(true)
}

/// Lists objects of a kind in a workspace that is being deleted, and locks them.
pub fn lock_some(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    limit: i64,
) -> Result<Vec<Stored>, Error> {
    let sql =
        tx.locking(select!("WHERE workspace_id = $1 AND kind = $2 ORDER BY parent, name LIMIT $3"));
    tx.query(TABLE, &sql, params![workspace, kind.name(), limit])?
        .into_iter()
        .map(Stored::try_from)
        .collect()
}

/// Deletes up to `limit` rows of a workspace that has no objects any more. Returns how many that
/// were; fewer than `limit` mean that nothing is left. The changes stay for followers, until they
/// are trimmed by age.
pub fn clear_workspace(tx: &mut Tx<'_>, workspace: &WorkspaceId, limit: i64) -> Result<i64, Error> {
    type Step = fn(&mut Tx<'_>, &WorkspaceId, i64) -> Result<u64, Error>;
    let mut deleted = 0;
    let steps: [Step; 6] = [
        crate::executions::delete_of_workspace,
        crate::deliveries::delete_of_workspace,
        crate::trigger_addresses::delete_of_workspace,
        crate::image_rights::delete_of_workspace,
        crate::idempotency::delete_of_workspace,
        counts::delete_of_workspace,
    ];
    for step in steps {
        if deleted < limit {
            let rows = step(tx, workspace, limit - deleted)?;
            deleted += i64::try_from(rows).unwrap_or(limit);
        }
    }
    Ok(deleted)
}
