//! JSON Web Tokens in the only form that we issue and accept: EdDSA over Ed25519, with a named key
//! and all claims required.

use crate::{Denied, ScopeSet};
use base64::Engine;
use jose::{BASE64, Ed25519, Token};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::identity::Subject;
use types::Timestamp;
use types::ids::{ClientId, GrantId, ServiceAccountId, UserId};

/// Token type, so that no other kind of token can be mistaken for an access token (RFC 9068).
const TYPE: &str = "at+jwt";
/// How long an access token is valid.
pub(crate) const ACCESS_LIFE_S: i64 = 2 * 3600;
/// Greatest difference between the clocks of servers.
const SKEW_S: i64 = 60;

/// Content of an access token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    pub(crate) iss: String,
    pub(crate) aud: String,
    pub(crate) sub: String,
    pub(crate) sub_type: String,
    pub(crate) client_id: String,
    pub(crate) iat: i64,
    pub(crate) exp: i64,
    pub(crate) jti: String,
    pub(crate) scope: String,
    /// Id of the grant; deleting the grant revokes the token.
    pub(crate) sid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<String>,
}

impl Claims {
    pub(crate) fn subject(&self) -> Option<Subject> {
        match self.sub_type.as_str() {
            "user" => Some(Subject::User(UserId::known(self.sub.as_str()))),
            "service_account" => {
                Some(Subject::ServiceAccount(ServiceAccountId::known(self.sub.as_str())))
            }
            _ => None,
        }
    }

    pub(crate) fn grant(&self) -> GrantId {
        GrantId::known(self.sid.as_str())
    }

    pub(crate) fn client(&self) -> ClientId {
        ClientId::known(self.client_id.as_str())
    }

    pub(crate) fn scopes(&self) -> Option<ScopeSet> {
        ScopeSet::parse(&self.scope).ok()
    }

    pub(crate) fn expires_at(&self) -> Timestamp {
        Timestamp::from_ms(self.exp.saturating_mul(1000))
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadToken {
    /// Not one of ours: wrong form, algorithm, key, signature, issuer or audience.
    Foreign,
    Expired,
}

impl From<BadToken> for Denied {
    fn from(bad: BadToken) -> Self {
        match bad {
            BadToken::Foreign => Self::Unknown,
            BadToken::Expired => Self::Expired,
        }
    }
}

/// A key with which tokens are signed or verified.
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) pair: Ed25519,
    pub(crate) retires_at: Option<Timestamp>,
}

impl Key {
    /// Makes a key from a `seed` of 32 bytes in base64url; `None` if it is anything else.
    pub(crate) fn new(id: &str, seed: &str, retires_at: Option<Timestamp>) -> Option<Self> {
        let seed = BASE64.decode(seed).ok()?;
        let pair = Ed25519::from_seed(&seed).ok()?;
        Some(Self { id: id.to_owned(), pair, retires_at })
    }

    pub(crate) fn sign(&self, claims: &Claims) -> Result<String, serde_json::Error> {
        self.pair.sign(TYPE, &self.id, claims)
    }
}

/// Returns the `kid` of a text that looks like one of our access tokens.
pub(crate) fn key_id(token: &str) -> Option<String> {
    key_id_of(token, TYPE)
}

/// Returns the `kid` of a text that looks like one of our tokens of this type.
pub(crate) fn key_id_of(token: &str, typ: &str) -> Option<String> {
    let header = Token::parse(token)?.header;
    header.kid.filter(|_| header.typ.as_deref() == Some(typ))
}

/// Checks everything about a token that needs no store. `key` must be the one that its header
/// names.
pub(crate) fn verify(
    token: &str,
    key: &Key,
    issuer: &str,
    now: Timestamp,
) -> Result<Claims, BadToken> {
    let claims: Claims = signed_claims(token, TYPE, key).ok_or(BadToken::Foreign)?;
    if claims.iss != issuer || claims.aud != issuer {
        return Err(BadToken::Foreign);
    }
    in_time((claims.iat, claims.exp), now)?;
    Ok(claims)
}

