//! The keys at one moment, which seal and open secrets.

use super::PREFIX;
use super::key::{Key, is_id};
use super::key_file::KeyFile;
use crate::Error;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use chacha20poly1305::XNonce;
use chacha20poly1305::aead::{Aead as _, Payload};
use std::fmt;
use std::sync::Arc;

const NONCE_BYTES: usize = 24;

/// The keys that seal secrets at one moment: the active one, and older ones that can still open.
/// They stay as they are while others rotate, so take a keyring for one piece of work and no
/// longer.
pub struct Keyring {
    file: KeyFile,
    /// Keys, the active one first. Never empty.
    keys: Arc<[Key]>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.ids().collect();
        f.debug_struct("Keyring").field("ids", &ids).finish_non_exhaustive()
    }
}

impl KeyFile {
    /// Returns the keys as this process knows them.
    pub fn read(&self) -> Keyring {
        Keyring { file: self.clone(), keys: self.keys() }
    }
}

impl Keyring {
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
            wrong(&format!(
                "{} (store.key_file) has not the key `{}` of this database: copy the key file of the server that made it here",
                self.file.path().display(),
                id.escape_debug()
            ))
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

#[cfg(test)]
mod tests {
    use super::super::key::render;
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
        fn any_sealed_text_opens_or_is_refused(text in "(sealed:v1:)?.{0,100}") {
            let folder = tempfile::tempdir().unwrap();
            let keyring = opened(folder.path()).read();
            prop_assert!(keyring.open("x", &text).is_err());
        }
    }
}
