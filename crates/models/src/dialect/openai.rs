//! Chat completions, as OpenAI documents them and many other providers serve them.
//!
//! In addition to what is documented, names that other providers made common are read and written:
//! the reasoning of an answer as `reasoning_content` (also read as `reasoning`), its proofs as
//! `thinking_blocks`, the proof of a call as `extra_content.google.thought_signature`, and `top_k`.

mod answer;
mod read;
mod sampling;
mod stream;
#[cfg(test)]
mod tests;
mod write;

use super::members::Object;
use super::{Losses, StreamReader, StreamWriter, Unreadable, Unsayable, Words, faults};
use crate::chat::{Answer, Chat, Fault, Finish};
use serde_json::{Value, json};
use types::kinds::model::ModelType;
use types::models::TokenUsage;

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
        let kind = faults::openai_kind(fault.status);
        json!({"error": {
            "message": fault.message,
            "type": kind,
            "param": fault.parameter,
            "code": fault.code,
        }})
    }

    fn reader(&self) -> Box<dyn StreamReader> {
        Box::new(stream::Reader::default())
    }

    fn writer(&self, asked: &Chat) -> Box<dyn StreamWriter> {
        Box::new(stream::Writer::new(asked))
    }
}

/// Returns whether this is one of OpenAI's models that refuse `max_tokens`. All other models know
/// that name, and not every compatible provider knows the newer one.
fn is_reasoning_model(model: &str) -> bool {
    let name = model.rsplit(['/', ':']).next().unwrap_or(model);
    let digits = |rest: &str| rest.bytes().take_while(u8::is_ascii_digit).count();
    if let Some(rest) = name.strip_prefix("gpt-") {
        return rest[..digits(rest)].parse::<u32>().is_ok_and(|version| version >= 5);
    }
    name.strip_prefix('o').is_some_and(|rest| digits(rest) > 0)
}

/// Returns whether Mistral is called, which refuses every member that it does not know.
fn is_mistral(chat: &Chat) -> bool {
    chat.provider == Some(ModelType::Mistral)
}

fn read_finish(word: &str) -> Finish {
    match word {
        "stop" | "eos" => Finish::Stop,
        "length" | "model_length" => Finish::Length,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        "content_filter" => Finish::Filtered,
        other => Finish::Other(other.to_owned()),
    }
}

/// Writes why an answer ended. A refusal in words ends like any other answer.
fn write_finish(finish: &Finish, says_refusal: bool) -> &'static str {
    match finish {
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
        Finish::Refused if says_refusal => "stop",
        Finish::Filtered | Finish::Refused => "content_filter",
        Finish::Stop | Finish::StopSequence(_) | Finish::Paused | Finish::Other(_) => "stop",
    }
}

fn read_usage(usage: &Value) -> TokenUsage {
    let count = |value: &Value| value.as_u64();
    let (input, output) = (&usage["prompt_tokens_details"], &usage["completion_tokens_details"]);
    let cached = count(&input["cached_tokens"]).or(count(&usage["prompt_cache_hit_tokens"]));
    let prompt = count(&usage["prompt_tokens"]).unwrap_or(0);
    // xAI does not count thoughts as output, but does in the total.
    let rest = count(&usage["total_tokens"]).unwrap_or(0).saturating_sub(prompt);
    TokenUsage {
        input: prompt,
        output: count(&usage["completion_tokens"]).unwrap_or(0).max(rest),
        cached: cached.unwrap_or(0),
        cache_written: count(&input["cache_write_tokens"]).unwrap_or(0),
        reasoning: count(&output["reasoning_tokens"]).unwrap_or(0),
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
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total(),
        "prompt_tokens_details": Value::from(details),
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}
