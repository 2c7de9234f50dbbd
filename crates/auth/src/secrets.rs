//! Secrets that we generate: API keys, client secrets, codes and tokens.

use sha2::{Digest as _, Sha256};
use store::identity::Digest;
use subtle::ConstantTimeEq;
use types::World;

pub(crate) const KEY_PREFIX: &str = "hk_";
/// Length of a secret's random part: 200 random bits.
const SECRET_CHARS: usize = 40;
const CHECK_CHARS: usize = 6;

/// Generates an API key: prefix, random part, checksum. With the checksum, scanners for leaked
/// secrets can be certain, and texts that cannot be keys need no lookup in the store.
pub(crate) fn new_api_key(world: &World) -> String {
    let body = format!("{KEY_PREFIX}{}", world.random_text(SECRET_CHARS));
    let check = checksum(&body);
    body + &check
}

/// Returns true if a text has the form of an API key.
pub(crate) fn is_api_key(text: &str) -> bool {
    text.starts_with(KEY_PREFIX)
        && text.len() == KEY_PREFIX.len() + SECRET_CHARS + CHECK_CHARS
        && text
            .split_at_checked(text.len() - CHECK_CHARS)
            .is_some_and(|(body, check)| checksum(body) == check)
}

fn checksum(body: &str) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let digest = Sha256::digest(body.as_bytes());
    digest
        .iter()
        .take(CHECK_CHARS)
        .map(|byte| char::from(LETTERS[usize::from(byte % 32)]))
        .collect()
}

/// Generates a secret whose prefix shows what it is for.
pub(crate) fn new_secret(world: &World, prefix: &str) -> String {
    format!("{prefix}_{}", world.random_text(SECRET_CHARS))
}

/// Compares in constant time, so that timing does not show how much was right.
pub(crate) fn matches(secret: &str, stored: &Digest) -> bool {
    Digest::of(secret).as_bytes().ct_eq(stored.as_bytes()).into()
}

pub(crate) fn same(left: &str, right: &str) -> bool {
    left.as_bytes().ct_eq(right.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use proptest::prelude::*;

    #[test]
    fn an_api_key_shows_a_typing_error() {
        let (_, world) = fixture::world();
        let key = new_api_key(&world);
        assert!(is_api_key(&key));
        for position in 0..key.len() {
            let mut bytes = key.clone().into_bytes();
            bytes[position] = if bytes[position] == b'x' { b'y' } else { b'x' };
            assert!(!is_api_key(&String::from_utf8(bytes).unwrap()), "at {position}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_key_or_not(text in "(hk_)?.{0,60}") {
            prop_assert!(!is_api_key(&text));
        }
    }
}
