//! Messages, as Anthropic documents them.
//!
//! Requests need [`max_tokens`], which is optional in other dialects. System messages are moved
//! before the conversation, wherever they were.

mod answer;
mod fault;
mod proofs;
mod read;
mod stream;
#[cfg(test)]
mod tests;
mod thinking;
mod versions;
mod write;

pub use versions::max_tokens;

use super::{Losses, StreamReader, StreamWriter, Unreadable, Unsayable, Words};
use crate::chat::{Answer, Chat, Fault, Format};
use serde_json::Value;
use versions::knows_schemas;

#[derive(Debug)]
pub struct Anthropic;

impl Words for Anthropic {
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
        fault::read(status, body)
    }

    fn write_fault(&self, fault: &Fault) -> Value {
        fault::write(fault)
    }

    fn reader(&self) -> Box<dyn StreamReader> {
        Box::new(stream::Reader::default())
    }

    fn writer(&self, asked: &Chat) -> Box<dyn StreamWriter> {
        Box::new(stream::Writer::new(asked))
    }

    fn says_schema_as_tool(&self, chat: &Chat) -> bool {
        matches!(chat.format, Some(Format::Schema { .. })) && !knows_schemas(&chat.model)
    }
}
