//! Gemini's `generateContent` and `streamGenerateContent`, as the Gemini API and Vertex AI serve
//! them.
//!
//! The name of the model is in the path. Ids of function calls are optional; [`calls`] makes up the
//! missing ones. A `thoughtSignature` is on the part that followed the thoughts. In a [`Chat`] it
//! belongs to the call, or to a thought without text before the part.

mod answer;
pub mod array;
mod calls;
mod camel;
mod fault;
mod generations;
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

/// Rewrites a body into the one spelling of members that is read here; Google takes two.
pub(crate) fn camel_case(body: &Value) -> Cow<'_, Value> {
    camel::of(body)
}

#[cfg(test)]
mod round_trips;
#[cfg(test)]
mod tests;
