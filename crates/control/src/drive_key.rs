//! The key that signs drive tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use store::Store;

/// The key that signs drive tokens. All servers of one database share it.
pub struct DriveKey {
    pair: Ed25519KeyPair,
    id: String,
}

impl DriveKey {
    pub async fn load(store: &Store) -> Result<Self, store::Error> {
        let seed = crate::shared_secret::shared(store, "drive-key").await?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed)
            .map_err(|error| store::Error::corrupt("settings", "drive-key", error))?;
        let id = URL_SAFE_NO_PAD.encode(&Sha256::digest(pair.public_key())[..9]);
        Ok(Self { pair, id })
    }

    /// Returns the public key as a JSON Web Key.
    pub fn public(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.pair.public_key());
        json!({"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": self.id, "x": x})
    }

    /// Returns a signed token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!(
            "{}.{}",
            part(&json!({"alg": "EdDSA", "typ": "JWT", "kid": self.id})),
            part(claims)
        );
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(text.as_bytes()));
        format!("{text}.{signature}")
    }
}
