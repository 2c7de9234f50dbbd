//! Secrets at rest, sealed under a key that is not in the database.
//!
//! A sealed text is `sealed:v1:<key id>:<nonce and XChaCha20-Poly1305 text, base64url>`. It can
//! only be opened in the context in which it was sealed: table and id of the row that holds it. So
//! it cannot be moved to another row. Rows name the key of their secrets in a column `seal_key`;
//! with it, [`rotation`] finds what to reseal without knowing what the rows mean.

mod key;
mod key_file;
mod keyring;
pub(crate) mod rotation;

pub use key_file::KeyFile;
pub use keyring::Keyring;
pub use rotation::Rotation;

/// Beginning of every sealed text.
pub(crate) const PREFIX: &str = "sealed:v1:";

pub fn is_sealed(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Returns the id of the key that a sealed text needs.
pub fn key_of(sealed: &str) -> Option<&str> {
    sealed.strip_prefix(PREFIX)?.split_once(':').map(|(key, _)| key)
}
