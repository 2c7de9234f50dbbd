//! Reads requests.

use super::proofs::is_proof;
use crate::chat::{
    Chat, Content, Format, Message, Others, Part, Reasoning, Role, Source, Tool, ToolCall,
    ToolChoice,
};
use crate::dialect::Unsayable;
use crate::dialect::members::{At, Members};
use crate::dialect::parts::{self, plain};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

pub(super) fn request(body: &Value) -> Result<Chat, Unsayable> {
    let mut body = Members::of(body, At::BODY)?;
    for name in ["mcp_servers", "container"] {
        if !body.is_absent(name) {
            return Err(body.wrong(name, "only this provider has that"));
        }
    }
    let mut chat = Chat {
        model: body.owned("model")?.unwrap_or_default(),
        tools: tools(body.list("tools")?)?,
        max_tokens: body.count("max_tokens")?,
        temperature: body.number("temperature")?,
        top_p: body.number("top_p")?,
        top_k: body.count("top_k")?,
        stop: stop(&mut body)?,
        stream: body.flag("stream")?.unwrap_or(false),
        // Streams of this dialect always report what was used.
        stream_usage: true,
        ..Chat::default()
    };
    if let Some(metadata) = body.value("metadata") {
        let mut metadata = Members::of(metadata, At::BODY.name("metadata"))?;
        chat.end_user = metadata.owned("user_id")?;
    }
    if let Some(choice) = body.value("tool_choice") {
        tool_choice(choice, &mut chat)?;
    }
    output(&mut body, &mut chat)?;
    if let Some(system) = body.value("system") {
        let system_at = At::BODY.name("system");
        let (role, name) = (Role::System, None);
        chat.messages.push(Message { role, name, parts: contents(Some(system), system_at)? });
    }
    messages(body.list("messages")?, &mut chat)?;
    // Clouds expect it in the body.
    body.value("anthropic_version");
    chat.others.extend(body.others());
    Ok(chat)
}

fn stop(body: &mut Members<'_>) -> Result<Vec<String>, Unsayable> {
    let text = |one: &Value| one.as_str().map(str::to_owned);
    let all: Option<Vec<_>> = body.list("stop_sequences")?.iter().map(text).collect();
    all.ok_or_else(|| body.wrong("stop_sequences", "has to be a list of text"))
}

/// Reads how much to think, and the form of the answer.
fn output(body: &mut Members<'_>, chat: &mut Chat) -> Result<(), Unsayable> {
    let config = body.value("output_config");
    let mut effort = None;
    if let Some(config) = config {
        let config_at = At::BODY.name("output_config");
        let mut config = Members::of(config, config_at)?;
        effort = config.owned("effort")?;
        chat.format = config.value("format").map(|found| format(found, config_at)).transpose()?;
        for (name, value) in config.others() {
            chat.others.insert(format!("output_config.{name}"), value);
        }
    }
    if let Some(found) = body.value("output_format") {
        chat.format = Some(format(found, At::BODY)?);
    }
    if let Some(thinking) = body.value("thinking") {
        let mut thinking = Members::of(thinking, At::BODY.name("thinking"))?;
        let kind = thinking.must("type")?;
        let budget_tokens = thinking.count("budget_tokens")?;
        if kind != "disabled" {
            let summary = thinking.text("display")? != Some("omitted");
            let (effort, summary) = (effort.take(), summary.then(|| "auto".to_owned()));
            chat.reasoning = Some(Reasoning { effort, budget_tokens, summary });
        }
    }
    if let Some(effort) = effort {
        chat.others.insert("output_config.effort".to_owned(), json!(effort));
    }
    Ok(())
}

fn format(value: &Value, at: At<'_>) -> Result<Format, Unsayable> {
    let mut members = Members::of(value, at.name("format"))?;
    match members.must("type")? {
        "json_schema" => {
            let schema = members.value("schema").cloned();
            let schema = schema.ok_or_else(|| members.wrong("schema", "is missing"))?;
            let (name, description) = ("answer".to_owned(), None);
            Ok(Format::Schema { name, description, schema, strict: Some(true) })
        }
        other => Err(members.wrong("type", format!("`{other}` is not known"))),
    }
}

fn tools(list: &[Value]) -> Result<Vec<Tool>, Unsayable> {
    let tools_at = At::BODY.name("tools");
    let tool = |(index, tool): (usize, &Value)| {
        let mut members = Members::of(tool, tools_at.index(index))?;
        match members.text("type")? {
            None | Some("custom") => {}
            Some(other) => {
                let why = format!("tools of type `{other}` are this provider's own");
                return Err(members.wrong("type", why));
            }
        }
        Ok(Tool {
            name: members.must("name")?.to_owned(),
            description: members.owned("description")?,
            parameters: members.value("input_schema").cloned(),
            strict: members.flag("strict")?,
            others: members.others(),
        })
    };
    list.iter().enumerate().map(tool).collect()
}

