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
pub(crate) mod members;
pub mod openai;
pub(crate) mod parts;
pub mod responses;
#[cfg(test)]
mod round_trips;
pub(crate) mod sse;
mod strict;

pub use faults::is_too_long;

use cohere::Cohere;
use gemini::Gemini;

use crate::chat::{Answer, Chat, Delta, Fault};
use crate::events::Event;
use bytes::BytesMut;
use serde_json::Value;

/// The format of requests and answers that a provider's API uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    pub fn words(self) -> &'static dyn Words {
        match self {
            Self::OpenAi => &openai::OpenAi,
            Self::Responses => &responses::Responses,
            Self::Anthropic => &anthropic::Anthropic,
            Self::Gemini => &Gemini,
            Self::Cohere => &Cohere,
        }
    }

    /// Returns its name in the API and in documents.
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

/// Reads and writes one dialect.
pub trait Words: Send + Sync {
    fn read_request(&self, body: &Value) -> Result<Chat, Unsayable>;
    fn write_request(&self, chat: &Chat, losses: &mut Losses) -> Result<Value, Unsayable>;
    fn read_answer(&self, body: &Value) -> Result<Answer, Unreadable>;
    fn write_answer(&self, answer: &Answer, losses: &mut Losses) -> Value;
    fn read_fault(&self, status: u16, body: &[u8]) -> Fault;
    fn write_fault(&self, fault: &Fault) -> Value;
    fn reader(&self) -> Box<dyn StreamReader>;
    /// Makes the writer of the answer's stream. `asked` is the caller's request.
    fn writer(&self, asked: &Chat) -> Box<dyn StreamWriter>;
    /// Returns whether a schema for the answer has to be written as a tool that the model must
    /// call.
    fn says_schema_as_tool(&self, _: &Chat) -> bool {
        false
    }
}

/// Reads the events of a provider's stream.
pub trait StreamReader: Send {
    fn read(&mut self, event: &Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), Unreadable>;

    /// Ends the stream after the provider has closed it. Readers of dialects without a last event
    /// push here how it ended. The caller takes a stream without [`Delta::End`] as cut off.
    fn end(&mut self, _deltas: &mut Vec<Delta>) -> Result<(), Unreadable> {
        Ok(())
    }
}

/// Writes server-sent events.
pub trait StreamWriter: Send {
    fn write(&mut self, delta: &Delta, out: &mut BytesMut);
}
