//! Keys that sign.

use crate::token::{self, Header, Token};
use crate::{BASE64, EDDSA, RS256};
use base64::Engine as _;
use ring::rand::SystemRandom;
use ring::signature::UnparsedPublicKey;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Serialize;
use serde_json::{Value, json};

/// These bytes are no key of the kind that is asked for. What is wrong with them is not told: it
/// would be about a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not a key")]
pub struct BadKey;

/// A pair of keys of Ed25519: signs, and checks what it signed itself.
pub struct Ed25519(Ed25519KeyPair);

impl Ed25519 {
    /// `seed`: 32 bytes.
    pub fn from_seed(seed: &[u8]) -> Result<Self, BadKey> {
        Ed25519KeyPair::from_seed_unchecked(seed).map(Self).map_err(|_| BadKey)
    }

    pub fn public_key(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    /// The half that verifies, as a JSON Web Key with this id.
    pub fn jwk(&self, id: &str) -> Value {
        let x = BASE64.encode(self.public_key());
        json!({"kty": "OKP", "crv": "Ed25519", "alg": EDDSA, "use": "sig", "kid": id, "x": x})
    }

    /// A token of this type, signed under this key's id.
    pub fn sign(
        &self,
        typ: &str,
        id: &str,
        claims: &impl Serialize,
    ) -> Result<String, serde_json::Error> {
        let header =
            Header { alg: EDDSA.into(), typ: Some(typ.to_owned()), kid: Some(id.to_owned()) };
        let unsigned = token::unsigned(&header, claims)?;
        let signature = self.0.sign(unsigned.as_bytes());
        Ok(token::signed(&unsigned, signature))
    }

    /// Whether this key signed the token, and with the algorithm that the token names.
    pub fn verifies(&self, token: &Token<'_>) -> bool {
        token.header.alg == EDDSA
            && UnparsedPublicKey::new(&ED25519, self.public_key())
                .verify(token.signed.as_bytes(), &token.signature)
                .is_ok()
    }
}

/// A private key of RSA, for those who do not take anything newer.
pub struct Rsa(RsaKeyPair);

impl Rsa {
    /// A key in PEM, of PKCS #1 or #8.
    pub fn from_pem(pem: &str) -> Result<Self, BadKey> {
        let pair = match PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| BadKey)? {
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            _ => return Err(BadKey),
        };
        pair.map(Self).map_err(|_| BadKey)
    }

    /// A JSON Web Token with these claims.
    pub fn sign(&self, claims: &Value) -> Result<String, BadKey> {
        let header = Header { alg: RS256.into(), typ: Some("JWT".into()), kid: None };
        let unsigned = token::unsigned(&header, claims).map_err(|_| BadKey)?;
        let mut signature = vec![0; self.0.public().modulus_len()];
        self.0
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), unsigned.as_bytes(), &mut signature)
            .map_err(|_| BadKey)?;
        Ok(token::signed(&unsigned, signature))
    }
}
