//! What is implemented for each dialect: reading and writing requests, answers, errors and streams.

use super::losses::{Losses, Unreadable, Unsayable};
use crate::chat::{Answer, Chat, Delta, Fault, Passed};
use crate::events::Event;
use bytes::BytesMut;
use serde_json::Value;

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
    /// Writes the error that ends a stream of which the rest has passed unread.
    fn write_last_fault(&self, fault: &Fault, _: &Passed, out: &mut BytesMut) {
        self.writer(&Chat::default()).write(&Delta::Fault(fault.clone()), out);
    }
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
