//! Reads and writes answers.

use super::calls::Calls;
use super::parts::{self, Of};
use crate::chat::{Answer, Choice, Content, Finish, Others, Part};
use crate::dialect::members::{At, Members, Object};
use crate::dialect::parts::lose;
use crate::dialect::{Losses, Unreadable, Unsayable};
use serde_json::{Value, json};
use types::models::TokenUsage;

pub(super) fn read(body: &Value) -> Result<Answer, Unreadable> {
    let mut members = Members::of(body, At::BODY)?;
    if members.value("error").is_some() {
        return Err(Unreadable("it is an error".to_owned()));
    }
    let id = members.owned("responseId")?.unwrap_or_default();
    let model = members.owned("modelVersion")?.unwrap_or_default();
    let mut others = Others::new();
    let (at, candidates) = (At::BODY.name("candidates"), members.list("candidates")?);
    let mut choices = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let mut calls = Calls::of_answer(&choice_id(&id, index));
        choices.push(read_candidate(candidate, at.index(index), &mut calls, &mut others)?);
    }
    let blocked = blocked(&mut members)?;
    if choices.is_empty() {
        let Some(finish) = blocked else {
            return Err(Unreadable("it has neither candidates nor a reason why".to_owned()));
        };
        choices.push(Choice { parts: Vec::new(), finish });
    }
    let usage = members.value("usageMetadata").map(usage).transpose()?;
    members.value("createTime");
    others.extend(members.others());
    Ok(Answer { id, model, created: None, choices, usage, others })
}

/// Returns an id for each choice, so that calls of different choices get different ids.
pub(super) fn choice_id(id: &str, choice: usize) -> String {
    match (id, choice) {
        ("", _) | (_, 0) => id.to_owned(),
        (id, choice) => format!("{choice}x{id}"),
    }
}

/// Returns why the request was not answered at all, if it was blocked.
pub(super) fn blocked(members: &mut Members<'_>) -> Result<Option<Finish>, Unsayable> {
    let Some(feedback) = members.value("promptFeedback") else { return Ok(None) };
    let reason = feedback.get("blockReason").and_then(Value::as_str);
    Ok(reason.filter(|reason| *reason != "BLOCK_REASON_UNSPECIFIED").map(|_| Finish::Filtered))
}

fn read_candidate(
    candidate: &Value,
    at: At<'_>,
    calls: &mut Calls,
    others: &mut Others,
) -> Result<Choice, Unsayable> {
    let mut members = Members::of(candidate, at)?;
    let parts = read_parts(&mut members, at, calls)?;
    let has_calls = parts.iter().any(|part| matches!(part.content, Content::ToolCall(_)));
    let finish = members.text("finishReason")?.map_or(Finish::Stop, read_finish);
    members.value("index");
    members.value("tokenCount");
    let of_candidate = members.others().into_iter();
    others.extend(of_candidate.map(|(name, value)| (format!("candidates.{name}"), value)));
    let finish = if has_calls && finish == Finish::Stop { Finish::ToolCalls } else { finish };
    Ok(Choice { parts, finish })
}

pub(super) fn read_parts(
    candidate: &mut Members<'_>,
    at: At<'_>,
    calls: &mut Calls,
) -> Result<Vec<Part>, Unsayable> {
    let (mut found, mut of) = (Vec::new(), Of::Answer(calls));
    let Some(content) = candidate.value("content") else { return Ok(found) };
    let at = at.name("content");
    let mut members = Members::of(content, at)?;
    let at = at.name("parts");
    for (index, part) in members.list("parts")?.iter().enumerate() {
        parts::read(part, at.index(index), &mut of, &mut found)?;
    }
    Ok(found)
}

pub(super) fn read_finish(word: &str) -> Finish {
    match word {
        "STOP" => Finish::Stop,
        "MAX_TOKENS" => Finish::Length,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "MODEL_ARMOR" => Finish::Filtered,
        other => Finish::Other(other.to_owned()),
    }
}

pub(super) fn write_finish(finish: &Finish) -> &str {
    match finish {
        Finish::Stop | Finish::StopSequence(_) | Finish::ToolCalls => "STOP",
        Finish::Length => "MAX_TOKENS",
        Finish::Filtered | Finish::Refused => "SAFETY",
        Finish::Other(word) if is_word(word) => word,
        Finish::Paused | Finish::Other(_) => "OTHER",
    }
}

/// Returns whether it looks like one of Google's words.
fn is_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

