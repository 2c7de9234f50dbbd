//! The keys at one moment, and their form in the file.
//!
//! The file has one line for each key, the active one first: `<id> <32 bytes, base64url> <ms when
//! it stopped being the active one, or - >`.

use super::{KeyFile, PREFIX};
use crate::Error;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use types::{Timestamp, World};
use zeroize::{Zeroize as _, Zeroizing};

const KEY_BYTES: usize = 32;
/// Length of every key id. It must be fixed: in columns without a `seal_key` beside them, the id is
/// found by its position.
const ID_LENGTH: usize = 8;
const NONCE_BYTES: usize = 24;
const FIRST_LINE: &str =
    "# Holm's keys: keep them secret, and keep a copy. Without them no stored secret can be read.";

/// The keys that seal secrets at one moment: the active one, and older ones that can still open.
/// They stay as they are while others rotate, so take a keyring for one piece of work and no
/// longer.
pub struct Keyring {
    file: KeyFile,
    /// Keys, the active one first. Never empty.
    keys: Arc<[Key]>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) id: String,
    bytes: Zeroizing<[u8; KEY_BYTES]>,
    pub(super) retired_at: Option<Timestamp>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.ids().collect();
        f.debug_struct("Keyring").field("ids", &ids).finish_non_exhaustive()
    }
}

impl Keyring {
    pub(super) fn new(file: KeyFile, keys: Arc<[Key]>) -> Self {
        Self { file, keys }
    }

    /// Returns the id of the key that seals.
    pub fn active_id(&self) -> &str {
        self.keys.first().map_or("", |key| &key.id)
    }

    /// Seals a secret for a context: table and id of the row that will hold it, such as
    /// `resources/res_…`.
    ///
    /// Seal texts from callers even if they look sealed already: whatever is stored will be opened
    /// some day.
    pub fn seal(&self, context: &str, plain: &str) -> Result<String, Error> {
        let wrong = || Error::Seal("it is too long to be sealed".into());
        let key = self.keys.first().ok_or_else(|| Error::Seal("there is no key".into()))?;
        let nonce = self.file.world().random_bytes::<NONCE_BYTES>();
        let payload = Payload { msg: plain.as_bytes(), aad: context.as_bytes() };
        let sealed = key.cipher().encrypt(&XNonce::from(nonce), payload).map_err(|_| wrong())?;
        Ok(format!("{PREFIX}{}:{}", key.id, BASE64.encode([&nonce[..], &sealed].concat())))
    }

    /// Opens a text that was sealed for the same context.
    pub fn open(&self, context: &str, sealed: &str) -> Result<String, Error> {
        let wrong = |why: &str| Error::Seal(why.to_owned());
        let rest = sealed.strip_prefix(PREFIX).ok_or_else(|| wrong("it is not a sealed text"))?;
        let (id, data) = rest.split_once(':').ok_or_else(|| wrong("it is cut short"))?;
        let key = self.key(id)?.ok_or_else(|| {
            wrong(&format!("its key `{}` is not in the key file", id.escape_debug()))
        })?;
        let data = BASE64.decode(data).map_err(|_| wrong("it is damaged"))?;
        let (nonce, text) =
            data.split_first_chunk::<NONCE_BYTES>().ok_or_else(|| wrong("it is cut short"))?;
        let payload = Payload { msg: text, aad: context.as_bytes() };
        let plain = key.cipher().decrypt(&XNonce::from(*nonce), payload);
        let plain = plain.map_err(|_| wrong("it was changed or moved to another place"))?;
        String::from_utf8(plain).map_err(|_| wrong("it is not a text"))
    }

    pub fn is_sealed(text: &str) -> bool {
        super::is_sealed(text)
    }

    /// Returns the ids of all keys, the active one first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.id.as_str())
    }

    /// Finds a key. Another server on the same database may have added it to the file meanwhile.
    fn key(&self, id: &str) -> Result<Option<Key>, Error> {
        let among = |keys: &[Key]| keys.iter().find(|key| key.id == id).cloned();
        match among(&self.keys) {
            Some(key) => Ok(Some(key)),
            None if is_id(id) => Ok(among(&self.file.latest()?)),
            None => Ok(None),
        }
    }
}

impl Key {
    pub(super) fn new(world: &World) -> Self {
        Self {
            id: world.random_text(ID_LENGTH),
            bytes: Zeroizing::new(world.random_bytes()),
            retired_at: None,
        }
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
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

fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::super::key_file::tests::opened;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sealed_text_opens_only_unchanged_and_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let keyring = opened(folder.path()).read();
        let sealed = keyring.seal("res_1", "hunter2").unwrap();
        assert!(
            !sealed.contains("hunter2")
                && !format!("{keyring:?}").contains(&*render(&keyring.keys))
        );
        assert!(matches!(keyring.open("res_2", &sealed), Err(Error::Seal(_))));
        for position in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[position] = if bytes[position] == b'A' { b'B' } else { b'A' };
            assert!(
                keyring.open("res_1", &String::from_utf8(bytes).unwrap()).is_err(),
                "at {position}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_key_file_is_read_or_refused(text in "([a-z0-9]{7,8}|#)?( [A-Za-z0-9_-]{41,45}( (-|[0-9]{1,20}))?)?\n.{0,80}") {
            if let Ok(keys) = parse(&text, Path::new("keys")) {
                prop_assert!(parse(&render(&keys), Path::new("keys")).unwrap() == keys);
            }
        }

        #[test]
        fn any_sealed_text_opens_or_is_refused(text in "(sealed:v1:)?.{0,100}") {
            let folder = tempfile::tempdir().unwrap();
            let keyring = opened(folder.path()).read();
            prop_assert!(keyring.open("x", &text).is_err());
        }
    }
}
