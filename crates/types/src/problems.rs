//! Problems of a request, field by field.

use serde::Serialize;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Dotted path of the field, as the caller wrote it: `spec.runtime.memory`.
    pub field: String,
    pub message: String,
}

/// A list of problems, so that a caller learns of all of them at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Returns a list of one problem.
    pub fn one(field: impl Into<String>, message: impl Into<String>) -> Self {
        let mut problems = Self::default();
        problems.add(field, message);
        problems
    }

    /// Records that `field` is wrong; `message` states the rule and continues the sentence "`field`
    /// …".
    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem { field: field.into(), message: message.into() });
    }

    /// Records a problem unless `ok`.
    pub fn require(&mut self, ok: bool, field: impl Into<String>, message: impl Into<String>) {
        if !ok {
            self.add(field, message);
        }
    }

    /// Drops all but the first problems.
    #[cfg(feature = "checker")]
    pub(crate) fn truncate(&mut self, most: usize) {
        self.0.truncate(most);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// Returns `Ok` if no problem was found.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Number of problems shown; more would only bury the first ones.
        const SHOWN: usize = 8;
        for (index, problem) in self.0.iter().take(SHOWN).enumerate() {
            let gap = if index == 0 { "" } else { "; " };
            write!(f, "{gap}`{}` {}", problem.field, problem.message)?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for Problems {}
