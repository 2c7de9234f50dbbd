//! API keys of people and of service accounts.

use crate::{
    Denied, Error, Grant, Identity, Member, Subject, identity, secrets, service_accounts,
    workspaces,
};
use std::sync::Arc;
use store::Tx;
use store::identity::Digest;
use store::identity::api_keys;
pub use store::identity::api_keys::ApiKey;
use types::ids::{ApiKeyId, ServiceAccountId};
use types::models::KeyModels;
use types::parts::duration;
use types::{Scope, Verb};
use zeroize::Zeroizing;

/// Most keys of one person or service account.
const PER_SUBJECT_MAX: usize = 1000;

/// Properties of a new key.
#[derive(Debug, Clone, Default)]
pub struct NewKey {
    pub name: String,
    /// Lifetime, such as `30d`. The key never expires if absent or empty.
    pub expires_in: Option<String>,
    /// Models and budget, for a key that is for models only.
    pub models: Option<KeyModels>,
}

/// Creates a personal key. The second value is the key itself, which cannot be read again.
pub fn create(tx: &mut Tx<'_>, who: &Identity, new: NewKey) -> Result<(ApiKey, String), Error> {
    let subject = Subject::User(who.person()?.clone());
    may_create(who, &new)?;
    create_for(tx, subject, new, &who.name)
}

/// Refuses tokens that may do less than the new key. One for models alone does what the scope
/// `models:get` allows.
fn may_create(who: &Identity, new: &NewKey) -> Result<(), Denied> {
    match new.models {
        Some(_) => who.may(&[Scope::Models(Verb::Get)]),
        None => who.unlimited(),
    }
}

/// Creates a key of a service account, for admins of its workspace.
pub fn create_of_service_account(
    tx: &mut Tx<'_>,
    member: &Member,
    id: &ServiceAccountId,
    new: NewKey,
) -> Result<(ApiKey, String), Error> {
    member.admin()?;
    workspaces::keep(tx, member)?;
    let subject = owned(tx, member, id)?;
    may_create(&member.who, &new)?;
    let signs = new.models.is_none();
    let (key, value) = create_for(tx, subject, new, &member.who.name)?;
    if signs {
        api_keys::keep_secret(tx, &key.id, &value)?;
    }
    Ok((key, value))
}

/// The key of a service account that signs requests, found by its id.
pub struct SigningKey {
    pub identity: Arc<Identity>,
    /// The key itself.
    pub secret: Zeroizing<String>,
}

/// Why no signing key belongs to an id.
#[derive(Debug, thiserror::Error)]
pub enum NoSigningKey {
    #[error("there is no such key, or it has expired")]
    Unknown,
    #[error("{}", Denied::ForModels)]
    ForModels,
    #[error("only API keys of service accounts sign requests; this one is a person's")]
    NotServiceAccount,
    #[error("the key was made before this server kept keys for signing; make a new one")]
    NotKept,
    #[error("the key could not be looked up")]
    Store(#[from] store::Error),
}

/// Finds the key with which a request was signed. The caller has not proven anything yet.
pub fn signing_key(tx: &mut Tx<'_>, id: &str) -> Result<SigningKey, NoSigningKey> {
    let (id, now) = (ApiKeyId::known(id.to_owned()), tx.world().now());
    let good = |key: &ApiKey| key.expires_at.is_none_or(|end| end > now);
    let key = api_keys::find(tx, &id)?.filter(good).ok_or(NoSigningKey::Unknown)?;
    if key.models.is_some() {
        return Err(NoSigningKey::ForModels);
    }
    if !matches!(key.subject, Subject::ServiceAccount(_)) {
        return Err(NoSigningKey::NotServiceAccount);
    }
    let secret = api_keys::secret(tx, &id)?.ok_or(NoSigningKey::NotKept)?;
    let identity = identity::load(tx, &key.subject, Grant::Key, Some(key.id))?;
    let identity = Arc::new(identity.ok_or(NoSigningKey::Unknown)?);
    Ok(SigningKey { identity, secret: Zeroizing::new(secret) })
}

pub(crate) fn create_for(
    tx: &mut Tx<'_>,
    subject: Subject,
    new: NewKey,
    by: &str,
) -> Result<(ApiKey, String), Error> {
    let value = secrets::new_api_key(tx.world());
    let key = create_with(tx, subject, new, by, &value)?;
    Ok((key, value))
}

/// Creates a key from a value that was generated before.
pub(crate) fn create_with(
    tx: &mut Tx<'_>,
    subject: Subject,
    new: NewKey,
    by: &str,
    value: &str,
) -> Result<ApiKey, Error> {
    let now = tx.world().now();
    let expires_in = new.expires_in.filter(|text| !text.is_empty());
    let life_s = expires_in.as_deref().map(duration::parse_s).transpose();
    let life_s = life_s.map_err(|error| Error::invalid("expires_in", error.to_string()))?;
    if api_keys::list(tx, &subject)?.len() >= PER_SUBJECT_MAX {
        return Err(Error::TooMany { what: "API keys", limit: PER_SUBJECT_MAX });
    }
    let key = ApiKey {
        id: ApiKeyId::new(tx.world()),
        digest: Digest::of(value),
        name: new.name,
        subject,
        expires_in,
        expires_at: life_s.map(|life_s| now.plus_s(life_s)),
        models: new.models,
        created_at: now,
        created_by: by.to_owned(),
    };
    api_keys::create(tx, &key)?;
    Ok(key)
}

/// Lists the caller's own keys.
pub fn list(tx: &mut Tx<'_>, who: &Identity) -> Result<Vec<ApiKey>, Error> {
    Ok(api_keys::list(tx, &who.subject)?)
}

pub fn list_of_service_account(
    tx: &mut Tx<'_>,
    member: &Member,
    id: &ServiceAccountId,
) -> Result<Vec<ApiKey>, Error> {
    service_accounts::get(tx, member, id)?;
    Ok(api_keys::list(tx, &Subject::ServiceAccount(id.clone()))?)
}

/// Revokes one of the caller's own keys immediately.
pub fn delete(tx: &mut Tx<'_>, who: &Identity, id: &ApiKeyId) -> Result<(), Error> {
    let subject = Subject::User(who.person()?.clone());
    delete_of(tx, &subject, id, &who.name)
}

/// Revokes a key of a service account immediately.
pub fn delete_of_service_account(
    tx: &mut Tx<'_>,
    member: &Member,
    id: &ServiceAccountId,
    key: &ApiKeyId,
) -> Result<(), Error> {
    let subject = owned(tx, member, id)?;
    delete_of(tx, &subject, key, &member.who.name)
}

fn owned(tx: &mut Tx<'_>, member: &Member, id: &ServiceAccountId) -> Result<Subject, Error> {
    member.admin()?;
    service_accounts::get(tx, member, id)?;
    Ok(Subject::ServiceAccount(id.clone()))
}

fn delete_of(tx: &mut Tx<'_>, subject: &Subject, id: &ApiKeyId, by: &str) -> Result<(), Error> {
    if api_keys::delete(tx, subject, id, by)? {
        Ok(())
    } else {
        Err(Error::not_found("API key", id.as_str()))
    }
}