pub(super) fn usage(value: &Value) -> Result<TokenUsage, Unsayable> {
    let mut members = Members::of(value, At::BODY.name("usageMetadata"))?;
    let reasoning = members.tokens("thoughtsTokenCount");
    // What Google's own tools found counts as input.
    let of_tools = members.tokens("toolUsePromptTokenCount");
    Ok(TokenUsage {
        input: members.tokens("promptTokenCount").saturating_add(of_tools),
        output: members.tokens("candidatesTokenCount").saturating_add(reasoning),
        cached: members.tokens("cachedContentTokenCount"),
        reasoning,
        ..TokenUsage::default()
    })
}

pub(super) fn write_usage(usage: &TokenUsage) -> Value {
    let mut object = Object::default();
    object.put("promptTokenCount", usage.input);
    object.put("candidatesTokenCount", usage.output.saturating_sub(usage.reasoning));
    object.put("totalTokenCount", usage.total());
    if usage.cached > 0 {
        object.put("cachedContentTokenCount", usage.cached);
    }
    if usage.reasoning > 0 {
        object.put("thoughtsTokenCount", usage.reasoning);
    }
    object.into()
}

pub(super) fn write(answer: &Answer, losses: &mut Losses) -> Value {
    let candidates: Vec<_> = (answer.choices.iter().enumerate())
        .map(|(index, choice)| write_candidate(choice, index, losses))
        .collect();
    let mut body = Object::default();
    body.put("candidates", candidates);
    if let Some(usage) = &answer.usage {
        if usage.cache_written > 0 {
            losses.note("usage.cache_written");
        }
        body.put("usageMetadata", write_usage(usage));
    }
    body.put("modelVersion", answer.model.as_str());
    body.put("responseId", answer.id.as_str());
    lose(&answer.others, losses);
    body.into()
}

fn write_candidate(choice: &Choice, index: usize, losses: &mut Losses) -> Value {
    let mut answered = Answered::default();
    for part in &choice.parts {
        answered.part(part, losses);
    }
    let mut candidate = answered.candidate(index, Some(&choice.finish));
    if let Finish::StopSequence(_) | Finish::Paused = choice.finish {
        losses.note("finish");
    }
    if candidate["content"]["parts"].as_array().is_none_or(Vec::is_empty) {
        candidate["content"]["parts"] = json!([{ "text": "" }]);
    }
    candidate
}

/// The parts of one candidate that are still to be written.
#[derive(Debug, Default)]
pub(super) struct Answered {
    pub(super) parts: Vec<Value>,
    /// The signature of a thought. It goes on the part after the thought.
    pub(super) signature: Option<String>,
    /// The last call whose arguments are not a JSON object.
    malformed: Option<String>,
}

impl Answered {
    pub(super) fn part(&mut self, part: &Part, losses: &mut Losses) {
        match &part.content {
            Content::Reasoning { text, signature, sealed } => {
                if sealed.is_some() {
                    losses.note("reasoning.signature");
                }
                if !text.is_empty() {
                    self.parts.push(json!({ "text": text, "thought": true }));
                }
                if signature.is_some() {
                    self.signature.clone_from(signature);
                }
            }
            Content::ToolCall(call) => {
                if call.signature.is_some() {
                    self.signature.clone_from(&call.signature);
                }
                match parts::write_call(call, true) {
                    Some(value) => self.push(value),
                    None => {
                        let text = format!("{}({})", call.name, call.arguments);
                        self.malformed = Some(format!("Malformed function call: {text}"));
                    }
                }
            }
            _ => match parts::write(part, "", losses) {
                Ok(value) => self.push(value),
                // For example a file that only its provider has.
                Err(_) => losses.note("content"),
            },
        }
    }

    pub(super) fn push(&mut self, mut value: Value) {
        if let Some(signature) = self.signature.take() {
            value["thoughtSignature"] = signature.into();
        }
        self.parts.push(value);
    }

    /// Takes out what is there as a candidate. With a reason for the end, that includes everything
    /// held back.
    pub(super) fn candidate(&mut self, index: usize, finish: Option<&Finish>) -> Value {
        if finish.is_some() && self.signature.is_some() {
            self.push(json!({ "text": "" }));
        }
        let mut candidate = Object::default();
        let parts = std::mem::take(&mut self.parts);
        candidate.put("content", json!({ "parts": parts, "role": "model" }));
        if let Some(finish) = finish {
            let malformed = self.malformed.take();
            let word =
                malformed.as_ref().map_or(write_finish(finish), |_| "MALFORMED_FUNCTION_CALL");
            candidate.put("finishReason", word);
            candidate.maybe("finishMessage", malformed);
        }
        candidate.put("index", index);
        candidate.into()
    }
}
