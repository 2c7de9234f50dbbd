//! Checking ID tokens of the provider.

use super::provider::Provider;
use crate::secrets;
use jose::{PublicKey, Token};
use serde::Deserialize;
use serde_json::Value;
use types::Timestamp;

const SKEW_S: i64 = 60;

#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    iss: String,
    aud: Audience,
    azp: Option<String>,
    exp: i64,
    nonce: String,
    email: Option<String>,
    email_verified: Option<Value>,
    #[serde(default)]
    pub(super) given_name: String,
    #[serde(default)]
    pub(super) family_name: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Claims {
    /// Returns the address if it is verified. Some providers write that flag as a text.
    pub(super) fn verified_email(&self) -> Option<&str> {
        let verified = match self.email_verified.as_ref()? {
            Value::Bool(verified) => *verified,
            Value::String(text) => text == "true",
            _ => false,
        };
        self.email.as_deref().filter(|email| verified && email.contains('@'))
    }

    fn is_for(&self, client: &str) -> bool {
        match &self.aud {
            Audience::One(audience) => audience == client,
            Audience::Many(all) if all.len() == 1 => all.iter().any(|audience| audience == client),
            Audience::Many(all) => {
                all.iter().any(|audience| audience == client) && self.azp.as_deref() == Some(client)
            }
        }
    }
}

/// Returns the claims of a token that the provider issued to us for this nonce and that has not
/// expired. The error says what is wrong.
pub(super) fn verify(
    token: &str,
    keys: &[PublicKey],
    provider: &Provider,
    nonce: &str,
    now: Timestamp,
) -> Result<Claims, &'static str> {
    let claims = signed_claims(token, keys).ok_or("its form, key or signature is wrong")?;
    if claims.iss != provider.issuer {
        return Err("it comes from another issuer");
    }
    if !claims.is_for(&provider.client_id) {
        return Err("it is for somebody else");
    }
    if claims.exp.saturating_add(SKEW_S) <= now.seconds() {
        return Err("it has expired");
    }
    if !secrets::same(&claims.nonce, nonce) {
        return Err("it belongs to another sign-in");
    }
    Ok(claims)
}

fn signed_claims(token: &str, keys: &[PublicKey]) -> Option<Claims> {
    let token = Token::parse(token)?;
    keys.iter().any(|key| key.verifies(&token)).then(|| token.claims())?
}
