//! Grants: an access that was given to a client, with the sequence of its refresh tokens.
//!
//! Access tokens name their grant. Deleting the grant revokes all of them and every refresh token.

use super::{Digest, Subject, announce};
use crate::feed::Act;
use crate::{Error, Tx, params};
use types::Timestamp;
use types::ids::{ClientId, GrantId};

/// Most grants that one transaction revokes because there are too many.
const TRIMMED_AT_ONCE_MAX: i64 = 100;
/// Used refresh tokens of a grant that are kept, to tell that one was stolen. Nobody uses one that is
/// older, and without a limit a client could fill the database.
const USED_KEPT: i64 = 100;

#[derive(Debug, Clone)]
pub struct Grant {
    pub id: GrantId,
    /// Id of the registered or built-in client, or of the service account itself.
    pub client: ClientId,
    pub subject: Subject,
    /// Names of scopes, separated by spaces.
    pub scope: String,
    pub created_at: Timestamp,
    /// Expiry of its last token.
    pub expires_at: Timestamp,
}

/// A refresh token with its grant.
#[derive(Debug, Clone)]
pub struct Refresh {
    pub grant: Grant,
    pub used_at: Option<Timestamp>,
}

pub fn create(tx: &mut Tx<'_>, grant: &Grant) -> Result<(), Error> {
    let sql = "INSERT INTO grants (id, client_id, subject_type, subject_id, scope, created_at, expires_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7)";
    tx.execute(
        sql,
        params![
            &grant.id,
            &grant.client,
            grant.subject.type_name(),
            grant.subject.as_str(),
            grant.scope.as_str(),
            grant.created_at,
            grant.expires_at
        ],
    )?;
    Ok(())
}

pub fn find(tx: &mut Tx<'_>, id: &GrantId) -> Result<Option<Grant>, Error> {
    let sql = "SELECT id, client_id, subject_type, subject_id, scope, created_at, expires_at FROM grants WHERE id = $1";
    let Some(row) = tx.find("grants", sql, params![id])? else { return Ok(None) };
    Ok(Some(Grant {
        id: GrantId::known(row.text(0)?),
        client: ClientId::known(row.text(1)?),
        subject: Subject::read(&row, 2, 3)?,
        scope: row.text(4)?,
        created_at: row.time(5)?,
        expires_at: row.time(6)?,
    }))
}

/// Adds a refresh token, and extends the grant to the token's expiry. Forgets used tokens when there
/// are too many.
pub fn add_refresh(
    tx: &mut Tx<'_>,
    grant: &GrantId,
    token: &Digest,
    expires_at: Timestamp,
) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO refresh_tokens (digest, grant_id) VALUES ($1, $2)",
        params![token, grant],
    )?;
    tx.execute("UPDATE grants SET expires_at = $2 WHERE id = $1", params![grant, expires_at])?;
    let sql = "DELETE FROM refresh_tokens WHERE grant_id = $1 AND used_at <= (
                   SELECT used_at FROM refresh_tokens WHERE grant_id = $1 AND used_at IS NOT NULL
                   ORDER BY used_at DESC LIMIT 1 OFFSET $2)";
    tx.execute(sql, params![grant, USED_KEPT])?;
    Ok(())
}

/// Finds a refresh token and locks it, so that whoever uses it at the same time finds it used.
pub fn lock_refresh(tx: &mut Tx<'_>, token: &Digest) -> Result<Option<Refresh>, Error> {
    let sql = "SELECT grant_id, used_at FROM refresh_tokens WHERE digest = $1";
    let sql = tx.locking(sql);
    let Some(row) = tx.find("refresh_tokens", &sql, params![token])? else { return Ok(None) };
    let used_at = row.opt_time(1)?;
    Ok(find(tx, &GrantId::known(row.text(0)?))?.map(|grant| Refresh { grant, used_at }))
}

/// Marks a refresh token as used. It must be locked and unused.
pub fn use_refresh(tx: &mut Tx<'_>, token: &Digest) -> Result<(), Error> {
    let now = tx.world().now();
    let sql = "UPDATE refresh_tokens SET used_at = $2 WHERE digest = $1";
    tx.execute(sql, params![token, now]).map(drop)
}

/// Revokes a grant and announces it, so that every server forgets its tokens.
pub fn delete(tx: &mut Tx<'_>, id: &GrantId) -> Result<bool, Error> {
    tx.execute("DELETE FROM refresh_tokens WHERE grant_id = $1", params![id])?;
    let gone = tx.execute("DELETE FROM grants WHERE id = $1", params![id])? == 1;
    if gone {
        announce(tx, None, "grant", id.as_str(), Act::Deleted, "")?;
    }
    Ok(gone)
}

/// Revokes the oldest grants of a subject until at most `keep` are left.
pub fn trim(tx: &mut Tx<'_>, subject: &Subject, keep: i64) -> Result<(), Error> {
    let sql = "SELECT id FROM grants WHERE subject_type = $1 AND subject_id = $2
               ORDER BY created_at DESC, id DESC LIMIT $4 OFFSET $3";
    let rows = tx.query(
        "grants",
        sql,
        params![subject.type_name(), subject.as_str(), keep, TRIMMED_AT_ONCE_MAX],
    )?;
    rows.iter().try_for_each(|row| delete(tx, &GrantId::known(row.text(0)?)).map(drop))
}

pub fn delete_of_subject(tx: &mut Tx<'_>, subject: &Subject) -> Result<(), Error> {
    let sql = "SELECT id FROM grants WHERE subject_type = $1 AND subject_id = $2";
    let rows = tx.query("grants", sql, params![subject.type_name(), subject.as_str()])?;
    rows.iter().try_for_each(|row| delete(tx, &GrantId::known(row.text(0)?)).map(drop))
}

pub(super) fn delete_of_client(tx: &mut Tx<'_>, client: &ClientId) -> Result<(), Error> {
    let rows = tx.query("grants", "SELECT id FROM grants WHERE client_id = $1", params![client])?;
    rows.iter().try_for_each(|row| delete(tx, &GrantId::known(row.text(0)?)).map(drop))
}

pub(super) fn delete_expired(tx: &mut Tx<'_>, now: Timestamp) -> Result<u64, Error> {
    let sql = "DELETE FROM refresh_tokens WHERE grant_id IN (SELECT id FROM grants WHERE expires_at <= $1)";
    tx.execute(sql, params![now])?;
    tx.execute("DELETE FROM grants WHERE expires_at <= $1", params![now])
}
