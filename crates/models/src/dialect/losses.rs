//! What a dialect cannot express, and what cannot be read.

use crate::chat::Fault;

/// What was left out because the other dialect cannot express it, each by its name in the request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses(pub Vec<String>);

impl Losses {
    /// A caller can send any number of members under any names. This many show what is wrong.
    const NAMES_MAX: usize = 32;
    const NAME_MAX: usize = 64;

    pub fn note(&mut self, what: impl AsRef<str>) {
        if self.0.len() == Self::NAMES_MAX {
            return;
        }
        let print = |c: char| if c.is_ascii_graphic() && c != ',' { c } else { '?' };
        let what: String = what.as_ref().chars().take(Self::NAME_MAX).map(print).collect();
        if !self.0.contains(&what) {
            self.0.push(what);
        }
    }
}

/// Why a request is invalid or cannot be translated into another dialect. Shown to the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}")]
pub struct Unsayable {
    /// The place in the request, such as `messages[2].content[0]`.
    pub at: String,
    pub why: String,
}

impl Unsayable {
    pub fn new(at: impl ToString, why: impl Into<String>) -> Self {
        Self { at: at.to_string(), why: why.into() }
    }

    /// Returns the error for the caller.
    pub fn fault(&self) -> Fault {
        Fault {
            status: 400,
            parameter: Some(self.at.clone()),
            message: self.to_string(),
            ..Fault::default()
        }
    }
}

/// A provider's answer that is not valid in its dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the provider's answer cannot be read: {0}")]
pub struct Unreadable(pub String);

impl From<Unsayable> for Unreadable {
    fn from(found: Unsayable) -> Self {
        Self(found.to_string())
    }
}
