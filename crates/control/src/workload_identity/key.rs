//! The key from which the secrets of workloads' service accounts are derived.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use store::Store;
use types::hex;
use types::ids::ServiceAccountId;

/// The key from which these secrets are derived. All servers of one database share it.
pub(crate) struct IdentityKey([u8; 32]);

impl IdentityKey {
    pub(crate) async fn load(store: &Store) -> Result<Self, store::Error> {
        crate::shared_secret::shared(store, "workload-identities").await.map(Self)
    }

    pub(crate) fn secret(&self, account: &ServiceAccountId) -> String {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        mac.update(account.as_str().as_bytes());
        format!("hs_{}", hex::encode(&mac.finalize().into_bytes()))
    }

    /// Returns the credentials as published clients take them: id and secret in Base64.
    pub(super) fn credentials(&self, account: &ServiceAccountId) -> String {
        STANDARD.encode(format!("{account}:{}", self.secret(account)))
    }
}
