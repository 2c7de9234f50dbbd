//! Reads requests.

use crate::chat::{
    Chat, Content, Format, Message, Part, Reasoning, Role, Source, Tool, ToolCall, ToolChoice,
};
use crate::dialect::Unsayable;
use crate::dialect::members::{At, Members};
use crate::dialect::parts::{self, plain};
use serde_json::{Value, json};

pub(super) fn request(body: &Value) -> Result<Chat, Unsayable> {
    let mut body = Members::of(body, At::BODY)?;
    refuse(&mut body)?;
    let mut chat = Chat {
        model: body.owned("model")?.unwrap_or_default(),
        tools: tools(body.list("tools")?)?,
        parallel_tools: body.flag("parallel_tool_calls")?,
        max_tokens: body.count("max_completion_tokens")?,
        temperature: body.number("temperature")?,
        top_p: body.number("top_p")?,
        top_k: body.count("top_k")?,
        presence_penalty: body.number("presence_penalty")?,
        frequency_penalty: body.number("frequency_penalty")?,
        stop: stop(&mut body)?,
        seed: body.integer("seed")?,
        format: body.value("response_format").map(format).transpose()?,
        choices: body.count("n")?,
        end_user: body.owned("user")?,
        stream: body.flag("stream")?.unwrap_or(false),
        ..Chat::default()
    };
    let max_tokens = body.count("max_tokens")?;
    chat.max_tokens = chat.max_tokens.or(max_tokens);
    if let Some(effort) = body.owned("reasoning_effort")? {
        chat.reasoning =
            Some(Reasoning { effort: Some(effort), budget_tokens: None, summary: None });
    }
    if let Some(options) = body.value("stream_options") {
        let at = At::BODY.name("stream_options");
        chat.stream_usage = Members::of(options, at)?.flag("include_usage")?.unwrap_or(false);
    }
    if let Some(choice) = body.value("tool_choice") {
        chat.tool_choice = Some(tool_choice(choice, &mut chat.tools)?);
    }
    messages(body.list("messages")?, &mut chat)?;
    if chat.end_user.is_none() {
        chat.end_user = body.owned("safety_identifier")?;
    }
    chat.others.extend(body.others());
    Ok(chat)
}

/// Refuses members without which the request would mean something else.
fn refuse(body: &mut Members<'_>) -> Result<(), Unsayable> {
    for name in ["functions", "function_call"] {
        if !body.is_absent(name) {
            return Err(body.wrong(name, "is no longer said: use `tools` and `tool_choice`"));
        }
    }
    if !body.is_absent("web_search_options") {
        return Err(body.wrong("web_search_options", "only this provider searches the web so"));
    }
    if body.list("modalities")?.iter().any(|modality| modality != "text") {
        return Err(body.wrong("modalities", "only text can be asked for from another provider"));
    }
    Ok(())
}

fn stop(body: &mut Members<'_>) -> Result<Vec<String>, Unsayable> {
    match body.value("stop") {
        None => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one.clone()]),
        Some(Value::Array(all)) => {
            let text = |one: &Value| one.as_str().map(str::to_owned);
            let all: Option<Vec<_>> = all.iter().map(text).collect();
            all.ok_or_else(|| body.wrong("stop", "has to be a list of text"))
        }
        Some(_) => Err(body.wrong("stop", "has to be text, or a list of it")),
    }
}

fn format(value: &Value) -> Result<Format, Unsayable> {
    let at = At::BODY.name("response_format");
    let mut members = Members::of(value, at)?;
    match members.must("type")? {
        "text" => Ok(Format::Text),
        "json_object" => Ok(Format::Json),
        "json_schema" => {
            let Some(schema) = members.value("json_schema") else {
                return Err(members.wrong("json_schema", "is missing"));
            };
            let mut schema = Members::of(schema, at.name("json_schema"))?;
            Ok(Format::Schema {
                name: schema.owned("name")?.unwrap_or_else(|| "answer".to_owned()),
                description: schema.owned("description")?,
                schema: schema.value("schema").cloned().unwrap_or_else(|| json!({})),
                strict: schema.flag("strict")?,
            })
        }
        other => Err(members.wrong("type", format!("`{other}` is not known"))),
    }
}

