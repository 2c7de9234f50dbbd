//! Private keys, which sign tokens.

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

/// The bytes are not a key of the expected kind. The error does not say what is wrong with them,
/// because that would be about a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not a key")]
pub struct BadKey;

/// An Ed25519 key pair. It signs, and verifies what it signed itself.
pub struct Ed25519(Ed25519KeyPair);

impl Ed25519 {
    /// Makes the pair from a seed of 32 bytes.
    pub fn from_seed(seed: &[u8]) -> Result<Self, BadKey> {
        Ed25519KeyPair::from_seed_unchecked(seed).map(Self).map_err(|_| BadKey)
    }

    pub fn public_key(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    /// Returns the public half as a JSON Web Key with this id.
    pub fn jwk(&self, id: &str) -> Value {
        let x = BASE64.encode(self.public_key());
        json!({"kty": "OKP", "crv": "Ed25519", "alg": EDDSA, "use": "sig", "kid": id, "x": x})
    }

    /// Signs a token of this type, naming this key by `id`.
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

    /// Returns true if this key signed the token, with the algorithm that the token names.
    pub fn verifies(&self, token: &Token<'_>) -> bool {
        token.header.alg == EDDSA
            && UnparsedPublicKey::new(&ED25519, self.public_key())
                .verify(token.signed.as_bytes(), &token.signature)
                .is_ok()
    }
}

/// An RSA private key, for services that accept nothing newer.
pub struct Rsa(RsaKeyPair);

impl Rsa {
    /// Reads a key in PEM, either PKCS #1 or PKCS #8.
    pub fn from_pem(pem: &str) -> Result<Self, BadKey> {
        let pair = match PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| BadKey)? {
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            _ => return Err(BadKey),
        };
        pair.map(Self).map_err(|_| BadKey)
    }

    /// Signs a JSON Web Token with these claims.
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
