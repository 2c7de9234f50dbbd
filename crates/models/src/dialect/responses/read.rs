//! Reads requests.

use crate::chat::{
    Chat, Content, Format, Message, Others, Part, Reasoning, Role, Source, Tool, ToolCall,
    ToolChoice,
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
        max_tokens: body.count("max_output_tokens")?,
        temperature: body.number("temperature")?,
        top_p: body.number("top_p")?,
        end_user: body.owned("user")?,
        stream: body.flag("stream")?.unwrap_or(false),
        // Streams of this dialect always report what was used.
        stream_usage: true,
        ..Chat::default()
    };
    body.value("stream_options");
    if let Some(choice) = body.value("tool_choice") {
        chat.tool_choice = Some(tool_choice(choice, &mut chat.tools)?);
    }
    if let Some(reasoning) = body.value("reasoning") {
        let mut reasoning = Members::of(reasoning, At::BODY.name("reasoning"))?;
        let (effort, summary) = (reasoning.owned("effort")?, reasoning.owned("summary")?);
        if effort.is_some() || summary.is_some() {
            chat.reasoning = Some(Reasoning { effort, budget_tokens: None, summary });
        }
    }
    text(&mut body, &mut chat)?;
    if let Some(instructions) = body.text("instructions")? {
        let parts = vec![plain(Content::Text(instructions.to_owned()))];
        chat.messages.push(Message { role: Role::System, name: None, parts });
    }
    input(&mut body, &mut chat)?;
    if chat.end_user.is_none() {
        chat.end_user = body.owned("safety_identifier")?;
    }
    // Callers of this dialect get thoughts whether or not they ask for them.
    let include = body.list("include")?;
    if include.iter().any(|name| name != "reasoning.encrypted_content") {
        chat.others.insert("include".to_owned(), json!(include));
    }
    chat.others.extend(body.others());
    Ok(chat)
}

/// Refuses members without which the request would mean something else.
fn refuse(body: &mut Members<'_>) -> Result<(), Unsayable> {
    for name in ["previous_response_id", "conversation", "prompt"] {
        if !body.is_absent(name) {
            let why = "only the provider that keeps it knows what it says: send the whole input";
            return Err(body.wrong(name, why));
        }
    }
    match body.flag("background")? {
        Some(true) => Err(body.wrong("background", "this provider answers at once or not at all")),
        _ => Ok(()),
    }
}

fn text(body: &mut Members<'_>, chat: &mut Chat) -> Result<(), Unsayable> {
    let Some(text) = body.value("text") else { return Ok(()) };
    let text_at = At::BODY.name("text");
    let mut text = Members::of(text, text_at)?;
    if let Some(verbosity) = text.value("verbosity") {
        chat.others.insert("verbosity".to_owned(), verbosity.clone());
    }
    let Some(format) = text.value("format") else { return Ok(()) };
    let mut format = Members::of(format, text_at.name("format"))?;
    chat.format = Some(match format.must("type")? {
        "text" => Format::Text,
        "json_object" => Format::Json,
        "json_schema" => Format::Schema {
            name: format.owned("name")?.unwrap_or_else(|| "answer".to_owned()),
            description: format.owned("description")?,
            schema: format.value("schema").cloned().unwrap_or_else(|| json!({})),
            strict: format.flag("strict")?,
        },
        other => return Err(format.wrong("type", format!("`{other}` is not known"))),
    });
    Ok(())
}

fn tools(list: &[Value]) -> Result<Vec<Tool>, Unsayable> {
    let tools_at = At::BODY.name("tools");
    let tool = |(index, tool): (usize, &Value)| {
        let mut members = Members::of(tool, tools_at.index(index))?;
        match members.must("type")? {
            "function" => {}
            other => {
                let why = format!("tools of type `{other}` are this provider's own");
                return Err(members.wrong("type", why));
            }
        }
        Ok(Tool {
            name: members.must("name")?.to_owned(),
            description: members.owned("description")?,
            parameters: members.value("parameters").cloned(),
            // Without a value OpenAI tries to be strict, but other providers are not strict then.
            strict: members.flag("strict")?.filter(|strict| *strict),
            others: members.others(),
        })
    };
    list.iter().enumerate().map(tool).collect()
}

fn tool_choice(choice: &Value, tools: &mut Vec<Tool>) -> Result<ToolChoice, Unsayable> {
    let at = At::BODY.name("tool_choice");
    match (choice.as_str(), choice["type"].as_str()) {
        (Some("auto"), _) => Some(ToolChoice::Auto),
        (Some("none"), _) => Some(ToolChoice::None),
        (Some("required"), _) => Some(ToolChoice::Required),
        (_, Some("function")) => {
            choice["name"].as_str().map(|name| ToolChoice::Named(name.to_owned()))
        }
        (_, Some("allowed_tools")) => {
            let names = choice["tools"].as_array().map(Vec::as_slice).unwrap_or(&[]);
            let names = names.iter().filter_map(|tool| tool["name"].as_str());
            parts::allow(tools, names, choice["mode"].as_str().unwrap_or("auto"))
        }
        _ => None,
    }
    .ok_or_else(|| at.wrong("is not known, or this provider's own"))
}

fn input(body: &mut Members<'_>, chat: &mut Chat) -> Result<(), Unsayable> {
    let input_at = At::BODY.name("input");
    match body.value("input") {
        None => Err(input_at.wrong("is missing")),
        Some(Value::String(text)) => {
            let parts = vec![plain(Content::Text(text.clone()))];
            chat.messages.push(Message { role: Role::User, name: None, parts });
            Ok(())
        }
        Some(Value::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                item(value, input_at.index(index), chat)?;
            }
            Ok(())
        }
        Some(_) => Err(input_at.wrong("has to be text, or a list of items")),
    }
}

