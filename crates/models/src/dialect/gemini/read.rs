//! Reads requests.

use super::calls::Calls;
use super::parts::{self, Of};
use super::schema;
use crate::chat::{Chat, Content, Format, Message, Reasoning, Role, Tool, ToolChoice};
use crate::dialect::Unsayable;
use crate::dialect::members::{At, Members};
use crate::dialect::parts::plain;
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn request(body: &Value) -> Result<Chat, Unsayable> {
    let mut members = Members::of(body, At::BODY)?;
    let mut chat = Chat { stream_usage: true, ..Chat::default() };
    chat.model = members.owned("model")?.unwrap_or_default();
    if members.text("cachedContent")?.is_some() {
        return Err(members.wrong("cachedContent", "is kept by Google: nobody else has it"));
    }
    if let Some(content) = members.value("systemInstruction") {
        chat.messages.push(system(content)?);
    }
    let contents = many(members.value("contents"));
    if contents.is_empty() {
        return Err(members.wrong("contents", "is missing"));
    }
    let (at, mut calls) = (At::BODY.name("contents"), Calls::default());
    for (index, content) in contents.iter().enumerate() {
        read_content(content, at.index(index), &mut calls, &mut chat.messages)?;
    }
    tools(members.value("tools"), &mut chat)?;
    if let Some(config) = members.value("toolConfig") {
        tool_config(config, &mut chat)?;
    }
    if let Some(config) = members.value("generationConfig") {
        generation_config(config, &mut chat)?;
    }
    chat.others.extend(members.others());
    Ok(chat)
}

/// Returns a list. Google also takes a single item in place of one.
fn many(value: Option<&Value>) -> &[Value] {
    match value {
        None => &[],
        Some(Value::Array(list)) => list,
        Some(one) => std::slice::from_ref(one),
    }
}

fn system(content: &Value) -> Result<Message, Unsayable> {
    let mut messages = Vec::new();
    let at = At::BODY.name("systemInstruction");
    let text = match content {
        Value::String(text) => Some(text),
        _ => None,
    };
    let parts = match text {
        Some(text) => vec![plain(Content::Text(text.clone()))],
        None => {
            read_content(content, at, &mut Calls::default(), &mut messages)?;
            messages.into_iter().flat_map(|message| message.parts).collect()
        }
    };
    Ok(Message { role: Role::System, name: None, parts })
}

/// Reads a content. Results of tools become messages of their own.
fn read_content(
    content: &Value,
    at: At<'_>,
    calls: &mut Calls,
    messages: &mut Vec<Message>,
) -> Result<(), Unsayable> {
    let mut members = Members::of(content, at)?;
    let role = match members.text("role")? {
        Some("model" | "assistant") => Role::Assistant,
        None | Some("user" | "function" | "tool" | "") => Role::User,
        Some("system") => Role::System,
        Some(_) => return Err(members.wrong("role", "has to be `user` or `model`")),
    };
    let mut found = Vec::new();
    let (at_parts, mut of) = (at.name("parts"), Of::Conversation(calls));
    for (index, part) in many(members.value("parts")).iter().enumerate() {
        parts::read(part, at_parts.index(index), &mut of, &mut found)?;
    }
    let first = messages.len();
    for part in found {
        let role = match part.content {
            Content::ToolResult { .. } => Role::Tool,
            _ => role,
        };
        match messages[first..].last_mut() {
            Some(last) if last.role == role => last.parts.push(part),
            _ => messages.push(Message { role, name: None, parts: vec![part] }),
        }
    }
    Ok(())
}

fn tools(value: Option<&Value>, chat: &mut Chat) -> Result<(), Unsayable> {
    let at = At::BODY.name("tools");
    for (index, tool) in many(value).iter().enumerate() {
        let at = at.index(index);
        let mut members = Members::of(tool, at)?;
        let at_each = at.name("functionDeclarations");
        for (index, tool) in many(members.value("functionDeclarations")).iter().enumerate() {
            chat.tools.push(declaration(tool, at_each.index(index))?);
        }
        // For example Google's search.
        if let Some(own) = members.others().keys().next() {
            return Err(at.name(own).wrong("is a tool of Google's own"));
        }
    }
    Ok(())
}

fn declaration(tool: &Value, at: At<'_>) -> Result<Tool, Unsayable> {
    let mut members = Members::of(tool, at)?;
    let name = members.must("name")?.to_owned();
    let description = members.owned("description")?;
    let googles = members.value("parameters").map(schema::to_json_schema);
    let parameters = members.value("parametersJsonSchema").cloned().or(googles);
    Ok(Tool { name, description, parameters, strict: None, others: members.others() })
}