fn tool_choice(choice: &Value, chat: &mut Chat) -> Result<(), Unsayable> {
    let mut members = Members::of(choice, At::BODY.name("tool_choice"))?;
    chat.tool_choice = Some(match members.must("type")? {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Named(members.must("name")?.to_owned()),
        other => return Err(members.wrong("type", format!("`{other}` is not known"))),
    });
    chat.parallel_tools = members.flag("disable_parallel_tool_use")?.map(|off| !off);
    Ok(())
}

fn messages(list: &[Value], chat: &mut Chat) -> Result<(), Unsayable> {
    let messages_at = At::BODY.name("messages");
    if list.is_empty() {
        return Err(messages_at.wrong("has to have a message at least"));
    }
    for (index, value) in list.iter().enumerate() {
        let at = messages_at.index(index);
        let mut members = Members::of(value, at)?;
        let role = match members.must("role")? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            other => return Err(members.wrong("role", format!("`{other}` is not known"))),
        };
        let parts = contents(members.value("content"), at.name("content"))?;
        match role {
            Role::User => split(parts, &mut chat.messages),
            _ => chat.messages.push(Message { role, name: None, parts }),
        }
        for (name, value) in members.others() {
            chat.others.insert(format!("messages.{name}"), value);
        }
    }
    Ok(())
}

/// Splits a message of the user: in this dialect it also holds the results of tools.
fn split(parts: Vec<Part>, messages: &mut Vec<Message>) {
    let mut runs: Vec<Message> = Vec::new();
    for part in parts {
        let role = match part.content {
            Content::ToolResult { .. } => Role::Tool,
            _ => Role::User,
        };
        match runs.last_mut().filter(|run| run.role == role) {
            Some(run) => run.parts.push(part),
            None => runs.push(Message { role, name: None, parts: vec![part] }),
        }
    }
    runs.into_iter().for_each(|run| parts::push(messages, run, false));
}

fn contents(value: Option<&Value>, at: At<'_>) -> Result<Vec<Part>, Unsayable> {
    match value {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![plain(Content::Text(text.clone()))]),
        Some(Value::Array(list)) => {
            list.iter().enumerate().map(|(index, value)| block(value, at.index(index))).collect()
        }
        Some(_) => Err(at.wrong("has to be text, or a list of blocks")),
    }
}

pub(super) fn block(value: &Value, at: At<'_>) -> Result<Part, Unsayable> {
    let mut members = Members::of(value, at)?;
    let content = match members.must("type")? {
        "text" => Content::Text(members.must("text")?.to_owned()),
        "image" => {
            let source = source(members.value("source"), at.name("source"))?;
            Content::Image { source, detail: None }
        }
        "document" => {
            let source = source(members.value("source"), at.name("source"))?;
            Content::File { source, name: members.owned("title")? }
        }
        "thinking" => Content::Reasoning {
            text: members.must("thinking")?.to_owned(),
            signature: members.owned("signature")?.filter(|proof| is_proof(proof)),
            sealed: None,
        },
        "redacted_thinking" => {
            let sealed = Some(members.must("data")?.to_owned());
            Content::Reasoning { text: String::new(), signature: None, sealed }
        }
        "tool_use" => {
            members.value("caller");
            Content::ToolCall(ToolCall {
                id: members.must("id")?.to_owned(),
                name: members.must("name")?.to_owned(),
                arguments: members.value("input").map_or_else(|| "{}".to_owned(), Value::to_string),
                signature: None,
            })
        }
        "tool_result" => return result(members, at),
        other => {
            let why = format!("blocks of type `{other}` are this provider's own");
            return Err(members.wrong("type", why));
        }
    };
    Ok(Part { content, others: others(members) })
}

fn others(members: Members<'_>) -> Others {
    let mut others = members.others();
    // Answers have an empty list of them, which is sent back with the conversation.
    others.retain(|name, value| {
        name != "citations" || value.as_array().is_none_or(|list| !list.is_empty())
    });
    others
}

fn result(mut members: Members<'_>, at: At<'_>) -> Result<Part, Unsayable> {
    let call = members.must("tool_use_id")?.to_owned();
    let is_error = members.flag("is_error")?.unwrap_or(false);
    let found = contents(members.value("content"), at.name("content"))?;
    let mut others = members.others();
    let mut content = Vec::with_capacity(found.len());
    for part in found {
        content.push(part.content);
        others.extend(part.others);
    }
    Ok(Part { content: Content::ToolResult { call, name: None, content, is_error }, others })
}

fn source(value: Option<&Value>, at: At<'_>) -> Result<Source, Unsayable> {
    let Some(value) = value else { return Err(at.wrong("is missing")) };
    let mut members = Members::of(value, at)?;
    match members.must("type")? {
        "base64" => Ok(Source::Data {
            media_type: members.must("media_type")?.to_owned(),
            data: members.must("data")?.to_owned(),
        }),
        "text" => Ok(Source::Data {
            media_type: members.text("media_type")?.unwrap_or("text/plain").to_owned(),
            data: STANDARD.encode(members.must("data")?),
        }),
        "url" => Ok(Source::Url(members.must("url")?.to_owned())),
        "file" => Ok(Source::Id(members.must("file_id")?.to_owned())),
        other => Err(members.wrong("type", format!("`{other}` is this provider's own"))),
    }
}
