//! The key that signs drive tokens.

use base64::Engine;
use jose::{BASE64, Ed25519};
use serde_json::Value;
use sha2::{Digest, Sha256};
use store::Store;

/// The key that signs drive tokens. All servers of one database share it.
pub struct DriveKey {
    key: Ed25519,
    id: String,
}

impl DriveKey {
    pub async fn load(store: &Store) -> Result<Self, store::Error> {
        let seed = crate::shared_secret::shared(store, "drive-key").await?;
        let key = Ed25519::from_seed(&seed)
            .map_err(|error| store::Error::corrupt("settings", "drive-key", error))?;
        let id = BASE64.encode(&Sha256::digest(key.public_key())[..9]);
        Ok(Self { key, id })
    }

    /// Returns the public key as a JSON Web Key.
    pub fn public(&self) -> Value {
        self.key.jwk(&self.id)
    }

    /// Returns a signed token with these claims.
    pub fn sign(&self, claims: &Value) -> Result<String, store::Error> {
        self.key
            .sign("JWT", &self.id, claims)
            .map_err(|error| store::Error::Seal(format!("a token was not signed: {error}")))
    }
}
