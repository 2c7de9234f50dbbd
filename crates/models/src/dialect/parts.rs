//! What several dialects have in common.

use super::members::{At, Members};
use super::{Losses, Unsayable};
use crate::chat::{Chat, Content, Message, Others, Part, Role, Source, Tool, ToolChoice};
use serde_json::Value;
use std::collections::BTreeSet;

pub(crate) fn plain(content: Content) -> Part {
    Part { content, others: Others::new() }
}

/// Reads a URL. A `data:` URL becomes the data itself.
pub(crate) fn source(url: &str, at: &At<'_>) -> Result<Source, Unsayable> {
    let Some(rest) = url.strip_prefix("data:") else { return Ok(Source::Url(url.to_owned())) };
    let Some((head, data)) = rest.split_once(',') else {
        return Err(at.wrong("is a data URL without data"));
    };
    let Some(head) = head.strip_suffix(";base64") else {
        return Err(at.wrong("is a data URL, and those have to be in base64"));
    };
    let media_type = head.split(';').next().unwrap_or(head).to_owned();
    Ok(Source::Data { media_type, data: data.to_owned() })
}

pub(crate) fn data_url(media_type: &str, data: &str) -> String {
    format!("data:{media_type};base64,{data}")
}

/// Guesses the media type of a file in plain base64 from its name.
pub(crate) fn media_type(name: Option<&str>) -> &'static str {
    let extension = name.and_then(|name| name.rsplit_once('.')).map(|(_, extension)| extension);
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("txt" | "md") => "text/plain",
        Some("csv") => "text/csv",
        Some("html") => "text/html",
        Some("json") => "application/json",
        _ => "application/pdf",
    }
}

pub(crate) fn audio_type(format: &str) -> String {
    match format {
        "mp3" => "audio/mpeg".to_owned(),
        format => format!("audio/{format}"),
    }
}

pub(crate) fn input_audio(members: &mut Members<'_>, at: &At<'_>) -> Result<Content, Unsayable> {
    let Some(audio) = members.value("input_audio") else {
        return Err(members.wrong("input_audio", "is missing"));
    };
    let mut audio = Members::of(audio, at.name("input_audio"))?;
    let media_type = audio_type(audio.text("format")?.unwrap_or("wav"));
    let data = audio.must("data")?.to_owned();
    Ok(Content::Audio { source: Source::Data { media_type, data } })
}

pub(crate) fn audio_format(media_type: &str) -> &str {
    match media_type {
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/x-wav" | "audio/wave" => "wav",
        other => other.strip_prefix("audio/").unwrap_or(other),
    }
}

/// Appends a message to the conversation. Consecutive results of tools are joined into one message,
/// and with `joins` also other consecutive messages of the same role.
pub(crate) fn push(messages: &mut Vec<Message>, message: Message, joins: bool) {
    match messages.last_mut() {
        Some(last) if last.role == message.role && (joins || last.role == Role::Tool) => {
            last.parts.extend(message.parts);
        }
        _ => messages.push(message),
    }
}

/// Removes all tools that a choice does not name.
pub(crate) fn allow<'n>(
    tools: &mut Vec<Tool>,
    names: impl Iterator<Item = &'n str>,
    mode: &str,
) -> Option<ToolChoice> {
    let names: BTreeSet<_> = names.collect();
    tools.retain(|tool| names.contains(tool.name.as_str()));
    match mode {
        "auto" => Some(ToolChoice::Auto),
        "required" => Some(ToolChoice::Required),
        _ => None,
    }
}

/// Passes on members that the other dialect knows by the same name and with the same meaning.
pub(crate) fn others(
    others: &Others,
    known: impl Fn(&str, &Value) -> bool,
    losses: &mut Losses,
    mut put: impl FnMut(&str, &Value),
) {
    for (name, value) in others {
        if known(name, value) {
            put(name, value);
        } else if !is_default(name, value) {
            losses.note(name.as_str());
        }
    }
}

/// Returns whether leaving the member out says the same.
fn is_default(name: &str, value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => {
            text.is_empty()
                || matches!(
                    (name, text.as_str()),
                    ("truncation", "disabled") | ("service_tier", "auto")
                )
        }
        Value::Null => true,
        Value::Number(number) => name == "top_logprobs" && number.as_u64() == Some(0),
    }
}

/// Reports members of parts and tools that cannot be expressed.
pub(crate) fn lose(others: &Others, losses: &mut Losses) {
    for name in others.keys() {
        losses.note(name.as_str());
    }
}

/// Longest id of an end user that OpenAI takes. Claude Code sends a longer one in every request.
const END_USER_MAX: usize = 64;

pub(crate) fn end_user<'c>(chat: &'c Chat, losses: &mut Losses) -> Option<&'c str> {
    let user = chat.end_user.as_deref()?;
    if user.chars().count() > END_USER_MAX {
        losses.note("user");
        return None;
    }
    Some(user)
}

/// Returns how many tokens of thinking an effort stands for.
pub(crate) fn budget_of(effort: &str) -> u64 {
    match effort {
        "minimal" => 1024,
        "low" => 2048,
        "high" => 16_384,
        "xhigh" | "max" => 32_768,
        _ => 8192,
    }
}

pub(crate) fn effort_of(budget: u64) -> &'static str {
    match budget {
        0..4096 => "low",
        4096..16_384 => "medium",
        _ => "high",
    }
}
