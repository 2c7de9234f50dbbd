//! Public keys of others, which only verify.

use crate::token::Token;
use crate::{BASE64, EDDSA, ES256, RS256};
use base64::Engine as _;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

/// A JSON Web Key. Which members it has depends on its type.
#[derive(Debug, Clone, Deserialize)]
pub struct PublicKey {
    kty: String,
    kid: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    crv: Option<String>,
}

impl PublicKey {
    /// Returns true if this key signed the token. Always false if the token names another key.
    pub fn verifies(&self, token: &Token<'_>) -> bool {
        let named = token.header.kid.is_none() || self.kid == token.header.kid;
        named && self.check(token).is_some()
    }

    /// Verifies the signature. The key's type decides which algorithm is allowed, so that a token
    /// cannot choose a weaker one.
    fn check(&self, token: &Token<'_>) -> Option<()> {
        let part = |text: &Option<String>| BASE64.decode(text.as_deref()?).ok();
        let (message, signature) = (token.signed.as_bytes(), token.signature.as_slice());
        let curve = self.crv.as_deref();
        match (self.kty.as_str(), token.header.alg.as_str()) {
            ("RSA", RS256) => {
                let public = RsaPublicKeyComponents { n: part(&self.n)?, e: part(&self.e)? };
                public.verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature).ok()
            }
            ("EC", ES256) if curve == Some("P-256") => {
                let point = [&[4], part(&self.x)?.as_slice(), part(&self.y)?.as_slice()].concat();
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature)
                    .ok()
            }
            ("OKP", EDDSA) if curve == Some("Ed25519") => {
                UnparsedPublicKey::new(&signature::ED25519, part(&self.x)?)
                    .verify(message, signature)
                    .ok()
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ed25519;
    use serde_json::{Value, json};

    fn key(id: &str) -> (Ed25519, PublicKey) {
        let pair = Ed25519::from_seed(&[9; 32]).unwrap();
        let public = serde_json::from_value(pair.jwk(id)).unwrap();
        (pair, public)
    }

    #[test]
    fn what_a_key_signs_its_public_half_verifies() {
        let (pair, public) = key("k");
        let text = pair.sign("JWT", "k", &json!({"sub": "a"})).unwrap();
        let token = Token::parse(&text).unwrap();
        assert!(pair.verifies(&token) && public.verifies(&token));
        assert_eq!(token.claims::<Value>().unwrap(), json!({"sub": "a"}));
    }

    #[test]
    fn another_key_or_algorithm_is_refused() {
        let (pair, _) = key("k");
        let (_, other) = key("other");
        let text = pair.sign("JWT", "k", &json!({})).unwrap();
        assert!(!other.verifies(&Token::parse(&text).unwrap()), "the token names another key");
        let (_, rest) = text.split_once('.').unwrap();
        for algorithm in ["none", "HS256", "ES256", "RS256"] {
            let header = BASE64.encode(json!({"alg": algorithm, "kid": "k"}).to_string());
            let forged = format!("{header}.{rest}");
            let forged = Token::parse(&forged).unwrap();
            assert!(!key("k").1.verifies(&forged) && !pair.verifies(&forged), "{algorithm}");
        }
    }
}
