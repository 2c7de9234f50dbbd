//! A key, and the form of keys in the file.
//!
//! The file has one line for each key, the active one first: `<id> <32 bytes, base64url> <ms when
//! it stopped being the active one, or - >`.

use crate::Error;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::KeyInit as _;
use std::path::Path;
use types::{Timestamp, World};
use zeroize::{Zeroize as _, Zeroizing};

const KEY_BYTES: usize = 32;
/// Length of every key id. It must be fixed: in columns without a `seal_key` beside them, the id is
/// found by its position.
const ID_LENGTH: usize = 8;
const FIRST_LINE: &str =
    "# Holm's keys: keep them secret, and keep a copy. Without them no stored secret can be read.";

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) id: String,
    bytes: Zeroizing<[u8; KEY_BYTES]>,
    pub(super) retired_at: Option<Timestamp>,
}

impl Key {
    pub(super) fn new(world: &World) -> Self {
        Self {
            id: world.random_text(ID_LENGTH),
            bytes: Zeroizing::new(world.random_bytes()),
            retired_at: None,
        }
    }

    pub(super) fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.bytes).into())
    }
}

pub(super) fn render(keys: &[Key]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(format!("{FIRST_LINE}\n"));
    for key in keys {
        let bytes = Zeroizing::new(BASE64.encode(&key.bytes[..]));
        let retired_at = key.retired_at.map_or_else(|| "-".to_owned(), |at| at.ms().to_string());
        let line = Zeroizing::new(format!("{} {} {retired_at}\n", key.id, *bytes));
        text.push_str(&line);
    }
    text
}

pub(super) fn parse(text: &str, file: &Path) -> Result<Vec<Key>, Error> {
    let mut keys: Vec<Key> = Vec::new();
    for (number, line) in
        text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        let key = parse_key(line).filter(|key| keys.iter().all(|known| known.id != key.id));
        let wrong = || {
            Error::Unusable(format!(
                "line {} of the key file {} is not a key",
                number + 1,
                file.display()
            ))
        };
        keys.push(key.ok_or_else(wrong)?);
    }
    match keys.first() {
        Some(active) if active.retired_at.is_none() => Ok(keys),
        _ => Err(Error::Unusable(format!(
            "the key file {} has no active key in its first place",
            file.display()
        ))),
    }
}

fn parse_key(line: &str) -> Option<Key> {
    let mut words = line.split(' ');
    let (id, bytes, retired_at) = (words.next()?, words.next()?, words.next()?);
    let mut decoded = BASE64.decode(bytes).ok()?;
    let bytes = <[u8; KEY_BYTES]>::try_from(decoded.as_slice()).ok().map(Zeroizing::new);
    decoded.zeroize();
    let retired_at = match retired_at {
        "-" => None,
        ms => Some(Timestamp::from_ms(ms.parse().ok()?)),
    };
    let complete = is_id(id) && words.next().is_none();
    Some(Key { id: id.to_owned(), bytes: bytes?, retired_at }).filter(|_| complete)
}

pub(super) fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_key_file_is_read_or_refused(text in "([a-z0-9]{7,8}|#)?( [A-Za-z0-9_-]{41,45}( (-|[0-9]{1,20}))?)?\n.{0,80}") {
            if let Ok(keys) = parse(&text, Path::new("keys")) {
                prop_assert!(parse(&render(&keys), Path::new("keys")).unwrap() == keys);
            }
        }
    }
}