fn tools(list: &[Value]) -> Result<Vec<Tool>, Unsayable> {
    let tools_at = At::BODY.name("tools");
    let tool = |(index, tool): (usize, &Value)| {
        let at = tools_at.index(index);
        let mut members = Members::of(tool, at)?;
        match members.must("type")? {
            "function" => {}
            other => {
                let why = format!("tools of type `{other}` are this provider's own");
                return Err(members.wrong("type", why));
            }
        }
        let Some(function) = members.value("function") else {
            return Err(members.wrong("function", "is missing"));
        };
        let mut function = Members::of(function, at.name("function"))?;
        Ok(Tool {
            name: function.must("name")?.to_owned(),
            description: function.owned("description")?,
            parameters: function.value("parameters").cloned(),
            strict: function.flag("strict")?,
            others: members.others(),
        })
    };
    list.iter().enumerate().map(tool).collect()
}

fn tool_choice(choice: &Value, tools: &mut Vec<Tool>) -> Result<ToolChoice, Unsayable> {
    let at = At::BODY.name("tool_choice");
    let name = |choice: &'_ Value| choice["function"]["name"].as_str().map(str::to_owned);
    match (choice.as_str(), choice["type"].as_str()) {
        (Some("auto"), _) => Some(ToolChoice::Auto),
        (Some("none"), _) => Some(ToolChoice::None),
        (Some("required" | "any"), _) => Some(ToolChoice::Required),
        (_, Some("function")) => name(choice).map(ToolChoice::Named),
        (_, Some("allowed_tools")) => {
            let allowed = &choice["allowed_tools"];
            let names = allowed["tools"].as_array().map(Vec::as_slice).unwrap_or(&[]);
            let names = names.iter().filter_map(|tool| tool["function"]["name"].as_str());
            parts::allow(tools, names, allowed["mode"].as_str().unwrap_or("auto"))
        }
        _ => None,
    }
    .ok_or_else(|| at.wrong("is not known"))
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
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            other => return Err(members.wrong("role", format!("`{other}` is not known"))),
        };
        let content_at = at.name("content");
        let content = content(members.value("content"), content_at)?;
        let name = members.owned("name")?;
        let message = match role {
            Role::Tool => {
                Message { role, parts: vec![result(&mut members, content, name)?], name: None }
            }
            Role::Assistant => Message { role, parts: said(&mut members, content, at)?, name },
            _ => Message { role, parts: content, name },
        };
        parts::push(&mut chat.messages, message, false);
        for (name, value) in members.others() {
            chat.others.insert(format!("messages.{name}"), value);
        }
    }
    Ok(())
}

fn content(value: Option<&Value>, at: At<'_>) -> Result<Vec<Part>, Unsayable> {
    match value {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![plain(Content::Text(text.clone()))]),
        Some(Value::Array(list)) => {
            list.iter().enumerate().map(|(index, value)| part(value, at.index(index))).collect()
        }
        Some(_) => Err(at.wrong("has to be text, or a list of parts")),
    }
}

fn part(value: &Value, at: At<'_>) -> Result<Part, Unsayable> {
    let mut members = Members::of(value, at)?;
    let kind = members.must("type")?;
    let content = match kind {
        "text" => Content::Text(members.must("text")?.to_owned()),
        "refusal" => Content::Refusal(members.must("refusal")?.to_owned()),
        "image_url" => image(members.value("image_url"), at.name("image_url"))?,
        "input_audio" => parts::input_audio(&mut members, &at)?,
        "file" => {
            let Some(file) = members.value("file") else {
                return Err(members.wrong("file", "is missing"));
            };
            file_part(Members::of(file, at.name("file"))?)?
        }
        other => return Err(members.wrong("type", format!("`{other}` is not known"))),
    };
    Ok(Part { content, others: members.others() })
}

