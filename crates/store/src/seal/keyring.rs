//! The keys, and the file that holds them.
//!
//! The file has one line for each key, the active one first: `<id> <32 bytes, base64url> <ms when
//! it stopped being the active one, or - >`.

use super::PREFIX;
use crate::Error;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use files::Readers;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use types::{Timestamp, World};
use zeroize::{Zeroize as _, Zeroizing};

const KEY_BYTES: usize = 32;
/// Length of every key id. It must be fixed: in columns without a `seal_key` beside them, the id is
/// found by its position.
const ID_LENGTH: usize = 8;
const NONCE_BYTES: usize = 24;
const FIRST_LINE: &str =
    "# Holm's keys: keep them secret, and keep a copy. Without them no stored secret can be read.";

/// The keys that seal secrets: the active one, and older ones that can still open.
pub struct Keyring {
    file: PathBuf,
    world: World,
    /// Keys, the active one first. Never empty.
    keys: Vec<Key>,
}

#[derive(Clone, PartialEq, Eq)]
struct Key {
    id: String,
    bytes: Zeroizing<[u8; KEY_BYTES]>,
    retired_at: Option<Timestamp>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.keys.iter().map(|key| &key.id).collect();
        f.debug_struct("Keyring")
            .field("file", &self.file)
            .field("ids", &ids)
            .finish_non_exhaustive()
    }
}

impl Keyring {
    /// Reads the key file, or creates it with a first key if there is none.
    pub fn open_or_create(file: &Path, world: &World) -> Result<Self, Error> {
        match read(file) {
            Ok(text) => {
                Ok(Self { file: file.to_owned(), world: world.clone(), keys: parse(&text, file)? })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut keyring = Self {
                    file: file.to_owned(),
                    world: world.clone(),
                    keys: vec![Key::new(world)],
                };
                keyring.save_new()?;
                keyring.reload()?;
                Ok(keyring)
            }
            Err(error) => Err(unusable(file, "read", &error)),
        }
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
        let nonce = self.world.random_bytes::<NONCE_BYTES>();
        let payload = Payload { msg: plain.as_bytes(), aad: context.as_bytes() };
        let sealed = key.cipher().encrypt(&XNonce::from(nonce), payload).map_err(|_| wrong())?;
        Ok(format!("{PREFIX}{}:{}", key.id, BASE64.encode([&nonce[..], &sealed].concat())))
    }

