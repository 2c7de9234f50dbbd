//! Opening the store with the server's settings, for the server and for commands that work on its
//! data.

use crate::config::Config;
use crate::error::Error;
use crate::server::process;
use crate::world;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use store::{Settings, Store, Target};

const DATABASE_FILE: &str = "holm.db";
const KEY_FILE: &str = "seal.keys";
/// The store locks the same file where it keeps its database in the folder.
const LOCK_FILE: &str = "holm.lock";

impl Config {
    /// Returns the file of the keys that seal secrets.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.store.key_file.clone().unwrap_or_else(|| self.data.folder.join(KEY_FILE))
    }

    /// Returns the file of the database, if it is in the data folder.
    pub(crate) fn database_file(&self) -> Option<PathBuf> {
        self.store.url.is_none().then(|| self.data.folder.join(DATABASE_FILE))
    }

    pub(crate) fn store_settings(&self) -> Settings {
        let target = match &self.store.url {
            Some(url) => Target::Postgres { url: url.clone() },
            None => Target::Sqlite { file: self.data.folder.join(DATABASE_FILE) },
        };
        let mut settings = Settings::new(target, self.key_file());
        settings.connections = self.store.connections;
        settings.waiting_max = self.store.waiting_max;
        settings.batch_max = self.store.batch_max;
        settings.log_pages = self.store.log_pages;
        settings.log_pages_max = self.store.log_pages_max;
        settings.recent_changes_max = self.store.recent_changes_max;
        settings
    }
}

/// Makes the data folder, accessible by its owner only, as are the files that this process creates
/// from now on: a folder that was there before may be open to others.
pub(crate) fn make_folder(config: &Config) -> Result<(), Error> {
    process::keep_files_private();
    let folder = &config.data.folder;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(Error::io(format!("make the data folder {}", folder.display())))
}

/// Keeps other servers out of the data folder until the returned file is closed. `None` where the
/// store does that itself, which has its database in the folder.
pub(crate) fn lock_folder(config: &Config) -> Result<Option<File>, Error> {
    make_folder(config)?;
    let folder = &config.data.folder;
    if config.store.url.is_none() {
        return Ok(None);
    }
    let act = || format!("lock the data folder {}", folder.display());
    let lock = File::create(folder.join(LOCK_FILE)).map_err(Error::io(act()))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::Error(source)) => Err(Error::Io { act: act(), source }),
        Err(TryLockError::WouldBlock) => {
            let message = "another server uses it: stop that one, or give this one a folder of its own (--data)";
            Err(Error::Start { act: act(), message: message.to_owned() })
        }
    }
}

/// Checks that the key file exists, for commands that work on existing data: a new key could not
/// open its secrets.
pub(crate) fn must_have_keys(config: &Config) -> Result<(), Error> {
    let file = config.key_file();
    match std::fs::metadata(&file) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::Absent(format!(
            "there is no key file {} (data.folder, store.key_file): name the server's data folder with --data, or its \
             settings with --config",
            file.display()
        ))),
        Err(source) => {
            Err(Error::Io { act: format!("find the key file {}", file.display()), source })
        }
    }
}

pub(crate) async fn open_store(config: &Config) -> Result<Store, Error> {
    make_folder(config)?;
    let opened = Store::open(config.store_settings(), world::system()).await;
    opened.map_err(|source| Error::Store { act: "open the store".into(), source })
}
