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
    /// Another setting that the value does not go with. It may be the one that was set.
    pub(super) beside: Option<&'static str>,
    pub(super) message: String,
}

impl Wrong {
    pub(super) fn new(key: &'static str, message: impl Into<String>) -> Self {
        Self { key, beside: None, message: message.into() }
    }
}

pub(super) fn wrong(key: &'static str, message: impl Into<String>) -> Result<(), Wrong> {
    Err(Wrong::new(key, message))
}

/// Refuses a value that does not go with that of the setting `beside`.
pub(super) fn wrong_beside(
    key: &'static str,
    beside: &'static str,
    message: impl Into<String>,
) -> Result<(), Wrong> {
    Err(Wrong { beside: Some(beside), ..Wrong::new(key, message) })
}
