//! Invitations that have not been answered. An answer deletes the row.

use super::subject::read_role;
use super::users::normal_email;
use super::{Role, announce};
use crate::feed::Act;
use crate::{Error, Row, Tx, params};
use types::Timestamp;
use types::ids::{InvitationId, WorkspaceId};

#[derive(Debug, Clone)]
pub struct Invitation {
    pub id: InvitationId,
    pub workspace: WorkspaceId,
    /// Address in lower case.
    pub email: String,
    pub role: Role,
    pub invited_by: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

impl Invitation {
    pub fn expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now
    }
}

const COLUMNS: &str = "id, workspace_id, email, role, invited_by, created_at, expires_at";

fn read(row: &Row) -> Result<Invitation, Error> {
    Ok(Invitation {
        id: InvitationId::known(row.text(0)?),
        workspace: WorkspaceId::known(row.text(1)?),
        email: row.text(2)?,
        role: read_role(row, 3)?,
        invited_by: row.text(4)?,
        created_at: row.time(5)?,
        expires_at: row.time(6)?,
    })
}

/// Inserts an invitation. Returns [`Error::Duplicate`] if the address is already invited to the
/// workspace.
pub fn create(tx: &mut Tx<'_>, invitation: &Invitation) -> Result<(), Error> {
    let sql = format!("INSERT INTO invitations ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)");
    tx.execute(
        &sql,
        params![
            &invitation.id,
            &invitation.workspace,
            invitation.email.as_str(),
            invitation.role.name(),
            invitation.invited_by.as_str(),
            invitation.created_at,
            invitation.expires_at
        ],
    )?;
    announce(
        tx,
        Some(&invitation.workspace),
        "invitation",
        invitation.id.as_str(),
        Act::Created,
        &invitation.invited_by,
    )
}

pub fn find(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    email: &str,
) -> Result<Option<Invitation>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM invitations WHERE workspace_id = $1 AND email = $2");
    tx.find("invitations", &sql, params![workspace, normal_email(email)])?
        .as_ref()
        .map(read)
        .transpose()
}

/// Finds an invitation by id alone, for invited people, who do not belong to the workspace yet.
pub fn find_by_id(tx: &mut Tx<'_>, id: &InvitationId) -> Result<Option<Invitation>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM invitations WHERE id = $1");
    tx.find("invitations", &sql, params![id])?.as_ref().map(read).transpose()
}

pub fn list(tx: &mut Tx<'_>, workspace: &WorkspaceId) -> Result<Vec<Invitation>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM invitations WHERE workspace_id = $1 ORDER BY created_at, id"
    );
    tx.query("invitations", &sql, params![workspace])?.iter().map(read).collect()
}

pub fn list_of_email(tx: &mut Tx<'_>, email: &str) -> Result<Vec<Invitation>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM invitations WHERE email = $1 ORDER BY created_at, id");
    tx.query("invitations", &sql, params![normal_email(email)])?.iter().map(read).collect()
}

pub fn set_role(
    tx: &mut Tx<'_>,
    invitation: &Invitation,
    role: Role,
    by: &str,
) -> Result<(), Error> {
    let sql = "UPDATE invitations SET role = $2 WHERE id = $1";
    tx.execute(sql, params![&invitation.id, role.name()])?;
    announce(
        tx,
        Some(&invitation.workspace),
        "invitation",
        invitation.id.as_str(),
        Act::Updated,
        by,
    )
}

pub fn delete(tx: &mut Tx<'_>, invitation: &Invitation, by: &str) -> Result<(), Error> {
    tx.execute("DELETE FROM invitations WHERE id = $1", params![&invitation.id])?;
    announce(
        tx,
        Some(&invitation.workspace),
        "invitation",
        invitation.id.as_str(),
        Act::Deleted,
        by,
    )
}
