//! Limits of models, what servers hold of them, and usage of models.

mod ledgers;
mod limits;
mod usage;

pub use limits::{asked_for, begin, keep, trim_limits};
pub use usage::{Question, UsageRow, trim_usage, usage};

use crate::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Returns the name of an enum's variant as rows have it, which is that of the interface.
fn written(table: &'static str, word: &impl Serialize) -> Result<String, Error> {
    let value = serde_json::to_value(word).map_err(|error| Error::corrupt(table, "new", error))?;
    let text = value.as_str().ok_or_else(|| Error::corrupt(table, "new", "it is no word"))?;
    Ok(text.to_owned())
}

fn read_word<T: DeserializeOwned>(table: &'static str, word: &str) -> Result<T, Error> {
    serde_json::from_value(word.into()).map_err(|error| Error::corrupt(table, word, error))
}
