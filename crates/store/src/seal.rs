//! Secrets at rest: sealed under a key that the database does not hold.
//!
//! A sealed text is `sealed:v1:<key id>:<nonce and XChaCha20-Poly1305 text, base64url>`. It opens
//! only in the context in which it was sealed: table and id of the row that holds it, so that it
//! cannot be moved to another row. Rows name the key of their secrets in a column `seal_key`; that
//! is how [`rotation`] finds what to seal anew without knowing what the rows mean.

mod keyring;
pub(crate) mod rotation;

pub use keyring::Keyring;
pub use rotation::Rotation;

/// What every sealed text begins with.
pub(crate) const PREFIX: &str = "sealed:v1:";

pub fn is_sealed(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// The id of the key that a sealed text needs.
pub fn key_of(sealed: &str) -> Option<&str> {
    sealed.strip_prefix(PREFIX)?.split_once(':').map(|(key, _)| key)
}
