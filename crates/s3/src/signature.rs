//! Signature Version 4: verifies that a request was made by someone with the secret of a key.
//!
//! A [`Claim`] is what a request says about itself. It is read without the secret, so that no key
//! is looked up for a request that cannot be valid. [`Claim::check`] verifies it with the secret.

mod canonical;
mod chain;
mod claim;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use canonical::{decode, encode, query as read_query};
pub(crate) use chain::Chain;
pub(crate) use claim::{Claim, Payload};

use ring::hmac;
use types::hex;

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

fn hmac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}
