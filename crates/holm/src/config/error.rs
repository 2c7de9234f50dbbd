//! Why settings cannot be used.

use std::path::PathBuf;

/// Reasons why the settings cannot be used. Every message names the key, where it was set, and what
/// would be right.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read the settings file {}", .path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{place}: not TOML: {message}")]
    NotToml { place: String, message: String },
    #[error(
        "{place}: there is no setting `{key}`{hint}\n  `holm config example` lists all of them"
    )]
    UnknownKey { place: String, key: String, hint: String },
    #[error("{place}: `{key}` {message}")]
    WrongValue { place: String, key: String, message: String },
}

/// A value that cannot be used, with a message that says what would be right.
pub(super) struct Wrong {
    pub(super) key: &'static str,
    pub(super) message: String,
}

pub(super) fn wrong(key: &'static str, message: impl Into<String>) -> Result<(), Wrong> {
    Err(Wrong { key, message: message.into() })
}
