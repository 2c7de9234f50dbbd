//! Messages, as Anthropic documents them.
//!
//! Requests need [`max_tokens`], which is optional in other dialects. System messages are moved
//! before the conversation, wherever they were.

mod answer;
mod read;
mod stream;
#[cfg(test)]
mod tests;
mod thinking;
mod versions;
mod write;

pub use versions::max_tokens;

use super::members::Object;
use super::proof_mark::MARK;
use super::{Losses, StreamReader, StreamWriter, Unreadable, Unsayable, Words, faults};
use crate::chat::{Answer, Chat, Fault, Finish, Format};
use serde_json::{Value, json};
use types::models::TokenUsage;
use versions::knows_schemas;

/// The signature of a thought without a proof: a mark with no maker. Claude refuses an empty
/// signature. A thought with this one is removed before it reaches Claude, even if a request is
/// passed on in its own dialect.
const UNPROVEN: &str = MARK;

fn is_proof(signature: &str) -> bool {
    !matches!(signature, "" | UNPROVEN)
}

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
        read_fault(faults::read(status, body))
    }

    fn write_fault(&self, fault: &Fault) -> Value {
        let mut error = Object::default();
        error.put("type", faults::anthropic_kind(fault.status));
        error.put("message", message_of(fault));
        error.maybe("code", fault.code.as_deref());
        json!({"type": "error", "error": Value::from(error)})
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

/// The words by which agents recognize that a conversation has become too long.
const TOO_LONG: &str = "prompt is too long";

fn read_fault(mut fault: Fault) -> Fault {
    if fault.code.is_none() && fault.message.starts_with(TOO_LONG) {
        fault.code = Some(faults::TOO_LONG.to_owned());
    }
    fault
}

fn message_of(fault: &Fault) -> String {
    match fault.code.as_deref() {
        Some(faults::TOO_LONG) if !fault.message.contains(TOO_LONG) => {
            format!("{TOO_LONG}: {}", fault.message)
        }
        _ => fault.message.clone(),
    }
}

fn read_finish(word: &str, sequence: Option<&str>) -> Finish {
    match word {
        "end_turn" => Finish::Stop,
        "stop_sequence" => Finish::StopSequence(sequence.unwrap_or_default().to_owned()),
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "tool_use" => Finish::ToolCalls,
        "refusal" => Finish::Refused,
        "pause_turn" => Finish::Paused,
        other => Finish::Other(other.to_owned()),
    }
}

fn write_finish(finish: &Finish) -> (&'static str, Option<&str>) {
    match finish {
        Finish::Stop | Finish::Other(_) => ("end_turn", None),
        Finish::StopSequence(sequence) => ("stop_sequence", Some(sequence)),
        Finish::Length => ("max_tokens", None),
        Finish::ToolCalls => ("tool_use", None),
        Finish::Filtered | Finish::Refused => ("refusal", None),
        Finish::Paused => ("pause_turn", None),
    }
}

/// Counts of tokens as a stream reports them. Later values replace earlier ones, member by member.
/// In this dialect the input does not include what was in the cache.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    input: u64,
    cached: u64,
    cache_written: u64,
    output: u64,
    reasoning: u64,
}

impl Counts {
    fn read(&mut self, usage: &Value) {
        let take = |name: &str, count: &mut u64| {
            if let Some(found) = usage[name].as_u64() {
                *count = found;
            }
        };
        take("input_tokens", &mut self.input);
        take("cache_read_input_tokens", &mut self.cached);
        take("cache_creation_input_tokens", &mut self.cache_written);
        take("output_tokens", &mut self.output);
        if let Some(found) = usage["output_tokens_details"]["thinking_tokens"].as_u64() {
            self.reasoning = found;
        }
    }

    const fn usage(self) -> TokenUsage {
        TokenUsage {
            input: self.input.saturating_add(self.cached).saturating_add(self.cache_written),
            output: self.output,
            cached: self.cached,
            cache_written: self.cache_written,
            reasoning: self.reasoning,
            cache_written_hour: 0,
            estimated: false,
        }
    }
}

fn write_usage(usage: TokenUsage) -> Value {
    let cached = usage.cached.saturating_add(usage.cache_written);
    let mut body = Object::default();
    body.put("input_tokens", usage.input.saturating_sub(cached));
    body.put("cache_creation_input_tokens", usage.cache_written);
    body.put("cache_read_input_tokens", usage.cached);
    body.put("output_tokens", usage.output);
    if usage.reasoning > 0 {
        body.put("output_tokens_details", json!({"thinking_tokens": usage.reasoning}));
    }
    body.into()
}
