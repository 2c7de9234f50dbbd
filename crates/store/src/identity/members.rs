//! Members of a workspace and their roles.

use super::Role;
use super::announce;
use super::subject::read_role;
use super::users::{self, User};
use super::workspaces::{self, Workspace};
use crate::feed::Act;
use crate::{Error, Row, Tx, params};
use std::collections::HashMap;
use types::ids::{UserId, WorkspaceId};
use types::wire::UserSource;

#[derive(Debug, Clone)]
pub struct Member {
    pub user: User,
    pub role: Role,
    pub source: Option<UserSource>,
}

/// Adds a person. Returns [`Error::Duplicate`] if the person is already a member.
pub fn add(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    user: &UserId,
    role: Role,
    source: Option<UserSource>,
    by: &str,
) -> Result<(), Error> {
    let now = tx.world().now();
    let sql = "INSERT INTO members (workspace_id, user_id, role, source, created_at) VALUES ($1, $2, $3, $4, $5)";
    tx.execute(sql, params![workspace, user, role.name(), source.map(UserSource::name), now])?;
    announce(tx, Some(workspace), "member", user.as_str(), Act::Created, by)
}

pub fn list(tx: &mut Tx<'_>, workspace: &WorkspaceId) -> Result<Vec<Member>, Error> {
    let sql = "SELECT u.id, u.email, u.given_name, u.family_name, u.email_verified, u.created_at, m.role, m.source
               FROM members m JOIN users u ON u.id = m.user_id WHERE m.workspace_id = $1
               ORDER BY m.created_at, u.id";
    let rows = tx.query("members", sql, params![workspace])?;
    rows.iter()
        .map(|row| {
            Ok(Member {
                user: users::read(row, 0)?,
                role: read_role(row, 6)?,
                source: read_source(row)?,
            })
        })
        .collect()
}

/// Lists the workspaces of a person, each with the person's role.
pub fn of_user(tx: &mut Tx<'_>, user: &UserId) -> Result<Vec<(Workspace, Role)>, Error> {
    let rows = tx.query(
        "members",
        "SELECT workspace_id, role FROM members WHERE user_id = $1",
        params![user],
    )?;
    let roles = rows
        .iter()
        .map(|row| Ok((row.text(0)?, read_role(row, 1)?)))
        .collect::<Result<HashMap<_, _>, Error>>()?;
    let with_role =
        |workspace: Workspace| roles.get(workspace.id.as_str()).map(|role| (workspace, *role));
    Ok(workspaces::list_of_user(tx, user)?.into_iter().filter_map(with_role).collect())
}

pub fn role(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    user: &UserId,
) -> Result<Option<Role>, Error> {
    let sql = "SELECT role FROM members WHERE workspace_id = $1 AND user_id = $2";
    tx.find("members", sql, params![workspace, user])?.map(|row| read_role(&row, 0)).transpose()
}

pub fn set_role(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    user: &UserId,
    role: Role,
    by: &str,
) -> Result<bool, Error> {
    let sql = "UPDATE members SET role = $3 WHERE workspace_id = $1 AND user_id = $2";
    let done = tx.execute(sql, params![workspace, user, role.name()])? == 1;
    if done {
        announce(tx, Some(workspace), "member", user.as_str(), Act::Updated, by)?;
    }
    Ok(done)
}

pub fn remove(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    user: &UserId,
    by: &str,
) -> Result<bool, Error> {
    let sql = "DELETE FROM members WHERE workspace_id = $1 AND user_id = $2";
    let gone = tx.execute(sql, params![workspace, user])? == 1;
    if gone {
        announce(tx, Some(workspace), "member", user.as_str(), Act::Deleted, by)?;
    }
    Ok(gone)
}

pub fn count_admins(tx: &mut Tx<'_>, workspace: &WorkspaceId) -> Result<i64, Error> {
    let sql = "SELECT count(*) FROM members WHERE workspace_id = $1 AND role = 'admin'";
    tx.find("members", sql, params![workspace])?.map_or(Ok(0), |row| row.int(0))
}

fn read_source(row: &Row) -> Result<Option<UserSource>, Error> {
    let Some(name) = row.opt_text(7)? else { return Ok(None) };
    let source =
        UserSource::parse(&name).ok_or_else(|| Error::corrupt("members", name, "not a source"))?;
    Ok(Some(source))
}
