//! API keys. Revoking deletes the row.

use super::{Digest, Subject, announce};
use crate::feed::Act;
use crate::{Error, Row, Tx, params};
use types::Timestamp;
use types::ids::ApiKeyId;
use types::models::KeyModels;

#[derive(Debug, Clone)]
pub struct ApiKey {
    pub id: ApiKeyId,
    pub digest: Digest,
    pub name: String,
    pub subject: Subject,
    /// Lifetime as its owner wrote it, such as `30d`.
    pub expires_in: Option<String>,
    pub expires_at: Option<Timestamp>,
    /// Models and budget of a key that is for models only.
    pub models: Option<KeyModels>,
    pub created_at: Timestamp,
    pub created_by: String,
}

const COLUMNS: &str = "id, digest, name, subject_type, subject_id, expires_in, expires_at, created_at, created_by, models";

fn read(row: &Row) -> Result<ApiKey, Error> {
    Ok(ApiKey {
        id: ApiKeyId::known(row.text(0)?),
        digest: Digest::read(row, 1)?,
        name: row.text(2)?,
        subject: Subject::read(row, 3, 4)?,
        expires_in: row.opt_text(5)?,
        expires_at: row.opt_time(6)?,
        created_at: row.time(7)?,
        created_by: row.text(8)?,
        models: row.opt_text(9)?.map(|text| read_models(&row.text(0)?, &text)).transpose()?,
    })
}

/// Reads the models of a key. A text that cannot be read is an error, so that the key opens nothing
/// rather than everything.
fn read_models(id: &str, text: &str) -> Result<KeyModels, Error> {
    serde_json::from_str(text).map_err(|error| Error::corrupt("api_keys", id, error))
}

pub fn create(tx: &mut Tx<'_>, key: &ApiKey) -> Result<(), Error> {
    let sql = format!(
        "INSERT INTO api_keys ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
    );
    let models = key.models.as_ref().map(serde_json::to_string).transpose();
    let models = models.map_err(|error| Error::corrupt("api_keys", key.id.as_str(), error))?;
    tx.execute(
        &sql,
        params![
            &key.id,
            &key.digest,
            key.name.as_str(),
            key.subject.type_name(),
            key.subject.as_str(),
            key.expires_in.as_deref(),
            key.expires_at,
            key.created_at,
            key.created_by.as_str(),
            models
        ],
    )?;
    announce(tx, None, "api-key", key.id.as_str(), Act::Created, &key.created_by)
}

/// Keeps the key itself, sealed, for checking signatures that were made with it.
pub fn keep_secret(tx: &mut Tx<'_>, id: &ApiKeyId, secret: &str) -> Result<(), Error> {
    let sealed = tx.shared().keyring.read().seal(&seal_context(id), secret)?;
    let sql = "INSERT INTO api_key_secrets (key_id, secret) VALUES ($1, $2)";
    tx.execute(sql, params![id, sealed])?;
    Ok(())
}

/// Returns the key itself, if it was kept.
pub fn secret(tx: &mut Tx<'_>, id: &ApiKeyId) -> Result<Option<String>, Error> {
    let sql = "SELECT secret FROM api_key_secrets WHERE key_id = $1";
    let Some(row) = tx.find("api_key_secrets", sql, params![id])? else { return Ok(None) };
    tx.shared().keyring.read().open(&seal_context(id), &row.text(0)?).map(Some)
}

fn seal_context(id: &ApiKeyId) -> String {
    format!("api_key_secrets/{id}")
}

pub fn find_by_digest(tx: &mut Tx<'_>, digest: &Digest) -> Result<Option<ApiKey>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM api_keys WHERE digest = $1");
    tx.find("api_keys", &sql, params![digest])?.as_ref().map(read).transpose()
}

/// Finds a key, whoever owns it.
pub fn find(tx: &mut Tx<'_>, id: &ApiKeyId) -> Result<Option<ApiKey>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM api_keys WHERE id = $1");
    tx.find("api_keys", &sql, params![id])?.as_ref().map(read).transpose()
}

pub fn list(tx: &mut Tx<'_>, subject: &Subject) -> Result<Vec<ApiKey>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM api_keys WHERE subject_type = $1 AND subject_id = $2 ORDER BY created_at, id"
    );
    tx.query("api_keys", &sql, params![subject.type_name(), subject.as_str()])?
        .iter()
        .map(read)
        .collect()
}

/// Deletes a key of `subject`; a key of anybody else is treated as missing.
pub fn delete(tx: &mut Tx<'_>, subject: &Subject, id: &ApiKeyId, by: &str) -> Result<bool, Error> {
    let sql = "DELETE FROM api_keys WHERE subject_type = $1 AND subject_id = $2 AND id = $3";
    let gone = tx.execute(sql, params![subject.type_name(), subject.as_str(), id])? == 1;
    if gone {
        let sql = "DELETE FROM api_key_secrets WHERE key_id = $1";
        tx.execute(sql, params![id])?;
        announce(tx, None, "api-key", id.as_str(), Act::Deleted, by)?;
    }
    Ok(gone)
}

pub(super) fn delete_of_subject(tx: &mut Tx<'_>, subject: &Subject) -> Result<(), Error> {
    let sql = "DELETE FROM api_key_secrets WHERE key_id IN
               (SELECT id FROM api_keys WHERE subject_type = $1 AND subject_id = $2)";
    tx.execute(sql, params![subject.type_name(), subject.as_str()])?;
    let sql = "DELETE FROM api_keys WHERE subject_type = $1 AND subject_id = $2";
    tx.execute(sql, params![subject.type_name(), subject.as_str()])?;
    Ok(())
}
