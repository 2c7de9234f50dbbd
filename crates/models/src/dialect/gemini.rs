//! Gemini's `generateContent` and `streamGenerateContent`, as the Gemini API and Vertex AI speak it.
//!
//! The name of the model is in the path. Ids of function calls are optional: where there are none,
//! [`calls`] makes them. A `thoughtSignature` stands at the part that came of the thoughts; here it
//! is the call's, or that of a thought without text before the part.

mod answer;
pub mod array;
mod calls;
mod camel;
mod fault;
mod parts;
mod read;
mod schema;
mod stream;
mod write;

use super::{Losses, StreamReader, StreamWriter, Unreadable, Unsayable, Words};
use crate::chat::{Answer, Chat, Fault};
use serde_json::Value;
use std::borrow::Cow;

#[derive(Debug)]
pub struct Gemini;

impl Words for Gemini {
    fn read_request(&self, body: &Value) -> Result<Chat, Unsayable> {
        read::request(&camel::of(body))
    }

    fn write_request(&self, chat: &Chat, losses: &mut Losses) -> Result<Value, Unsayable> {
        write::request(chat, losses)
    }

    fn read_answer(&self, body: &Value) -> Result<Answer, Unreadable> {
        answer::read(body)
    }

    fn write_answer(&self, answer: &Answer, losses: &mut Losses) -> Value {
        answer::write(answer, losses)
    }

    fn read_fault(&self, status: u16, body: &[u8]) -> Fault {
        fault::read(status, body)
    }

    fn write_fault(&self, fault: &Fault) -> Value {
        fault::write(fault)
    }

    fn reader(&self) -> Box<dyn StreamReader> {
        Box::<stream::Reader>::default()
    }

    fn writer(&self, _asked: &Chat) -> Box<dyn StreamWriter> {
        Box::<stream::Writer>::default()
    }
}

/// A body whose members are in the one form that is read here, of the two that Google takes.
pub(crate) fn camel_case(body: &Value) -> Cow<'_, Value> {
    camel::of(body)
}

/// Stands where a model of the third generation wants the signature of a call that another model
/// made. Google documents it for that.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// What a model takes depends on its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Generation {
    /// The first and the second count thoughts in tokens, later ones in levels.
    has_levels: bool,
    /// The first and the second refuse ids of calls on Vertex AI.
    has_ids: bool,
    /// From the third on, a call without its signature is refused.
    wants_signatures: bool,
}

impl Generation {
    fn of(model: &str) -> Self {
        let is_gemini = model.contains("gemini");
        let number = model.split("gemini-").nth(1).and_then(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse::<u32>().ok()
        });
        let is_old = number.is_some_and(|number| number < 3);
        Self { has_levels: !is_old, has_ids: !is_old, wants_signatures: is_gemini && !is_old }
    }
}

#[cfg(test)]
mod round_trips;
#[cfg(test)]
mod tests;
