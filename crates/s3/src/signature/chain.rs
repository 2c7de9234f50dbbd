//! The signatures of a body's chunks, each of which covers the one before.

use super::{hmac, sha256_hex};
use crate::error::{Code, Error};
use subtle::ConstantTimeEq;
use types::hex;
use zeroize::Zeroizing;

pub(crate) struct Chain {
    key: Zeroizing<Vec<u8>>,
    /// What is between the algorithm and the previous signature: date and scope.
    place: String,
    before: String,
}

impl Chain {
    pub(super) fn new(key: Vec<u8>, date: &str, scope: &str, seed: String) -> Self {
        Self { key: Zeroizing::new(key), place: format!("{date}\n{scope}"), before: seed }
    }

    /// Checks the signature of the next chunk, given the digest of its bytes.
    pub(crate) fn chunk(&mut self, digest: &str, signature: &str) -> Result<(), Error> {
        let (place, before, empty) = (&self.place, &self.before, sha256_hex(b""));
        let text = format!("AWS4-HMAC-SHA256-PAYLOAD\n{place}\n{before}\n{empty}\n{digest}");
        self.check(&text, signature)
    }

    /// Checks the signature of the trailer, given its fields as `name:value\n` each.
    pub(crate) fn trailer(&mut self, fields: &str, signature: &str) -> Result<(), Error> {
        let digest = sha256_hex(fields.as_bytes());
        let (place, before) = (&self.place, &self.before);
        let text = format!("AWS4-HMAC-SHA256-TRAILER\n{place}\n{before}\n{digest}");
        self.check(&text, signature)
    }

    fn check(&mut self, text: &str, signature: &str) -> Result<(), Error> {
        let right = hex::encode(hmac(&self.key, text).as_ref());
        if !bool::from(right.as_bytes().ct_eq(signature.as_bytes())) {
            let message = "A chunk of the body does not have the signature that came with it.";
            return Err(Error::new(Code::SignatureMismatch, message));
        }
        self.before = right;
        Ok(())
    }
}
