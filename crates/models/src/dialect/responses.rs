//! Responses, the newer dialect of OpenAI. Only what is in a request itself can be translated for
//! another provider, not what OpenAI remembers or does between requests.

mod answer;
mod read;
mod stream;
#[cfg(test)]
mod tests;
mod write;

use super::{Losses, StreamReader, StreamWriter, Unreadable, Unsayable, Words, faults, openai};
use crate::chat::{Answer, Chat, Delta, Fault, Passed};
use bytes::BytesMut;
use serde_json::Value;

#[derive(Debug)]
pub struct Responses;

impl Words for Responses {
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
        openai::OpenAi.write_fault(fault)
    }

    fn reader(&self) -> Box<dyn StreamReader> {
        Box::new(stream::Reader::default())
    }

    fn writer(&self, asked: &Chat) -> Box<dyn StreamWriter> {
        Box::new(stream::Writer::new(asked))
    }

    fn write_last_fault(&self, fault: &Fault, passed: &Passed, out: &mut BytesMut) {
        stream::Writer::after(passed).write(&Delta::Fault(fault.clone()), out);
    }
}
