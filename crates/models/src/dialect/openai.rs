//! Chat completions, as OpenAI documents them and many other providers serve them.
//!
//! In addition to what is documented, names that other providers made common are read and written:
//! the reasoning of an answer as `reasoning_content` (also read as `reasoning`), its proofs as
//! `thinking_blocks`, the proof of a call as `extra_content.google.thought_signature`, and `top_k`.

mod answer;
mod fault;
mod read;
mod sampling;
mod stream;
#[cfg(test)]
mod tests;
mod variants;
mod write;

use super::{Losses, StreamReader, StreamWriter, Unreadable, Unsayable, Words, faults};
use crate::chat::{Answer, Chat, Fault};
use serde_json::Value;

#[derive(Debug)]
pub struct OpenAi;

impl Words for OpenAi {
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
        fault::write(fault)
    }

    fn reader(&self) -> Box<dyn StreamReader> {
        Box::new(stream::Reader::default())
    }

    fn writer(&self, asked: &Chat) -> Box<dyn StreamWriter> {
        Box::new(stream::Writer::new(asked))
    }
}
