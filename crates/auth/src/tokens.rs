//! Issuing access and refresh tokens.

use crate::jwt::{ACCESS_LIFE_S, Claims};
use crate::{Auth, Denied, ScopeSet, Subject, identity, secrets};
use serde::Serialize;
use std::fmt;
use store::Tx;
use store::identity::Digest;
use store::identity::grants::{self, Grant};
use types::ids::{ClientId, GrantId};

const REFRESH_LIFE_S: i64 = 30 * 24 * 3600;

/// The answer of the token endpoint. Published clients refuse any additional member.
#[derive(Clone, Serialize)]
pub struct Tokens {
    pub access_token: String,
    pub token_type: &'static str,
    pub expires_in: i64,
    pub refresh_token: String,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens(…)")
    }
}

/// Most grants of one person or service account; the oldest are revoked when there are more.
const GRANTS_PER_SUBJECT_MAX: i64 = 10_000;

/// Records that `client` was granted `scopes` on behalf of `subject`.
pub(crate) fn grant(
    tx: &mut Tx<'_>,
    client: &ClientId,
    subject: Subject,
    scopes: ScopeSet,
) -> Result<Grant, store::Error> {
    let now = tx.world().now();
    let grant = Grant {
        id: GrantId::new(tx.world()),
        client: client.clone(),
        subject,
        scope: scopes.to_string(),
        created_at: now,
        expires_at: now.plus_s(REFRESH_LIFE_S),
    };
    grants::trim(tx, &grant.subject, GRANTS_PER_SUBJECT_MAX - 1)?;
    grants::create(tx, &grant)?;
    Ok(grant)
}

/// Issues tokens for a grant. `scopes` may be narrower than those of the grant.
pub(crate) fn issue(
    auth: &Auth,
    tx: &mut Tx<'_>,
    grant: &Grant,
    scopes: ScopeSet,
) -> Result<Tokens, Denied> {
    let (world, now) = (tx.world().clone(), tx.world().now());
    let who = identity::load(tx, &grant.subject, identity::Grant::Token(scopes), None)?
        .ok_or(Denied::Unknown)?;
    let workspace = match &grant.subject {
        Subject::User(_) => None,
        Subject::ServiceAccount(_) => {
            who.memberships.first().map(|membership| membership.workspace_name.clone())
        }
    };
    let claims = Claims {
        iss: auth.issuer().to_owned(),
        aud: auth.issuer().to_owned(),
        sub: grant.subject.as_str().to_owned(),
        sub_type: grant.subject.type_name().to_owned(),
        client_id: grant.client.as_str().to_owned(),
        iat: now.seconds(),
        exp: now.seconds() + ACCESS_LIFE_S,
        jti: world.random_text(20),
        scope: scopes.to_string(),
        sid: grant.id.as_str().to_owned(),
        workspace,
    };
    let key =
        auth.keys().signer().ok_or_else(|| store::Error::Seal("there is no signing key".into()))?;
    let access_token = key
        .sign(&claims)
        .map_err(|error| store::Error::Seal(format!("a token was not signed: {error}")))?;
    let refresh_token = secrets::new_secret(&world, "hr");
    grants::add_refresh(tx, &grant.id, &Digest::of(&refresh_token), now.plus_s(REFRESH_LIFE_S))?;
    Ok(Tokens { access_token, token_type: "Bearer", expires_in: ACCESS_LIFE_S, refresh_token })
}
