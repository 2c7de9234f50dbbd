//! Readers and writers of each provider's dialect.
//!
//! A reader understands what its provider documents. It refuses what it does not understand if
//! leaving that out would change the meaning. A writer reports what its dialect cannot express: as
//! an error if the request would mean something else without it, and otherwise as one of the
//! [`Losses`].

pub mod anthropic;
pub mod cohere;
pub(crate) mod faults;
pub mod gemini;
#[cfg(test)]
pub(crate) mod generators;
mod losses;
pub(crate) mod members;
pub mod openai;
pub(crate) mod parts;
pub(crate) mod proof_mark;
pub mod responses;
#[cfg(test)]
mod round_trips;
pub(crate) mod sse;
mod strict;
mod words;

pub use faults::is_too_long;
pub use losses::{Losses, Unreadable, Unsayable};
pub use words::{StreamReader, StreamWriter, Words};

use cohere::Cohere;
use gemini::Gemini;
use serde::Deserialize;

/// The format of requests and answers that a provider's API uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// `/v1/chat/completions`
    OpenAi,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Anthropic,
    /// `…:generateContent`
    Gemini,
    /// `/v2/chat`
    Cohere,
}

impl Dialect {
    pub const ALL: [Self; 5] =
        [Self::OpenAi, Self::Responses, Self::Anthropic, Self::Gemini, Self::Cohere];

    pub fn words(self) -> &'static dyn Words {
        match self {
            Self::OpenAi => &openai::OpenAi,
            Self::Responses => &responses::Responses,
            Self::Anthropic => &anthropic::Anthropic,
            Self::Gemini => &Gemini,
            Self::Cohere => &Cohere,
        }
    }

    /// Returns its name in the API, in documents and in the files about providers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Cohere => "cohere",
        }
    }
}
