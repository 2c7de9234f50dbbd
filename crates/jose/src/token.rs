//! The parts of a token.

use crate::BASE64;
use base64::Engine as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub alg: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub typ: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kid: Option<String>,
}

/// A token split into its parts. Nothing is verified yet: do that with a [`crate::PublicKey`] or
/// with the key that signed it.
pub struct Token<'t> {
    pub header: Header,
    pub(crate) signed: &'t str,
    claims: &'t str,
    pub(crate) signature: Vec<u8>,
}

impl<'t> Token<'t> {
    pub fn parse(text: &'t str) -> Option<Self> {
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = serde_json::from_slice(&BASE64.decode(header).ok()?).ok()?;
        Some(Self { header, signed, claims, signature: BASE64.decode(signature).ok()? })
    }

    /// Reads the claims. Verify the signature first.
    pub fn claims<C: DeserializeOwned>(&self) -> Option<C> {
        serde_json::from_slice(&BASE64.decode(self.claims).ok()?).ok()
    }
}

/// Returns the part of a token that is signed: its encoded header and claims.
pub(crate) fn unsigned(
    header: &Header,
    claims: &impl Serialize,
) -> Result<String, serde_json::Error> {
    let header = BASE64.encode(serde_json::to_vec(header)?);
    Ok(format!("{header}.{}", BASE64.encode(serde_json::to_vec(claims)?)))
}

pub(crate) fn signed(unsigned: &str, signature: impl AsRef<[u8]>) -> String {
    format!("{unsigned}.{}", BASE64.encode(signature))
}
