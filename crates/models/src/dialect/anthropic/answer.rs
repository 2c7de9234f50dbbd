//! Reads and writes answers.

use super::proofs::UNPROVEN;
use super::{read, write};
use crate::chat::{Answer, Choice, Content, Finish, Part};
use crate::dialect::members::{At, Members, Object};
use crate::dialect::{Losses, Unreadable, parts};
use serde_json::{Value, json};
use types::models::TokenUsage;

pub(super) fn read(body: &Value) -> Result<Answer, Unreadable> {
    let mut members = Members::of(body, At::BODY)?;
    let at = At::BODY.name("content");
    let Some(Value::Array(blocks)) = members.value("content") else {
        return Err(at.wrong("is missing").into());
    };
    let sequence = members.text("stop_sequence")?;
    let finish = members.text("stop_reason")?.map(|word| read_finish(word, sequence));
    let mut parts = Vec::with_capacity(blocks.len());
    for (index, value) in blocks.iter().enumerate() {
        let part = read::block(value, at.index(index))?;
        if part.content != Content::Text(String::new()) {
            parts.push(part);
        }
    }
    let usage = members.value("usage").map(|usage| {
        let mut counts = Counts::default();
        counts.read(usage);
        counts.usage()
    });
    Ok(Answer {
        id: members.owned("id")?.unwrap_or_default(),
        model: members.owned("model")?.unwrap_or_default(),
        created: None,
        choices: vec![Choice { parts, finish: finish.unwrap_or(Finish::Stop) }],
        usage,
        ..Answer::default()
    })
}

pub(super) fn write(answer: &Answer, losses: &mut Losses) -> Value {
    let empty = Choice { parts: Vec::new(), finish: Finish::Stop };
    let choice = answer.choices.first().unwrap_or(&empty);
    if answer.choices.len() > 1 {
        losses.note("choices");
    }
    let blocks = choice.parts.iter().flat_map(|part| [proof_of_call(part), block(part, losses)]);
    let content: Vec<Value> = blocks.flatten().map(Value::from).collect();
    let (reason, sequence) = write_finish(&choice.finish);
    json!({
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": write_usage(answer.usage.unwrap_or_default()),
    })
}

/// Writes the signature of a call as a thought before it: a call has no place for it.
fn proof_of_call(part: &Part) -> Option<Object> {
    let Content::ToolCall(call) = &part.content else { return None };
    let signature = Some(call.signature.clone()?);
    write::thought(&Content::Reasoning { text: String::new(), signature, sealed: None })
}

fn block(part: &Part, losses: &mut Losses) -> Option<Object> {
    parts::lose(&part.others, losses);
    let mut body = Object::default();
    match &part.content {
        Content::Text(text) | Content::Refusal(text) => {
            body.put("type", "text");
            body.put("text", text.as_str());
        }
        Content::Reasoning { text, .. } => {
            body = write::thought(&part.content).unwrap_or_else(|| {
                let mut body = Object::default();
                body.put("type", "thinking");
                body.put("thinking", text.as_str());
                body.put("signature", UNPROVEN);
                body
            });
        }
        Content::ToolCall(call) => {
            body.put("type", "tool_use");
            body.put("id", write::id(&call.id).as_ref());
            body.put("name", call.name.as_str());
            // Now and then models write invalid JSON. Whoever offered the tool gets to see it.
            let input = write::input(&call.arguments, &At::BODY);
            body.put("input", input.unwrap_or_else(|_| json!({"arguments": call.arguments})));
        }
        Content::Image { .. } => losses.note("image"),
        Content::File { .. } => losses.note("file"),
        Content::Audio { .. } => losses.note("audio"),
        Content::ToolResult { .. } => losses.note("tool_result"),
    }
    (!body.0.is_empty()).then_some(body)
}

pub(super) fn read_finish(word: &str, sequence: Option<&str>) -> Finish {
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

pub(super) fn write_finish(finish: &Finish) -> (&'static str, Option<&str>) {
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
pub(super) struct Counts {
    input: u64,
    cached: u64,
    cache_written: u64,
    output: u64,
    reasoning: u64,
}

impl Counts {
    pub(super) fn read(&mut self, usage: &Value) {
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

    pub(super) const fn usage(self) -> TokenUsage {
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

pub(super) fn write_usage(usage: TokenUsage) -> Value {
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
