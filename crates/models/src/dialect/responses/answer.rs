//! Reads and writes answers.

use super::{read, write};
use crate::chat::{Answer, Choice, Content, Finish, Part};
use crate::dialect::members::{At, Members, Object};
use crate::dialect::{Losses, Unreadable, parts};
use serde_json::{Value, json};
use types::models::TokenUsage;

pub(super) fn read(body: &Value) -> Result<Answer, Unreadable> {
    if body["status"] == "failed" {
        let why = body["error"]["message"].as_str().unwrap_or("it says no reason");
        return Err(Unreadable(format!("it failed: {why}")));
    }
    let mut members = Members::of(body, At::BODY)?;
    let at = At::BODY.name("output");
    let Some(Value::Array(items)) = members.value("output") else {
        return Err(at.wrong("is missing").into());
    };
    let mut parts = Vec::with_capacity(items.len());
    for (index, value) in items.iter().enumerate() {
        item(value, at.index(index), &mut parts)?;
    }
    let finish = read_finish(body, &parts);
    Ok(Answer {
        id: members.owned("id")?.unwrap_or_default(),
        model: members.owned("model")?.unwrap_or_default(),
        created: members.number("created_at")?.and_then(|at| seconds(&at)),
        choices: vec![Choice { parts, finish }],
        usage: members.value("usage").map(read_usage),
        ..Answer::default()
    })
}

/// Reads a time. Some providers write a fraction.
pub(super) fn seconds(at: &serde_json::Number) -> Option<i64> {
    let whole = at.to_string();
    at.as_i64().or_else(|| whole.split('.').next().and_then(|whole| whole.parse().ok()))
}

fn item(value: &Value, at: At<'_>, parts: &mut Vec<Part>) -> Result<(), Unreadable> {
    let mut members = Members::of(value, at)?;
    match members.text("type")?.unwrap_or_default() {
        "message" => {
            let content_at = at.name("content");
            for (index, value) in members.list("content")?.iter().enumerate() {
                parts.push(read::part(value, content_at.index(index))?);
            }
        }
        "reasoning" => {
            let part = read::reasoning(&mut members)?;
            match &part.content {
                Content::Reasoning { text, sealed: None, .. } if text.is_empty() => {}
                _ => parts.push(part),
            }
        }
        "function_call" => parts.push(read::call(&mut members)?),
        // Tools that the provider runs itself cannot have been asked for.
        _ => {}
    }
    Ok(())
}

pub(super) fn write(answer: &Answer, losses: &mut Losses) -> Value {
    let empty = Choice { parts: Vec::new(), finish: Finish::Stop };
    let choice = answer.choices.first().unwrap_or(&empty);
    if answer.choices.len() > 1 {
        losses.note("choices");
    }
    let mut items = Items { base: answer.id.as_str(), items: Vec::new(), spoken: Vec::new() };
    let mut says_refusal = false;
    for part in &choice.parts {
        parts::lose(&part.others, losses);
        says_refusal |= matches!(part.content, Content::Refusal(_));
        items.put(&part.content, losses);
    }
    items.say();
    let reason = incomplete(&choice.finish, says_refusal);
    envelope(
        &answer.id,
        &answer.model,
        answer.created.unwrap_or(0),
        items.items,
        reason,
        answer.usage,
    )
}

/// Builds a complete response.
pub(super) fn envelope(
    id: &str,
    model: &str,
    created: i64,
    output: Vec<Value>,
    reason: Option<&str>,
    usage: Option<TokenUsage>,
) -> Value {
    json!({
        "id": id,
        "object": "response",
        "created_at": created,
        "status": if reason.is_some() { "incomplete" } else { "completed" },
        "error": null,
        "incomplete_details": reason.map(|reason| json!({"reason": reason})),
        "instructions": null,
        "metadata": {},
        "model": model,
        "output": output,
        "parallel_tool_calls": true,
        "temperature": null,
        "tool_choice": "auto",
        "tools": [],
        "top_p": null,
        "usage": usage.map(write_usage),
    })
}

struct Items<'a> {
    base: &'a str,
    items: Vec<Value>,
    /// Parts of the message that is still open.
    spoken: Vec<Value>,
}

impl Items<'_> {
    fn put(&mut self, content: &Content, losses: &mut Losses) {
        match content {
            Content::Text(text) => self.spoken.push(output_text(text)),
            Content::Refusal(text) => {
                self.spoken.push(json!({"type": "refusal", "refusal": text}));
            }
            Content::Reasoning { text, signature, sealed } => {
                self.say();
                let id = item_id("rs", self.base, self.items.len());
                let proof = sealed.as_deref().or(signature.as_deref());
                self.items.push(write::reasoning_item(Some(&id), text, proof));
            }
            Content::ToolCall(call) => {
                self.say();
                let id = item_id("fc", self.base, self.items.len());
                self.items.push(function_call(&id, call));
            }
            Content::Image { .. } => losses.note("image"),
            Content::File { .. } => losses.note("file"),
            Content::Audio { .. } => losses.note("audio"),
            Content::ToolResult { .. } => losses.note("tool_result"),
        }
    }

    fn say(&mut self) {
        if !self.spoken.is_empty() {
            let id = item_id("msg", self.base, self.items.len());
            let content = std::mem::take(&mut self.spoken);
            self.items.push(message(&id, "completed", content));
        }
    }
}

pub(super) fn item_id(kind: &str, base: &str, index: usize) -> String {
    format!("{kind}_{base}_{index}")
}

pub(super) fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

pub(super) fn message(id: &str, status: &str, content: Vec<Value>) -> Value {
    json!({
        "id": id, "type": "message", "role": "assistant", "status": status, "content": content,
    })
}

pub(super) fn function_call(id: &str, call: &crate::chat::ToolCall) -> Value {
    let mut body = Object::default();
    body.put("id", id);
    body.put("type", "function_call");
    body.put("status", "completed");
    body.put("call_id", call.id.as_str());
    body.put("name", call.name.as_str());
    body.put("arguments", call.arguments.as_str());
    // Gemini puts it on calls and wants it back.
    body.maybe("signature", call.signature.as_deref());
    body.into()
}

/// Reads why an answer ended, whether it is complete or not.
pub(super) fn read_finish(response: &Value, parts: &[Part]) -> Finish {
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
pub(super) fn incomplete(finish: &Finish, says_refusal: bool) -> Option<&'static str> {
    match finish {
        Finish::Length => Some("max_output_tokens"),
        Finish::Filtered => Some("content_filter"),
        Finish::Refused if !says_refusal => Some("content_filter"),
        _ => None,
    }
}

pub(super) fn read_usage(usage: &Value) -> TokenUsage {
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
