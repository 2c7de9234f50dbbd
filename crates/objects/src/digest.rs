//! SHA-256 digests of what is stored.

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::fmt;

const CHARACTERS: usize = 64;

/// A digest as 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no digest")]
pub struct NoDigest(String);

impl Digest {
    pub(crate) fn of(content: &[u8]) -> Self {
        use fmt::Write as _;
        let mut text = String::with_capacity(CHARACTERS);
        for byte in digest(&SHA256, content).as_ref() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Digest {
    type Error = NoDigest;

    fn try_from(text: String) -> Result<Self, NoDigest> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.len() == CHARACTERS && text.bytes().all(is_digit) {
            true => Ok(Self(text)),
            false => Err(NoDigest(text.chars().take(CHARACTERS).collect())),
        }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}