    /// Opens a text that was sealed for the same context.
    pub fn open(&self, context: &str, sealed: &str) -> Result<String, Error> {
        let wrong = |why: &str| Error::Seal(why.to_owned());
        let rest = sealed.strip_prefix(PREFIX).ok_or_else(|| wrong("it is not a sealed text"))?;
        let (id, data) = rest.split_once(':').ok_or_else(|| wrong("it is cut short"))?;
        let key = self.keys.iter().find(|key| key.id == id);
        let key = key.ok_or_else(|| {
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

    /// Adds a key and makes it the active one. The others can still open.
    pub fn rotate(&mut self) -> Result<(), Error> {
        let now = self.world.now();
        let mut keys = self.keys.clone();
        for key in &mut keys {
            key.retired_at.get_or_insert(now);
        }
        keys.insert(0, Key::new(&self.world));
        self.replace(keys)
    }

    /// Removes keys for which `forget` is true, but never the active one.
    pub(super) fn forget(&mut self, forget: impl Fn(&str, Timestamp) -> bool) -> Result<(), Error> {
        let keep =
            |key: &&Key| !key.retired_at.is_some_and(|retired_at| forget(&key.id, retired_at));
        let keys: Vec<_> = self.keys.iter().filter(keep).cloned().collect();
        if keys.len() == self.keys.len() { Ok(()) } else { self.replace(keys) }
    }

    /// Reads the file again, because another server on the same database may have rotated.
    pub(super) fn reload(&mut self) -> Result<(), Error> {
        let text = read(&self.file).map_err(|error| unusable(&self.file, "read", &error))?;
        self.keys = parse(&text, &self.file)?;
        Ok(())
    }

    /// Adds the keys of a backup, so that what they sealed can be opened.
    pub(crate) fn absorb(&mut self, text: &str) -> Result<(), Error> {
        let mut keys = self.keys.clone();
        for mut key in parse(text, Path::new("of the backup"))? {
            if keys.iter().all(|known| known.id != key.id) {
                key.retired_at.get_or_insert(self.world.now());
                keys.push(key);
            }
        }
        self.replace(keys)
    }

    /// Returns the content of the key file, for a self-contained backup.
    pub(crate) fn export(&self) -> Zeroizing<String> {
        render(&self.keys)
    }

    fn replace(&mut self, keys: Vec<Key>) -> Result<(), Error> {
        let before = std::mem::replace(&mut self.keys, keys);
        self.save().inspect_err(|_| self.keys = before)
    }

    fn save(&self) -> Result<(), Error> {
        files::replace(&self.file, Readers::Owner, render(&self.keys).as_bytes())
            .map_err(|error| unusable(&self.file, "written", &error))
    }

    /// Creates the file, unless another process did so in the meantime, since then its keys are in
    /// use.
    fn save_new(&self) -> Result<(), Error> {
        let beside = self.file.with_extension(self.world.random_text(ID_LENGTH));
        let saved = make_folder(&self.file)
            .and_then(|()| files::write_new(&beside, Readers::Owner, render(&self.keys).as_bytes()))
            .and_then(|()| {
                let linked = fs::hard_link(&beside, &self.file);
                fs::remove_file(&beside)?;
                match linked {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => files::sync_folder_of(&self.file),
                }
            });
        saved.map_err(|error| unusable(&self.file, "made", &error))
    }
}

impl Key {
    fn new(world: &World) -> Self {
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

fn render(keys: &[Key]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(format!("{FIRST_LINE}\n"));
    for key in keys {
        let bytes = Zeroizing::new(BASE64.encode(&key.bytes[..]));
        let retired_at = key.retired_at.map_or_else(|| "-".to_owned(), |at| at.ms().to_string());
        let line = Zeroizing::new(format!("{} {} {retired_at}\n", key.id, *bytes));
        text.push_str(&line);
    }
    text
}

fn parse(text: &str, file: &Path) -> Result<Vec<Key>, Error> {
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
    let well_named = id.len() == ID_LENGTH
        && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let mut decoded = BASE64.decode(bytes).ok()?;
    let bytes = <[u8; KEY_BYTES]>::try_from(decoded.as_slice()).ok().map(Zeroizing::new);
    decoded.zeroize();
    let retired_at = match retired_at {
        "-" => None,
        ms => Some(Timestamp::from_ms(ms.parse().ok()?)),
    };
    let complete = well_named && words.next().is_none();
    Some(Key { id: id.to_owned(), bytes: bytes?, retired_at }).filter(|_| complete)
}

fn read(file: &Path) -> io::Result<Zeroizing<String>> {
    let text = Zeroizing::new(fs::read_to_string(file)?);
    if fs::metadata(file)?.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other("other users can read it: run `chmod 600` on it"));
    }
    Ok(text)
}

fn make_folder(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), fs::create_dir_all)
}

fn unusable(file: &Path, act: &str, error: &io::Error) -> Error {
    Error::Unusable(format!("the key file {} cannot be {act}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn world() -> World {
        World::new(|| Timestamp::from_ms(1_000), |bytes| getrandom::fill(bytes).unwrap())
    }

    #[test]
    fn a_key_file_is_private_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        let mut keyring = Keyring::open_or_create(&file, &world()).unwrap();
        let sealed = keyring.seal("res_1", "hunter2").unwrap();
        keyring.rotate().unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Keyring::open_or_create(&file, &world()).unwrap();
        assert_eq!(again.active_id(), keyring.active_id());
        assert_eq!(again.open("res_1", &sealed).unwrap(), "hunter2");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_key_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        Keyring::open_or_create(&file, &world()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Keyring::open_or_create(&file, &world()).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_sealed_text_opens_only_unchanged_and_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let keyring = Keyring::open_or_create(&folder.path().join("keys"), &world()).unwrap();
        let sealed = keyring.seal("res_1", "hunter2").unwrap();
        assert!(
            !sealed.contains("hunter2") && !format!("{keyring:?}").contains(&*keyring.export())
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
            let keyring = Keyring::open_or_create(&folder.path().join("keys"), &world()).unwrap();
            prop_assert!(keyring.open("x", &text).is_err());
        }
    }
}
