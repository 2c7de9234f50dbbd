//! Reads and writes answers.

use super::{read, write};
use crate::chat::{Answer, Choice, Content, Finish};
use crate::dialect::members::{At, Members, Object};
use crate::dialect::{Losses, Unreadable, parts};
use serde_json::{Value, json};
use types::models::TokenUsage;

pub(super) fn read(body: &Value) -> Result<Answer, Unreadable> {
    let mut members = Members::of(body, At::BODY)?;
    let at = At::BODY.name("message");
    let message = members.value("message").ok_or_else(|| at.wrong("is missing"))?;
    let mut found = Vec::new();
    let mut said = Members::of(message, at)?;
    said.value("role");
    read::assistant(&mut said, at, &mut found)?;
    found.retain(|part| !matches!(&part.content, Content::Text(text) if text.is_empty()));
    let finish = members.text("finish_reason")?.map_or(Finish::Stop, read_finish);
    let choices = vec![Choice { parts: found, finish }];
    let id = members.owned("id")?.unwrap_or_default();
    let usage = members.value("usage").map(usage);
    let mut others = members.others();
    others.extend(said.others());
    Ok(Answer { id, model: String::new(), created: None, choices, usage, others })
}

/// Reads why an answer ended. Cohere does not say which stop sequence ended it.
pub(super) fn read_finish(word: &str) -> Finish {
    match word {
        "COMPLETE" | "STOP_SEQUENCE" => Finish::Stop,
        "MAX_TOKENS" | "ERROR_LIMIT" => Finish::Length,
        "TOOL_CALL" => Finish::ToolCalls,
        "ERROR_TOXIC" => Finish::Filtered,
        other => Finish::Other(other.to_owned()),
    }
}

pub(super) fn write_finish(finish: &Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::Refused | Finish::Paused => "COMPLETE",
        Finish::StopSequence(_) => "STOP_SEQUENCE",
        Finish::Length => "MAX_TOKENS",
        Finish::ToolCalls => "TOOL_CALL",
        Finish::Other(word) if word == "TIMEOUT" => "TIMEOUT",
        Finish::Filtered | Finish::Other(_) => "ERROR",
    }
}

/// Reads the billed tokens, or if there are none, the tokens that the model read and wrote.
pub(super) fn usage(usage: &Value) -> TokenUsage {
    let count = |of: &str, name: &str| {
        let value = &usage[of][name];
        // Whole numbers that may be written with a decimal point.
        value.as_u64().or_else(|| format!("{:.0}", value.as_f64()?).parse().ok())
    };
    let tokens = |name| count("billed_units", name).or(count("tokens", name)).unwrap_or(0);
    TokenUsage {
        input: tokens("input_tokens"),
        output: tokens("output_tokens"),
        cached: usage["cached_tokens"].as_u64().unwrap_or(0),
        ..TokenUsage::default()
    }
}

pub(super) fn write_usage(usage: &TokenUsage) -> Value {
    let tokens = json!({ "input_tokens": usage.input, "output_tokens": usage.output });
    json!({ "billed_units": tokens, "tokens": tokens, "cached_tokens": usage.cached })
}

pub(super) fn write(answer: &Answer, losses: &mut Losses) -> Value {
    if answer.choices.len() > 1 {
        losses.note("choices");
    }
    let mut body = Object::default();
    body.put("id", answer.id.as_str());
    if let Some(choice) = answer.choices.first() {
        body.put("finish_reason", write_finish(&choice.finish));
        body.put("message", write_message(choice, losses));
    }
    if let Some(usage) = &answer.usage {
        if usage.reasoning > 0 {
            losses.note("usage.reasoning");
        }
        if usage.cache_written > 0 {
            losses.note("usage.cache_written");
        }
        body.put("usage", write_usage(usage));
    }
    parts::lose(&answer.others, losses);
    body.into()
}

fn write_message(choice: &Choice, losses: &mut Losses) -> Value {
    // Answers cannot contain media.
    let mut sayable = choice.parts.clone();
    sayable.retain(|part| {
        parts::lose(&part.others, losses);
        let says = matches!(
            part.content,
            Content::Text(_)
                | Content::Refusal(_)
                | Content::Reasoning { .. }
                | Content::ToolCall(_)
        );
        if !says {
            losses.note("content");
        }
        says
    });
    match write::assistant(&sayable, "message", losses) {
        Ok(mut message) => {
            // The answer holds a list even for a single item.
            if let Some(text) = message["content"].as_str() {
                message["content"] = match text {
                    "" => json!([]),
                    text => json!([{ "type": "text", "text": text }]),
                };
            }
            message
        }
        Err(_) => json!({ "role": "assistant", "content": [] }),
    }
}
