//! Signed tokens: JSON Web Signatures in compact form (RFC 7515), and the keys that sign and verify
//! them (RFC 7517, RFC 8037). What a token must say is up to its reader.

mod sign;
mod token;
mod verify;

pub use sign::{BadKey, Ed25519, Rsa};
pub use token::{Header, Token};
pub use verify::PublicKey;

use base64::engine::general_purpose::{GeneralPurpose, URL_SAFE_NO_PAD as BASE64URL};

/// The encoding of each part of a token and of a key.
pub const BASE64: GeneralPurpose = BASE64URL;

const EDDSA: &str = "EdDSA";
const RS256: &str = "RS256";
const ES256: &str = "ES256";