fn image(value: Option<&Value>, at: At<'_>) -> Result<Content, Unsayable> {
    match value {
        // Some compatible providers document it like this.
        Some(Value::String(url)) => {
            Ok(Content::Image { source: parts::source(url, &at)?, detail: None })
        }
        Some(value) => {
            let mut members = Members::of(value, at)?;
            let source = parts::source(members.must("url")?, &at.name("url"))?;
            Ok(Content::Image { source, detail: members.owned("detail")? })
        }
        None => Err(at.wrong("is missing")),
    }
}

fn file_part(mut members: Members<'_>) -> Result<Content, Unsayable> {
    let name = members.owned("filename")?;
    let source = match (members.text("file_id")?, members.text("file_data")?) {
        (Some(id), _) => Source::Id(id.to_owned()),
        (None, Some(data)) if data.starts_with("data:") => {
            parts::source(data, &At::BODY.name("file_data"))?
        }
        (None, Some(data)) => Source::Data {
            media_type: parts::media_type(name.as_deref()).to_owned(),
            data: data.to_owned(),
        },
        (None, None) => return Err(members.wrong("file_data", "is missing")),
    };
    Ok(Content::File { source, name })
}

fn result(
    members: &mut Members<'_>,
    content: Vec<Part>,
    name: Option<String>,
) -> Result<Part, Unsayable> {
    let call = members.must("tool_call_id")?.to_owned();
    let mut others = crate::chat::Others::new();
    let mut contents = Vec::with_capacity(content.len());
    for part in content {
        contents.push(part.content);
        others.extend(part.others);
    }
    Ok(Part {
        content: Content::ToolResult { call, name, content: contents, is_error: false },
        others,
    })
}

fn said(members: &mut Members<'_>, content: Vec<Part>, at: At<'_>) -> Result<Vec<Part>, Unsayable> {
    for name in ["audio", "function_call"] {
        if !members.is_absent(name) {
            return Err(members.wrong(name, "only this provider remembers it"));
        }
    }
    let mut said = thoughts(members)?;
    said.extend(content);
    if let Some(refusal) = members.owned("refusal")? {
        said.push(plain(Content::Refusal(refusal)));
    }
    let calls_at = at.name("tool_calls");
    for (index, value) in members.list("tool_calls")?.iter().enumerate() {
        said.push(call(value, calls_at.index(index))?);
    }
    Ok(said)
}

/// Reads thoughts, with their proofs if they have some.
pub(super) fn thoughts(members: &mut Members<'_>) -> Result<Vec<Part>, Unsayable> {
    let blocks = members.list("thinking_blocks")?;
    let text = members.text("reasoning_content")?;
    // Other providers use this name, and some send both.
    let text = text.or(members.value("reasoning").and_then(Value::as_str));
    let owned = |value: &Value| value.as_str().map(str::to_owned);
    if blocks.is_empty() {
        let text = text.filter(|text| !text.is_empty());
        let part = |text: &str| {
            plain(Content::Reasoning { text: text.to_owned(), signature: None, sealed: None })
        };
        return Ok(text.map(part).into_iter().collect());
    }
    let block = |block: &Value| {
        plain(Content::Reasoning {
            text: owned(&block["thinking"]).unwrap_or_default(),
            signature: owned(&block["signature"]),
            sealed: owned(&block["data"]),
        })
    };
    Ok(blocks.iter().map(block).collect())
}

pub(super) fn call(value: &Value, at: At<'_>) -> Result<Part, Unsayable> {
    let mut members = Members::of(value, at)?;
    if members.text("type")?.is_some_and(|kind| kind != "function") {
        return Err(
            members.wrong("type", "only calls of functions can be told to another provider")
        );
    }
    let Some(function) = members.value("function") else {
        return Err(members.wrong("function", "is missing"));
    };
    let mut function = Members::of(function, at.name("function"))?;
    Ok(plain(Content::ToolCall(ToolCall {
        id: members.must("id")?.to_owned(),
        name: function.must("name")?.to_owned(),
        arguments: function.owned("arguments")?.unwrap_or_default(),
        signature: signature(value),
    })))
}

pub(super) fn signature(call: &Value) -> Option<String> {
    call["extra_content"]["google"]["thought_signature"].as_str().map(str::to_owned)
}
