//! Reads requests.

use crate::chat::{
    Chat, Content, Format, Message, Part, Reasoning, Role, Tool, ToolCall, ToolChoice,
};
use crate::dialect::Unsayable;
use crate::dialect::members::{At, Members};
use crate::dialect::parts::{self, plain};
use serde_json::Value;

pub(super) fn request(body: &Value) -> Result<Chat, Unsayable> {
    let mut members = Members::of(body, At::BODY)?;
    let messages = members.list("messages")?;
    if messages.is_empty() {
        return Err(members.wrong("messages", "is missing"));
    }
    let mut chat = Chat {
        model: members.owned("model")?.unwrap_or_default(),
        max_tokens: members.count("max_tokens")?,
        temperature: members.number("temperature")?,
        top_p: members.number("p")?,
        top_k: members.count("k")?,
        presence_penalty: members.number("presence_penalty")?,
        frequency_penalty: members.number("frequency_penalty")?,
        seed: members.integer("seed")?,
        stream: members.flag("stream")?.unwrap_or(false),
        stream_usage: true,
        ..Chat::default()
    };
    for (index, stop) in members.list("stop_sequences")?.iter().enumerate() {
        let at = At::BODY.name("stop_sequences");
        let text = stop.as_str().ok_or_else(|| at.index(index).wrong("has to be text"))?;
        chat.stop.push(text.to_owned());
    }
    let at = At::BODY.name("messages");
    for (index, message) in messages.iter().enumerate() {
        read_message(message, at.index(index), &mut chat.messages)?;
    }
    let strict = members.flag("strict_tools")?;
    let at = At::BODY.name("tools");
    for (index, value) in members.list("tools")?.iter().enumerate() {
        chat.tools.push(tool(value, at.index(index), strict)?);
    }
    chat.tool_choice = match members.text("tool_choice")? {
        None => None,
        Some("NONE") => Some(ToolChoice::None),
        Some("REQUIRED") => Some(ToolChoice::Required),
        Some(_) => return Err(members.wrong("tool_choice", "has to be `REQUIRED` or `NONE`")),
    };
    if let Some(value) = members.value("response_format") {
        chat.format = format(value)?;
    }
    if let Some(value) = members.value("thinking") {
        chat.reasoning = thinking(value)?;
    }
    chat.others = members.others();
    Ok(chat)
}

fn read_message(value: &Value, at: At<'_>, messages: &mut Vec<Message>) -> Result<(), Unsayable> {
    let mut members = Members::of(value, at)?;
    let role = match members.must("role")? {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => {
            let why = "has to be `system`, `user`, `assistant` or `tool`";
            return Err(members.wrong("role", why));
        }
    };
    let mut found = Vec::new();
    if role == Role::Tool {
        let call = members.must("tool_call_id")?.to_owned();
        content(&mut members, at, &mut found)?;
        let content = found.into_iter().map(|part| part.content).collect();
        found = vec![plain(Content::ToolResult { call, name: None, content, is_error: false })];
    } else {
        assistant(&mut members, at, &mut found)?;
    }
    // For example the citations of an answer, which are about it and not part of it.
    let others = members.others();
    if let Some(last) = found.last_mut() {
        last.others.extend(others);
    }
    parts::push(messages, Message { role, name: None, parts: found }, false);
    Ok(())
}

/// Reads the assistant's content and calls, in a request and in an answer.
pub(super) fn assistant(
    members: &mut Members<'_>,
    at: At<'_>,
    found: &mut Vec<Part>,
) -> Result<(), Unsayable> {
    if let Some(plan) = members.text("tool_plan")?.filter(|plan| !plan.is_empty()) {
        found.push(plain(thought(plan)));
    }
    content(members, at, found)?;
    let at = at.name("tool_calls");
    for (index, call) in members.list("tool_calls")?.iter().enumerate() {
        found.push(plain(Content::ToolCall(tool_call(call, at.index(index))?)));
    }
    Ok(())
}

fn thought(text: &str) -> Content {
    Content::Reasoning { text: text.to_owned(), signature: None, sealed: None }
}

