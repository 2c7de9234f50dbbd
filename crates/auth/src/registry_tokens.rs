//! Registry tokens, which programs that push and pull get instead of a key: valid for a few
//! minutes, and only for what they asked for.
//!
//! A token names the credential that it was issued for. At each use it allows no more than that
//! credential does at that moment, and it ends with it. It is not an access token, and is only
//! valid at the registry.

use crate::identity::{self, Grant, Identity};
use crate::jwt;
use crate::{Auth, Denied, ScopeSet};
use jose::Token;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use store::Tx;
use store::identity::{api_keys, grants};
use types::Timestamp;
use types::ids::{ApiKeyId, GrantId, WorkspaceId};

/// Token type, so that access tokens and registry tokens cannot be mistaken for each other.
const TYPE: &str = "registry+jwt";
/// Lifetime of a token. Programs ask for one before each push and pull, and again when it has
/// expired.
pub const LIFE_S: i64 = 300;

/// Something that a token gives access to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Access {
    Repository {
        /// Name as the caller wrote it.
        name: String,
        /// Workspace that had the name at that time; another one may get it later.
        workspace: WorkspaceId,
        actions: Vec<Action>,
    },
    /// The list of repositories.
    Catalog,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Pull,
    Push,
    Delete,
}

/// The credential behind a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bond {
    Key(ApiKeyId),
    /// An access token: its grant, its scopes and its expiry in seconds.
    Grant {
        id: GrantId,
        scope: String,
        until: i64,
    },
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    sub: String,
    iat: i64,
    exp: i64,
    access: Vec<Access>,
    bond: Bond,
}

/// The holder of a registry token.
pub struct Bearer {
    pub identity: Arc<Identity>,
    pub access: Vec<Access>,
    pub bond: Bond,
}

/// A token that was just issued.
pub struct Issued {
    pub token: String,
    pub issued_at: Timestamp,
}

impl Auth {
    /// Issues a token that gives `access` to `identity`, who has shown `credential`.
    pub async fn registry_token(
        &self,
        identity: &Identity,
        credential: &str,
        access: Vec<Access>,
    ) -> Result<Issued, Denied> {
        let bond = match &identity.key {
            Some(key) => Bond::Key(key.clone()),
            None => {
                let claims = self.verify(credential).await?;
                let (id, until) = (claims.grant(), claims.exp);
                Bond::Grant { id, scope: claims.scope, until }
            }
        };
        let issued_at = self.world().now();
        let claims = Claims {
            iss: self.issuer().to_owned(),
            aud: self.registry_audience(),
            sub: identity.subject.as_str().to_owned(),
            iat: issued_at.seconds(),
            exp: issued_at.seconds() + LIFE_S,
            access,
            bond,
        };
        let broken = |what: String| Denied::Store(store::Error::Seal(what));
        let key = self.keys().signer().ok_or_else(|| broken("there is no signing key".into()))?;
        let signed = key.pair.sign(TYPE, &key.id, &claims);
        let token = signed.map_err(|error| broken(format!("a token was not signed: {error}")))?;
        Ok(Issued { token, issued_at })
    }

    /// Returns who a registry token stands for, and what it gives access to; `None` if it is not
    /// one.
    pub async fn identify_registry(&self, token: &str) -> Result<Option<Bearer>, Denied> {
        if token.len() > crate::auth::CREDENTIAL_BYTES_MAX || !is_one(token) {
            return Ok(None);
        }
        let id = jwt::key_id_of(token, TYPE).ok_or(Denied::Unknown)?;
        let key = self.verifying_key(&id).await?;
        let claims: Claims = jwt::signed_claims(token, TYPE, &key).ok_or(Denied::Unknown)?;
        if claims.iss != self.issuer() || claims.aud != self.registry_audience() {
            return Err(Denied::Unknown);
        }
        jwt::in_time((claims.iat, claims.exp), self.world().now())?;
        let identity = self.identify_bond(&claims.bond).await?;
        Ok(Some(Bearer { identity, access: claims.access, bond: claims.bond }))
    }

    /// Returns the present identity behind a token's credential.
    pub(crate) async fn identify_bond(&self, bond: &Bond) -> Result<Arc<Identity>, Denied> {
        let bond = bond.clone();
        let (identity, expires_at) = self.store().read(move |tx| behind(tx, &bond)).await?;
        match expires_at {
            Some(at) if at <= self.world().now() => Err(Denied::Expired),
            _ => Ok(Arc::new(identity)),
        }
    }

    fn registry_audience(&self) -> String {
        format!("{}/v2/", self.issuer())
    }
}

fn is_one(token: &str) -> bool {
    Token::parse(token).is_some_and(|token| token.header.typ.as_deref() == Some(TYPE))
}

fn behind(tx: &mut Tx<'_>, bond: &Bond) -> Result<(Identity, Option<Timestamp>), Denied> {
    let (identity, expires_at) = match bond {
        Bond::Key(id) => {
            let key = api_keys::find(tx, id)?.ok_or(Denied::Unknown)?;
            (identity::load(tx, &key.subject, Grant::Key, Some(key.id))?, key.expires_at)
        }
        Bond::Grant { id, scope, until } => {
            let grant = grants::find(tx, id)?.ok_or(Denied::Unknown)?;
            let scopes = ScopeSet::parse(scope).map_err(|_| Denied::Unknown)?;
            let identity = identity::load(tx, &grant.subject, Grant::Token(scopes), None)?;
            (identity, Some(Timestamp::from_ms(until.saturating_mul(1000))))
        }
    };
    Ok((identity.ok_or(Denied::Unknown)?, expires_at))
}
