//! Checking ID tokens of the provider.

use super::Provider;
use super::wire::PublicKey;
use crate::secrets;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;
use types::Timestamp;

const SKEW_S: i64 = 60;

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
}

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
    /// Some providers write the flag as a text.
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

/// The claims of a token that the provider made for us, now, for this nonce. The error says what is
/// wrong.
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
    if claims.exp + SKEW_S <= now.seconds() {
        return Err("it has expired");
    }
    if !secrets::same(&claims.nonce, nonce) {
        return Err("it belongs to another sign-in");
    }
    Ok(claims)
}

fn signed_claims(token: &str, keys: &[PublicKey]) -> Option<Claims> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let header: Header = serde_json::from_slice(&BASE64.decode(header).ok()?).ok()?;
    let signature = BASE64.decode(signature).ok()?;
    let named = |key: &&PublicKey| header.kid.is_none() || key.kid == header.kid;
    let mut candidates = keys.iter().filter(named);
    candidates
        .any(|key| signs(key, &header.alg, signed.as_bytes(), &signature).is_some())
        .then_some(())?;
    serde_json::from_slice(&BASE64.decode(claims).ok()?).ok()
}

/// The key's type decides what the algorithm may be, so that a token cannot choose a weaker one.
fn signs(key: &PublicKey, algorithm: &str, message: &[u8], signature: &[u8]) -> Option<()> {
    let part = |text: &Option<String>| BASE64.decode(text.as_deref()?).ok();
    match (key.kty.as_str(), algorithm) {
        ("RSA", "RS256") => {
            let public = RsaPublicKeyComponents { n: part(&key.n)?, e: part(&key.e)? };
            public.verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature).ok()
        }
        ("EC", "ES256") if key.crv.as_deref() == Some("P-256") => {
            let point = [&[4], part(&key.x)?.as_slice(), part(&key.y)?.as_slice()].concat();
            UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                .verify(message, signature)
                .ok()
        }
        ("OKP", "EdDSA") if key.crv.as_deref() == Some("Ed25519") => {
            UnparsedPublicKey::new(&signature::ED25519, part(&key.x)?)
                .verify(message, signature)
                .ok()
        }
        _ => None,
    }
}