fn content(members: &mut Members<'_>, at: At<'_>, found: &mut Vec<Part>) -> Result<(), Unsayable> {
    let at = at.name("content");
    match members.value("content") {
        None => {}
        Some(Value::String(text)) => found.push(plain(Content::Text(text.clone()))),
        Some(Value::Array(list)) => {
            for (index, part) in list.iter().enumerate() {
                found.push(read_part(part, at.index(index))?);
            }
        }
        Some(_) => return Err(at.wrong("has to be text or a list")),
    }
    Ok(())
}

fn read_part(value: &Value, at: At<'_>) -> Result<Part, Unsayable> {
    let mut members = Members::of(value, at)?;
    let content = match members.text("type")?.unwrap_or("text") {
        "text" => Content::Text(members.must("text")?.to_owned()),
        "thinking" => thought(members.must("thinking")?),
        "image_url" => image(members.value("image_url"), at)?,
        // The result of a tool. The model reads its members as text.
        "document" => Content::Text(document(members.value("document"))),
        _ => return Err(members.wrong("type", "is none of the parts that are known here")),
    };
    Ok(Part { content, others: members.others() })
}

fn image(value: Option<&Value>, at: At<'_>) -> Result<Content, Unsayable> {
    let at = at.name("image_url");
    let value = value.ok_or_else(|| at.wrong("is missing"))?;
    let mut members = Members::of(value, at)?;
    let source = parts::source(members.must("url")?, &at.name("url"))?;
    Ok(Content::Image { source, detail: members.owned("detail")? })
}

fn document(value: Option<&Value>) -> String {
    let data = value.map(|value| value.get("data").unwrap_or(value));
    match data {
        Some(Value::String(text)) => text.clone(),
        Some(data) => data.to_string(),
        None => String::new(),
    }
}

fn tool_call(value: &Value, at: At<'_>) -> Result<ToolCall, Unsayable> {
    let mut members = Members::of(value, at)?;
    let id = members.must("id")?.to_owned();
    let at = at.name("function");
    let function = members.value("function").ok_or_else(|| at.wrong("is missing"))?;
    let mut members = Members::of(function, at)?;
    let name = members.must("name")?.to_owned();
    let arguments = members.owned("arguments")?.unwrap_or_default();
    Ok(ToolCall { id, name, arguments, signature: None })
}

fn tool(value: &Value, at: At<'_>, strict: Option<bool>) -> Result<Tool, Unsayable> {
    let mut members = Members::of(value, at)?;
    let at = at.name("function");
    let function = members.value("function").ok_or_else(|| at.wrong("is missing"))?;
    let mut members = Members::of(function, at)?;
    Ok(Tool {
        name: members.must("name")?.to_owned(),
        description: members.owned("description")?,
        parameters: members.value("parameters").cloned(),
        strict,
        others: members.others(),
    })
}

fn format(value: &Value) -> Result<Option<Format>, Unsayable> {
    let mut members = Members::of(value, At::BODY.name("response_format"))?;
    let older = members.value("schema");
    let schema = members.value("json_schema").or(older).cloned();
    match (members.must("type")?, schema) {
        ("text", _) => Ok(Some(Format::Text)),
        ("json_object", None) => Ok(Some(Format::Json)),
        ("json_object", Some(schema)) => Ok(Some(Format::Schema {
            name: "answer".to_owned(),
            description: None,
            schema,
            strict: Some(true),
        })),
        _ => Err(members.wrong("type", "has to be `text` or `json_object`")),
    }
}

fn thinking(value: &Value) -> Result<Option<Reasoning>, Unsayable> {
    let mut members = Members::of(value, At::BODY.name("thinking"))?;
    let budget_tokens = members.count("token_budget")?;
    let effort = |effort: &str| Some(effort.to_owned());
    match members.text("type")? {
        Some("disabled") => {
            Ok(Some(Reasoning { effort: effort("none"), budget_tokens: None, summary: None }))
        }
        // Thoughts are always shown.
        Some("enabled") | None => Ok(Some(Reasoning {
            effort: if budget_tokens.is_none() { effort("high") } else { None },
            budget_tokens,
            summary: effort("auto"),
        })),
        Some(_) => Err(members.wrong("type", "has to be `enabled` or `disabled`")),
    }
}