fn item(value: &Value, at: At<'_>, chat: &mut Chat) -> Result<(), Unsayable> {
    let mut members = Members::of(value, at)?;
    let mut own = Vec::new();
    let role = match members.text("type")?.unwrap_or("message") {
        "message" => {
            let role = match members.must("role")? {
                "system" | "developer" => Role::System,
                "user" => Role::User,
                "assistant" => Role::Assistant,
                other => return Err(members.wrong("role", format!("`{other}` is not known"))),
            };
            own = contents(members.value("content"), at.name("content"))?;
            role
        }
        "reasoning" => {
            own.push(reasoning(&mut members)?);
            Role::Assistant
        }
        "function_call" => {
            own.push(call(&mut members)?);
            Role::Assistant
        }
        "function_call_output" => {
            own.push(result(&mut members, at)?);
            Role::Tool
        }
        other => {
            let why = format!("items of type `{other}` are this provider's own");
            return Err(members.wrong("type", why));
        }
    };
    // The ids and states that OpenAI gives to items mean nothing to others.
    for name in ["id", "status", "phase"] {
        members.value(name);
    }
    for (name, value) in members.others() {
        chat.others.insert(format!("input.{name}"), value);
    }
    if !own.is_empty() {
        let message = Message { role, name: None, parts: own };
        parts::push(&mut chat.messages, message, role == Role::Assistant);
    }
    Ok(())
}

fn contents(value: Option<&Value>, at: At<'_>) -> Result<Vec<Part>, Unsayable> {
    match value {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![plain(Content::Text(text.clone()))]),
        Some(Value::Array(list)) => {
            list.iter().enumerate().map(|(index, value)| part(value, at.index(index))).collect()
        }
        Some(_) => Err(at.wrong("has to be text, or a list of parts")),
    }
}

pub(super) fn part(value: &Value, at: At<'_>) -> Result<Part, Unsayable> {
    let mut members = Members::of(value, at)?;
    let content = match members.must("type")? {
        "input_text" | "output_text" | "text" => Content::Text(members.must("text")?.to_owned()),
        "refusal" => Content::Refusal(members.must("refusal")?.to_owned()),
        "input_image" => image(&mut members, &at)?,
        "input_file" => file(&mut members, &at)?,
        "input_audio" => parts::input_audio(&mut members, &at)?,
        other => return Err(members.wrong("type", format!("`{other}` is not known"))),
    };
    let mut others = members.others();
    others.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
    Ok(Part { content, others })
}

fn image(members: &mut Members<'_>, at: &At<'_>) -> Result<Content, Unsayable> {
    let source = match (members.text("image_url")?, members.text("file_id")?) {
        (Some(url), _) => parts::source(url, &at.name("image_url"))?,
        (None, Some(id)) => Source::Id(id.to_owned()),
        (None, None) => return Err(members.wrong("image_url", "is missing")),
    };
    Ok(Content::Image { source, detail: members.owned("detail")? })
}

fn file(members: &mut Members<'_>, at: &At<'_>) -> Result<Content, Unsayable> {
    let name = members.owned("filename")?;
    let (id, url, data) =
        (members.text("file_id")?, members.text("file_url")?, members.text("file_data")?);
    let source = match (id, url, data) {
        (Some(id), ..) => Source::Id(id.to_owned()),
        (None, Some(url), _) => Source::Url(url.to_owned()),
        (None, None, Some(data)) if data.starts_with("data:") => {
            parts::source(data, &at.name("file_data"))?
        }
        (None, None, Some(data)) => Source::Data {
            media_type: parts::media_type(name.as_deref()).to_owned(),
            data: data.to_owned(),
        },
        (None, None, None) => return Err(members.wrong("file_data", "is missing")),
    };
    Ok(Content::File { source, name })
}

pub(super) fn reasoning(members: &mut Members<'_>) -> Result<Part, Unsayable> {
    let join = |list: &[Value]| {
        let texts: Vec<_> = list.iter().filter_map(|part| part["text"].as_str()).collect();
        texts.join("\n\n")
    };
    let (summary, content) = (join(members.list("summary")?), join(members.list("content")?));
    let text = if summary.is_empty() { content } else { summary };
    let sealed = members.owned("encrypted_content")?.filter(|sealed| !sealed.is_empty());
    Ok(plain(Content::Reasoning { text, signature: None, sealed }))
}

pub(super) fn call(members: &mut Members<'_>) -> Result<Part, Unsayable> {
    Ok(plain(Content::ToolCall(ToolCall {
        id: members.must("call_id")?.to_owned(),
        name: members.must("name")?.to_owned(),
        arguments: members.owned("arguments")?.unwrap_or_default(),
        signature: members.owned("signature")?,
    })))
}

fn result(members: &mut Members<'_>, at: At<'_>) -> Result<Part, Unsayable> {
    let call = members.must("call_id")?.to_owned();
    let found = contents(members.value("output"), at.name("output"))?;
    let (mut content, mut others) = (Vec::with_capacity(found.len()), Others::new());
    for part in found {
        content.push(part.content);
        others.extend(part.others);
    }
    let content = Content::ToolResult { call, name: None, content, is_error: false };
    Ok(Part { content, others })
}