fn tool_config(value: &Value, chat: &mut Chat) -> Result<(), Unsayable> {
    let at = At::BODY.name("toolConfig");
    let mut members = Members::of(value, at)?;
    let Some(calling) = members.value("functionCallingConfig") else {
        chat.others.extend(members.others());
        return Ok(());
    };
    chat.others.extend(members.others());
    let at = at.name("functionCallingConfig");
    let mut members = Members::of(calling, at)?;
    let mode = members.text("mode")?.unwrap_or("AUTO").to_ascii_uppercase();
    let allowed: Vec<_> =
        members.list("allowedFunctionNames")?.iter().filter_map(Value::as_str).collect();
    // Allowing some of the tools is the same as offering only those.
    let mut offer = || {
        if !allowed.is_empty() {
            // Searching the list for every tool would be quadratic.
            let allowed: BTreeSet<_> = allowed.iter().copied().collect();
            chat.tools.retain(|tool| allowed.contains(tool.name.as_str()));
        }
    };
    chat.tool_choice = match mode.as_str() {
        "AUTO" | "MODE_UNSPECIFIED" => Some(ToolChoice::Auto),
        "NONE" => Some(ToolChoice::None),
        "ANY" => match allowed.as_slice() {
            [name] => Some(ToolChoice::Named((*name).to_owned())),
            _ => {
                offer();
                Some(ToolChoice::Required)
            }
        },
        "VALIDATED" => {
            offer();
            chat.tools.iter_mut().for_each(|tool| tool.strict = Some(true));
            Some(ToolChoice::Auto)
        }
        _ => return Err(members.wrong("mode", "is none of the modes that are known here")),
    };
    chat.others.extend(members.others());
    Ok(())
}

fn generation_config(value: &Value, chat: &mut Chat) -> Result<(), Unsayable> {
    let at = At::BODY.name("generationConfig");
    let mut members = Members::of(value, at)?;
    chat.max_tokens = members.count("maxOutputTokens")?;
    chat.temperature = members.number("temperature")?;
    chat.top_p = members.number("topP")?;
    // It counts, but its type in the protocol is `float`.
    chat.top_k = members.number("topK")?.and_then(|number| whole(number.as_f64()?));
    chat.presence_penalty = members.number("presencePenalty")?;
    chat.frequency_penalty = members.number("frequencyPenalty")?;
    chat.seed = members.integer("seed")?;
    chat.choices = members.count("candidateCount")?;
    for (index, stop) in members.list("stopSequences")?.iter().enumerate() {
        let at_stop = at.name("stopSequences");
        let text = stop.as_str().ok_or_else(|| at_stop.index(index).wrong("has to be text"))?;
        chat.stop.push(text.to_owned());
    }
    for (index, kind) in members.list("responseModalities")?.iter().enumerate() {
        if !kind.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("text")) {
            let at_kind = at.name("responseModalities");
            return Err(at_kind.index(index).wrong("is more than other models than Gemini answer"));
        }
    }
    chat.format = format(&mut members)?;
    if let Some(config) = members.value("thinkingConfig") {
        chat.reasoning = Some(thinking(config, at.name("thinkingConfig"))?);
    }
    chat.others.extend(members.others());
    Ok(())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "looked at before")]
fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..1e15).contains(&number)).then_some(number as u64)
}

fn format(members: &mut Members<'_>) -> Result<Option<Format>, Unsayable> {
    let googles = members.value("responseSchema").map(schema::to_json_schema);
    let own = members.value("_responseJsonSchema").cloned();
    let schema = members.value("responseJsonSchema").cloned().or(own).or(googles);
    let named = |schema| Format::Schema {
        name: "answer".to_owned(),
        description: None,
        schema,
        strict: Some(true),
    };
    match (members.text("responseMimeType")?, schema) {
        (None | Some("application/json"), Some(schema)) => Ok(Some(named(schema))),
        (Some("application/json"), None) => Ok(Some(Format::Json)),
        (Some("text/plain"), _) => Ok(Some(Format::Text)),
        (None, None) => Ok(None),
        (Some(_), _) => {
            Err(members.wrong("responseMimeType", "is no format that other models answer in"))
        }
    }
}

fn thinking(value: &Value, at: At<'_>) -> Result<Reasoning, Unsayable> {
    let mut members = Members::of(value, at)?;
    let shows = members.flag("includeThoughts")?.unwrap_or(false);
    let level = members.text("thinkingLevel")?.map(str::to_ascii_lowercase);
    let effort = level.filter(|level| level != "thinking_level_unspecified");
    let budget = members.integer("thinkingBudget")?;
    let (effort, budget_tokens) = match (effort, budget) {
        (None, Some(0)) => (Some("none".to_owned()), None),
        // A negative budget leaves it to the model.
        (effort, budget) => (effort, budget.and_then(|budget| u64::try_from(budget).ok())),
    };
    Ok(Reasoning { effort, budget_tokens, summary: shows.then(|| "auto".to_owned()) })
}
