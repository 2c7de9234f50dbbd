//! Responses, the newer dialect of OpenAI. Only what is in a request itself can be translated for
//! another provider, not what OpenAI remembers or does between requests.

mod answer;
mod read;
mod stream;
#[cfg(test)]
mod tests;
mod write;

use super::members::Object;
use super::{Losses, StreamReader, StreamWriter, Unreadable, Unsayable, Words, faults, openai};
use crate::chat::{Answer, Chat, Content, Fault, Finish, Part};
use serde_json::{Value, json};
use types::models::TokenUsage;

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
}

/// Reads why an answer ended, whether it is complete or not.
fn read_finish(response: &Value, parts: &[Part]) -> Finish {
    match response["incomplete_details"]["reason"].as_str() {
        Some("max_output_tokens") => return Finish::Length,
        Some("content_filter") => return Finish::Filtered,
        Some(other) => return Finish::Other(other.to_owned()),
        None => {}
    }
    let has = |is: fn(&Content) -> bool| parts.iter().any(|part| is(&part.content));
    if has(|content| matches!(content, Content::ToolCall(_))) {
        Finish::ToolCalls
    } else if has(|content| matches!(content, Content::Refusal(_))) {
        Finish::Refused
    } else {
        Finish::Stop
    }
}

/// Returns why an answer is incomplete, if it is.
fn incomplete(finish: &Finish, says_refusal: bool) -> Option<&'static str> {
    match finish {
        Finish::Length => Some("max_output_tokens"),
        Finish::Filtered => Some("content_filter"),
        Finish::Refused if !says_refusal => Some("content_filter"),
        _ => None,
    }
}

fn read_usage(usage: &Value) -> TokenUsage {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let input = &usage["input_tokens_details"];
    TokenUsage {
        input: count(&usage["input_tokens"]),
        output: count(&usage["output_tokens"]),
        cached: count(&input["cached_tokens"]),
        cache_written: count(&input["cache_write_tokens"]),
        reasoning: count(&usage["output_tokens_details"]["reasoning_tokens"]),
        ..TokenUsage::default()
    }
}

fn write_usage(usage: TokenUsage) -> Value {
    let mut details = Object::default();
    details.put("cached_tokens", usage.cached);
    if usage.cache_written > 0 {
        details.put("cache_write_tokens", usage.cache_written);
    }
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": Value::from(details),
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total(),
    })
}