/// Returns the claims of a token of this type, if `key` signed it.
pub(crate) fn signed_claims<C: DeserializeOwned>(token: &str, typ: &str, key: &Key) -> Option<C> {
    if key_id_of(token, typ)? != key.id {
        return None;
    }
    let token = Token::parse(token)?;
    key.pair.verifies(&token).then(|| token.claims())?
}

/// Refuses a token from the future, and one that has expired.
pub(crate) fn in_time((issued, expires): (i64, i64), now: Timestamp) -> Result<(), BadToken> {
    if issued > now.seconds() + SKEW_S {
        return Err(BadToken::Foreign);
    }
    let over = Timestamp::from_ms(expires.saturating_mul(1000)) <= now;
    if over { Err(BadToken::Expired) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ISSUER: &str = "https://holm.example";
    const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_000);

    fn key() -> Key {
        Key::new("k1", &BASE64.encode([7; 32]), None).unwrap()
    }

    fn claims() -> Claims {
        Claims {
            iss: ISSUER.into(),
            aud: ISSUER.into(),
            sub: "usr_1".into(),
            sub_type: "user".into(),
            client_id: "blaxel".into(),
            iat: NOW.seconds(),
            exp: NOW.seconds() + 7200,
            jti: "j".into(),
            scope: "admin".into(),
            sid: "grt_1".into(),
            workspace: None,
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Claims), expected: Result<(), BadToken>) {
        let mut changed = claims();
        change(&mut changed);
        let token = key().sign(&changed).unwrap();
        assert_eq!(verify(&token, &key(), ISSUER, NOW).map(drop), expected);
    }

    #[test]
    fn only_present_tokens_of_this_issuer_are_taken() {
        check(|_| {}, Ok(()));
        check(|claims| claims.iss = "https://other.example".into(), Err(BadToken::Foreign));
        check(|claims| claims.aud = "https://other.example".into(), Err(BadToken::Foreign));
        check(|claims| claims.iat = NOW.seconds() + SKEW_S + 1, Err(BadToken::Foreign));
        check(|claims| claims.exp = NOW.seconds(), Err(BadToken::Expired));
        check(|claims| claims.exp = i64::MAX, Ok(()));
    }

    #[test]
    fn another_algorithm_type_or_key_is_refused() {
        let token = key().sign(&claims()).unwrap();
        let (_, rest) = token.split_once('.').unwrap();
        for header in [
            r#"{"alg":"none","typ":"at+jwt","kid":"k1"}"#,
            r#"{"alg":"HS256","typ":"at+jwt","kid":"k1"}"#,
            r#"{"alg":"EdDSA","typ":"JWT","kid":"k1"}"#,
            r#"{"alg":"EdDSA","typ":"at+jwt","kid":"k2"}"#,
            r#"{"alg":"EdDSA","typ":"at+jwt"}"#,
        ] {
            let forged = format!("{}.{rest}", BASE64.encode(header));
            assert_eq!(verify(&forged, &key(), ISSUER, NOW), Err(BadToken::Foreign), "{header}");
        }
        let unsigned = format!("{}.", token.rsplit_once('.').unwrap().0);
        assert_eq!(verify(&unsigned, &key(), ISSUER, NOW), Err(BadToken::Foreign));
    }

    proptest! {
        #[test]
        fn a_tampered_token_is_refused(position in 0..400usize, byte in 33..127u8) {
            let token = key().sign(&claims()).unwrap();
            let mut bytes = token.clone().into_bytes();
            let position = position % bytes.len();
            bytes[position] = byte;
            let tampered = String::from_utf8(bytes).unwrap();
            prop_assert_eq!(verify(&tampered, &key(), ISSUER, NOW).is_ok(), tampered == token);
        }

        #[test]
        fn any_text_is_refused(text in "[A-Za-z0-9_.-]{0,80}|.{0,40}") {
            prop_assert!(verify(&text, &key(), ISSUER, NOW).is_err());
        }
    }
}
