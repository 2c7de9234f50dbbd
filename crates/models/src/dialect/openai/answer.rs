//! Reads and writes answers.

use super::{read, write};
use crate::chat::{Answer, Choice, Content, Finish, Part};
use crate::dialect::members::{At, Members, Object};
use crate::dialect::parts::{self, plain};
use crate::dialect::{Losses, Unreadable};
use serde_json::{Value, json};
use types::models::TokenUsage;

pub(super) fn read(body: &Value) -> Result<Answer, Unreadable> {
    let mut members = Members::of(body, At::BODY)?;
    let at = At::BODY.name("choices");
    let choices = members.list("choices")?;
    if choices.is_empty() {
        return Err(at.wrong("is missing").into());
    }
    let choices = choices.iter().enumerate().map(|(index, value)| choice(value, at.index(index)));
    let mut answer = Answer {
        id: members.owned("id")?.unwrap_or_default(),
        model: members.owned("model")?.unwrap_or_default(),
        created: members.value("created").and_then(Value::as_i64).filter(|created| *created != 0),
        choices: choices.collect::<Result<_, _>>()?,
        usage: members.value("usage").map(read_usage),
        ..Answer::default()
    };
    members.value("object");
    answer.others = members.others();
    Ok(answer)
}

fn choice(value: &Value, at: At<'_>) -> Result<Choice, Unreadable> {
    let mut choice = Members::of(value, at)?;
    let Some(message) = choice.value("message") else {
        return Err(choice.wrong("message", "is missing").into());
    };
    let message_at = at.name("message");
    let mut message = Members::of(message, message_at)?;
    let mut parts = read::thoughts(&mut message)?;
    match message.value("content") {
        Some(Value::String(text)) if text.is_empty() => {}
        Some(Value::String(text)) => parts.push(plain(Content::Text(text.clone()))),
        Some(Value::Array(list)) => parts.extend(list.iter().filter_map(spoken)),
        _ => {}
    }
    let refusal = message.owned("refusal")?.filter(|text| !text.is_empty());
    let mut finish = read_finish(choice.text("finish_reason")?.unwrap_or("stop"));
    if let Some(refusal) = refusal {
        parts.push(plain(Content::Refusal(refusal)));
        if finish == Finish::Stop {
            finish = Finish::Refused;
        }
    }
    let calls_at = message_at.name("tool_calls");
    for (index, value) in message.list("tool_calls")?.iter().enumerate() {
        parts.push(read::call(value, calls_at.index(index))?);
        // Some providers give "stop" as the reason here too.
        if finish == Finish::Stop {
            finish = Finish::ToolCalls;
        }
    }
    Ok(Choice { parts, finish })
}

/// Reads one item of a list of parts, as Mistral answers.
fn spoken(value: &Value) -> Option<Part> {
    match value["type"].as_str()? {
        "text" => Some(plain(Content::Text(value["text"].as_str()?.to_owned()))),
        "thinking" => {
            let texts = value["thinking"].as_array()?.iter();
            let text = texts.filter_map(|text| text["text"].as_str()).collect();
            Some(plain(Content::Reasoning { text, signature: None, sealed: None }))
        }
        _ => None,
    }
}

pub(super) fn write(answer: &Answer, losses: &mut Losses) -> Value {
    let choices = answer.choices.iter().enumerate();
    let choices: Vec<Value> = choices
        .map(|(index, choice)| {
            let (message, refuses) = message(&choice.parts, losses);
            json!({
                "index": index,
                "message": message,
                "logprobs": null,
                "finish_reason": write_finish(&choice.finish, refuses),
            })
        })
        .collect();
    let mut body = Object::default();
    body.put("id", answer.id.as_str());
    body.put("object", "chat.completion");
    body.put("created", answer.created.unwrap_or(0));
    body.put("model", answer.model.as_str());
    body.put("choices", choices);
    body.maybe("usage", answer.usage.map(write_usage));
    body.into()
}

fn message(found: &[Part], losses: &mut Losses) -> (Value, bool) {
    let (mut text, mut refusal, mut thought) = (None::<String>, None::<String>, String::new());
    let (mut calls, mut blocks) = (Vec::new(), Vec::new());
    let mut is_proven = false;
    for part in found {
        parts::lose(&part.others, losses);
        match &part.content {
            Content::Text(more) => text.get_or_insert_default().push_str(more),
            Content::Refusal(more) => refusal.get_or_insert_default().push_str(more),
            Content::ToolCall(call) => calls.push(write::call(call)),
            Content::Reasoning { text, signature, sealed } => {
                thought.push_str(text);
                is_proven |= signature.is_some() || sealed.is_some();
                blocks.push(block(text, signature.as_deref(), sealed.as_deref()));
            }
            Content::Image { .. } => losses.note("image"),
            Content::File { .. } => losses.note("file"),
            Content::Audio { .. } => losses.note("audio"),
            Content::ToolResult { .. } => losses.note("tool_result"),
        }
    }
    let says_refusal = refusal.is_some();
    let mut body = Object::default();
    body.put("role", "assistant");
    body.put("content", text);
    body.put("refusal", refusal);
    if !thought.is_empty() {
        body.put("reasoning_content", thought);
    }
    if is_proven {
        body.put("thinking_blocks", blocks);
    }
    if !calls.is_empty() {
        body.put("tool_calls", calls);
    }
    (body.into(), says_refusal)
}

pub(super) fn block(text: &str, signature: Option<&str>, sealed: Option<&str>) -> Value {
    match (signature, sealed) {
        (None, Some(data)) if text.is_empty() => json!({"type": "redacted_thinking", "data": data}),
        _ => {
            let mut body = Object::default();
            body.put("type", "thinking");
            body.put("thinking", text);
            body.maybe("signature", signature);
            body.maybe("data", sealed);
            body.into()
        }
    }
}

pub(super) fn read_finish(word: &str) -> Finish {
    match word {
        "stop" | "eos" => Finish::Stop,
        "length" | "model_length" => Finish::Length,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        "content_filter" => Finish::Filtered,
        other => Finish::Other(other.to_owned()),
    }
}

/// Writes why an answer ended. A refusal in words ends like any other answer.
pub(super) fn write_finish(finish: &Finish, says_refusal: bool) -> &'static str {
    match finish {
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
        Finish::Refused if says_refusal => "stop",
        Finish::Filtered | Finish::Refused => "content_filter",
        Finish::Stop | Finish::StopSequence(_) | Finish::Paused | Finish::Other(_) => "stop",
    }
}

pub(super) fn read_usage(usage: &Value) -> TokenUsage {
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

pub(super) fn write_usage(usage: TokenUsage) -> Value {
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
