//! The file in which the command line keeps known servers and credentials:
//! `~/.config/holm/config.yaml`.

use crate::error::Error;
use files::Readers;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// Name of the context in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: Vec<Context>,
}

/// A server, a workspace and the credentials for them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) name: String,
    pub(crate) server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<String>,
    pub(crate) credentials: Credentials,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Credentials {
    ApiKey(String),
    ServiceAccount(ServiceAccount),
    /// `expires_at` is in seconds since 1970.
    Session {
        access_token: String,
        refresh_token: String,
        expires_at: i64,
        /// The service account that it was made for, which alone may renew and end it. Without
        /// one, a person confirmed it in a browser.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        account: Option<ServiceAccount>,
    },
}

/// Id and secret of a service account.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceAccount {
    pub(crate) client_id: String,
    pub(crate) client_secret: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ApiKey(_) => "ApiKey",
            Self::ServiceAccount(_) => "ServiceAccount",
            Self::Session { .. } => "Session",
        })
    }
}

/// Variables that name the base of the configuration folder, with the folder below each.
const FOLDER_VARIABLES: [(&str, &str); 2] = [("XDG_CONFIG_HOME", "holm"), ("HOME", ".config/holm")];

impl Contexts {
    fn file() -> Result<PathBuf, Error> {
        FOLDER_VARIABLES
            .iter()
            .find_map(|(variable, below)| {
                let folder = std::env::var_os(variable).filter(|value| !value.is_empty())?;
                Some(PathBuf::from(folder).join(below).join("config.yaml"))
            })
            .ok_or_else(|| {
                let message =
                    "neither HOME nor XDG_CONFIG_HOME is set, so there is no place for credentials"
                        .into();
                Error::ContextFile { place: "holm/config.yaml".into(), message }
            })
    }

    pub(crate) fn load() -> Result<Self, Error> {
        let Ok(file) = Self::file() else { return Ok(Self::default()) };
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(source) => {
                return Err(Error::Io { act: format!("read {}", file.display()), source });
            }
        };
        serde_norway::from_str(&text).map_err(|error| Error::ContextFile {
            place: file.display().to_string(),
            message: format!("{error}; mend or remove the file, then run `holm login`"),
        })
    }

    /// Reads the file, changes what it has, and replaces it.
    pub(crate) fn change<T>(
        change: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _alone = Self::lock()?;
        let mut contexts = Self::load()?;
        let done = change(&mut contexts)?;
        contexts.save()?;
        Ok(done)
    }

    /// Waits until no other process changes the file. The lock is on a file beside it, because the
    /// file itself is replaced.
    pub(super) fn lock() -> Result<File, Error> {
        let file = Self::file()?;
        let beside = file.with_extension("yaml.lock");
        let act = || format!("lock {}", beside.display());
        if let Some(folder) = file.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(Error::io(act()))?;
        }
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(&beside).map_err(Error::io(act()))?;
        lock.lock().map_err(Error::io(act()))?;
        Ok(lock)
    }

    /// Replaces the file atomically, while it is locked. Only its owner may read it.
    pub(super) fn save(&self) -> Result<(), Error> {
        let file = Self::file()?;
        let act = || format!("write {}", file.display());
        let text = serde_norway::to_string(self).map_err(|error| Error::ContextFile {
            place: file.display().to_string(),
            message: error.to_string(),
        })?;
        let new = file.with_extension(format!("yaml.{}", std::process::id()));
        files::replace_by(&new, &file, Readers::Owner, text.as_bytes()).map_err(Error::io(act()))
    }

    pub(crate) fn current(&self) -> Option<&Context> {
        let name = self.current.as_deref()?;
        self.contexts.iter().find(|context| context.name == name)
    }

    /// Makes the context of this name the current one.
    pub(crate) fn select(&mut self, name: &str) -> Result<&Context, Error> {
        let context =
            self.contexts.iter().find(|context| context.name == name).ok_or_else(|| {
                Error::Absent(format!("there is no context `{name}`; `holm contexts` lists them"))
            })?;
        self.current = Some(name.to_owned());
        Ok(context)
    }

    pub(crate) fn named_mut(&mut self, name: &str) -> Option<&mut Context> {
        self.contexts.iter_mut().find(|context| context.name == name)
    }

    /// Adds or replaces the context of this name and makes it the current one.
    pub(crate) fn put(&mut self, context: Context) {
        self.current = Some(context.name.clone());
        self.contexts.retain(|other| other.name != context.name);
        self.contexts.push(context);
    }

    /// Removes the context of this name. If it was the current one, another takes its place.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Context> {
        let at = self.contexts.iter().position(|context| context.name == name)?;
        let gone = self.contexts.remove(at);
        if self.current.as_deref() == Some(name) {
            self.current = self.contexts.first().map(|context| context.name.clone());
        }
        Some(gone)
    }
}
