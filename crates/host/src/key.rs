//! The key of this machine, from which the secrets of its instances are derived: nothing has to be
//! stored for each instance, and the next run of this program derives the same.

use files::Readers;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::path::Path;
use std::{fs, io};
use types::World;
use types::instance::InstanceName;

const KEY_FILE: &str = "work-key";
const KEY_BYTES: usize = 32;

pub(crate) struct Key([u8; KEY_BYTES]);

impl Key {
    /// Reads the key, or makes it at the first start. It is kept, because instances outlive this
    /// program.
    pub(crate) fn open(folder: &Path, world: &World) -> io::Result<Self> {
        let path = folder.join(KEY_FILE);
        match fs::read(&path) {
            Ok(bytes) => bytes.try_into().map(Self).map_err(|_| io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = world.random_bytes();
                files::replace(&path, Readers::Owner, &key)?;
                Ok(Self(key))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the secret by which the guest of this instance recognises the machine.
    pub(crate) fn secret(&self, id: &InstanceName) -> String {
        self.mac(id.as_str())
    }

    /// Returns the secret by which the proxy recognises this instance. Programs inside know it.
    pub(crate) fn credential(&self, id: &InstanceName) -> String {
        // Names of instances have no blanks, so this never equals a guest's secret.
        self.mac(&format!("proxy {id}"))
    }

    fn mac(&self, text: &str) -> String {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        mac.update(text.as_bytes());
        types::hex::encode(&mac.finalize().into_bytes())
    }
}
