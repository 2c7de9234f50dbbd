use crate::{Error, Row, Value};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use std::fmt;
use types::ids::{ServiceAccountId, UserId};
use types::wire::Role;

/// The person or program that a credential stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    User(UserId),
    ServiceAccount(ServiceAccountId),
}

impl Subject {
    /// Returns the `sub` of tokens.
    pub fn as_str(&self) -> &str {
        match self {
            Self::User(id) => id.as_str(),
            Self::ServiceAccount(id) => id.as_str(),
        }
    }

    /// Returns the `sub_type` of API keys.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::ServiceAccount(_) => "service_account",
        }
    }

    pub(crate) fn read(row: &Row, type_column: usize, id_column: usize) -> Result<Self, Error> {
        let id = row.text(id_column)?;
        match row.text(type_column)?.as_str() {
            "user" => Ok(Self::User(UserId::known(id))),
            "service_account" => Ok(Self::ServiceAccount(ServiceAccountId::known(id))),
            other => Err(Error::corrupt(row.table, id, format!("unknown subject type `{other}`"))),
        }
    }
}

pub(super) fn read_role(row: &Row, column: usize) -> Result<Role, Error> {
    let name = row.text(column)?;
    Role::parse(&name).ok_or_else(|| {
        Error::corrupt(row.table, row.text(0).unwrap_or_default(), format!("role `{name}`"))
    })
}

/// SHA-256 of a secret that only needs comparing. The secrets are long and random, so they need no
/// salt.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(super) fn read(row: &Row, column: usize) -> Result<Self, Error> {
        Self::opt_read(row, column)?.ok_or_else(|| Error::corrupt(row.table, "?", "no digest"))
    }

    pub(super) fn opt_read(row: &Row, column: usize) -> Result<Option<Self>, Error> {
        let Some(text) = row.opt_text(column)? else { return Ok(None) };
        let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(|bytes| Some(Self(bytes)))
            .ok_or_else(|| Error::corrupt(row.table, "?", "not a digest"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}

impl From<&Digest> for Value {
    fn from(digest: &Digest) -> Self {
        Self::Text(URL_SAFE_NO_PAD.encode(digest.0))
    }
}
