//! Cohere's `/v2/chat`.
//!
//! The plan before calls (`tool_plan`) is read as a thought without a proof, like `thinking`.
//! Citations cannot be expressed in any other dialect, and documents in a request are left out and
//! reported as a loss.

mod answer;
mod read;
mod stream;
mod write;

use super::members::Object;
use super::{Losses, StreamReader, StreamWriter, Unreadable, Unsayable, Words, faults};
use crate::chat::{Answer, Chat, Fault};
use serde_json::Value;

#[derive(Debug)]
pub struct Cohere;

impl Words for Cohere {
    fn read_request(&self, body: &Value) -> Result<Chat, Unsayable> {
        read::request(body)
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
        faults::read(status, body)
    }

    fn write_fault(&self, fault: &Fault) -> Value {
        let mut body = Object::default();
        body.put("message", fault.message.as_str());
        body.maybe("code", fault.code.as_deref());
        body.into()
    }

    fn reader(&self) -> Box<dyn StreamReader> {
        Box::<stream::Reader>::default()
    }

    fn writer(&self, _asked: &Chat) -> Box<dyn StreamWriter> {
        Box::<stream::Writer>::default()
    }
}

#[cfg(test)]
mod round_trips;
#[cfg(test)]
mod tests;
