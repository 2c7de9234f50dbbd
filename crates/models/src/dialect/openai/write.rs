//! Writes requests.

use super::sampling;
use super::variants::{is_mistral, is_reasoning_model};
use crate::chat::{Chat, Content, Format, Message, Part, Role, Source, Tool, ToolCall, ToolChoice};
use crate::dialect::members::{At, Object};
use crate::dialect::{Losses, Unsayable, parts, strict};
use serde_json::{Value, json};
use types::kinds::model::ModelType;

pub(super) fn request(chat: &Chat, losses: &mut Losses) -> Result<Value, Unsayable> {
    let mut body = Object::default();
    body.put("model", chat.model.as_str());
    body.put("messages", messages(chat, losses)?);
    if !chat.tools.is_empty() {
        body.put("tools", chat.tools.iter().map(|found| tool(found, losses)).collect::<Vec<_>>());
        body.maybe("tool_choice", chat.tool_choice.as_ref().map(tool_choice));
        body.maybe("parallel_tool_calls", chat.parallel_tools);
    }
    let newer = is_reasoning_model(&chat.model);
    body.maybe(if newer { "max_completion_tokens" } else { "max_tokens" }, chat.max_tokens);
    sampling::put(chat, &mut body, losses)?;
    let seed = if is_mistral(chat) { "random_seed" } else { "seed" };
    body.maybe(seed, chat.seed);
    body.maybe("response_format", chat.format.as_ref().map(|found| format(found, losses)));
    body.maybe("n", chat.choices);
    user(chat, &mut body, losses);
    if chat.stream {
        body.put("stream", true);
        // Mistral reports the usage of a stream without being asked.
        if chat.stream_usage && !is_mistral(chat) {
            body.put("stream_options", json!({"include_usage": true}));
        }
    }
    let knows = if is_mistral(chat) { mistral_knows } else { knows };
    parts::others(&chat.others, knows, losses, |name, value| body.put(name, value.clone()));
    Ok(body.into())
}

fn user(chat: &Chat, body: &mut Object, losses: &mut Losses) {
    match &chat.end_user {
        Some(_) if is_mistral(chat) => losses.note("user"),
        _ => body.maybe("user", parts::end_user(chat, losses)),
    }
}

fn mistral_knows(name: &str, _: &Value) -> bool {
    name == "metadata"
}

/// Returns whether OpenAI's newer dialect has a member under the same name.
fn knows(name: &str, value: &Value) -> bool {
    match name {
        "metadata" | "prompt_cache_key" | "prompt_cache_retention" | "store" | "verbosity" => true,
        "service_tier" => matches!(value.as_str(), Some("default" | "flex" | "priority")),
        _ => false,
    }
}

fn format(format: &Format, losses: &mut Losses) -> Value {
    match format {
        Format::Text => json!({"type": "text"}),
        Format::Json => json!({"type": "json_object"}),
        Format::Schema { name, description, schema, strict } => {
            let mut body = Object::default();
            body.put("name", name.as_str());
            body.maybe("description", description.as_deref());
            body.put("schema", schema.clone());
            body.maybe("strict", strict::of_answer(*strict, schema, losses));
            json!({"type": "json_schema", "json_schema": Value::from(body)})
        }
    }
}

fn tool(tool: &Tool, losses: &mut Losses) -> Value {
    parts::lose(&tool.others, losses);
    let mut function = Object::default();
    function.put("name", tool.name.as_str());
    function.maybe("description", tool.description.as_deref());
    function.maybe("parameters", tool.parameters.clone());
    function.maybe("strict", strict::of_tool(tool, losses));
    json!({"type": "function", "function": Value::from(function)})
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

fn messages(chat: &Chat, losses: &mut Losses) -> Result<Vec<Value>, Unsayable> {
    let all = At::BODY.name("messages");
    // DeepSeek refuses a call of a tool without the thoughts before it. Others refuse the member.
    let says_thoughts = chat.provider == Some(ModelType::Deepseek);
    let mut written = Vec::with_capacity(chat.messages.len());
    for (index, message) in chat.messages.iter().enumerate() {
        let at = all.index(index);
        match message.role {
            Role::System => written.push(spoken("system", message, at, losses)?),
            Role::User => written.push(spoken("user", message, at, losses)?),
            Role::Assistant => written.extend(assistant(message, says_thoughts, at, losses)?),
            Role::Tool => results(message, at, losses, &mut written)?,
        }
    }
    Ok(written)
}

fn spoken(
    role: &str,
    message: &Message,
    at: At<'_>,
    losses: &mut Losses,
) -> Result<Value, Unsayable> {
    let mut body = Object::default();
    body.put("role", role);
    body.maybe("name", message.name.as_deref());
    let contents: Vec<&Content> = message.parts.iter().map(|part| &part.content).collect();
    message.parts.iter().for_each(|part| parts::lose(&part.others, losses));
    body.put("content", content(&contents, at)?);
    Ok(body.into())
}

/// Writes plain text if there is nothing else: not every provider reads lists of parts.
fn content(contents: &[&Content], at: At<'_>) -> Result<Value, Unsayable> {
    if let [Content::Text(text)] = contents {
        return Ok(json!(text));
    }
    let content_at = at.name("content");
    let written =
        contents.iter().enumerate().map(|(index, found)| part(found, content_at.index(index)));
    written.collect::<Result<Vec<_>, _>>().map(Value::Array)
}

fn part(content: &Content, at: At<'_>) -> Result<Value, Unsayable> {
    match content {
        Content::Text(text) => Ok(json!({"type": "text", "text": text})),
        Content::Refusal(text) => Ok(json!({"type": "refusal", "refusal": text})),
        Content::Image { source, detail } => {
            let mut image = Object::default();
            image.put("url", url(source, &at)?);
            image.maybe("detail", detail.as_deref());
            Ok(json!({"type": "image_url", "image_url": Value::from(image)}))
        }
        Content::File { source, name } => file(source, name.as_deref(), &at),
        Content::Audio { source: Source::Data { media_type, data } } => Ok(json!({
            "type": "input_audio",
            "input_audio": {"data": data, "format": parts::audio_format(media_type)},
        })),
        Content::Audio { .. } => {
            Err(at.wrong("audio has to be sent along: only its data can be said"))
        }
        Content::Reasoning { .. } | Content::ToolCall(_) | Content::ToolResult { .. } => {
            Err(at.wrong("does not belong into a message of this role"))
        }
    }
}

fn url(source: &Source, at: &At<'_>) -> Result<String, Unsayable> {
    match source {
        Source::Url(url) => Ok(url.clone()),
        Source::Data { media_type, data } => Ok(parts::data_url(media_type, data)),
        Source::Id(_) => Err(at.wrong("an image that was uploaded before cannot be said")),
    }
}

fn file(source: &Source, name: Option<&str>, at: &At<'_>) -> Result<Value, Unsayable> {
    let mut file = Object::default();
    match source {
        Source::Id(id) => file.put("file_id", id.as_str()),
        Source::Url(_) => {
            return Err(at.wrong("a file has to be sent along: its address cannot be said"));
        }
        Source::Data { media_type, data } => {
            file.put("filename", name.unwrap_or("document.pdf"));
            file.put("file_data", parts::data_url(media_type, data));
        }
    }
    Ok(json!({"type": "file", "file": Value::from(file)}))
}

/// Writes a message of the assistant. Returns `None` if it contains only thoughts.
fn assistant(
    message: &Message,
    says_thoughts: bool,
    at: At<'_>,
    losses: &mut Losses,
) -> Result<Option<Value>, Unsayable> {
    let (mut contents, mut calls, mut thoughts) = (Vec::new(), Vec::new(), String::new());
    for part in &message.parts {
        parts::lose(&part.others, losses);
        match &part.content {
            Content::Reasoning { text, .. } if says_thoughts && !text.is_empty() => {
                thoughts.push_str(text);
            }
            Content::Reasoning { .. } => losses.note("reasoning"),
            Content::ToolCall(found) => calls.push(call(found)),
            other => contents.push(other),
        }
    }
    if contents.is_empty() && calls.is_empty() {
        if !thoughts.is_empty() {
            losses.note("reasoning");
        }
        return Ok(None);
    }
    let mut body = Object::default();
    body.put("role", "assistant");
    body.maybe("name", message.name.as_deref());
    match contents.as_slice() {
        [] => body.put("content", Value::Null),
        [Content::Refusal(text)] => {
            body.put("content", Value::Null);
            body.put("refusal", text.as_str());
        }
        some => body.put("content", content(some, at)?),
    }
    if !thoughts.is_empty() {
        body.put("reasoning_content", thoughts);
    }
    if !calls.is_empty() {
        body.put("tool_calls", calls);
    }
    Ok(Some(body.into()))
}

pub(super) fn call(call: &ToolCall) -> Value {
    let mut body = Object::default();
    body.put("id", call.id.as_str());
    body.put("type", "function");
    body.put("function", json!({"name": call.name, "arguments": call.arguments}));
    if let Some(signature) = &call.signature {
        body.put("extra_content", json!({"google": {"thought_signature": signature}}));
    }
    body.into()
}

/// Writes the results of tools. They hold only text in this dialect, so their images follow in a
/// message of the user, after all results.
fn results(
    message: &Message,
    at: At<'_>,
    losses: &mut Losses,
    written: &mut Vec<Value>,
) -> Result<(), Unsayable> {
    let mut shown = Vec::new();
    for (index, Part { content, others }) in message.parts.iter().enumerate() {
        parts::lose(others, losses);
        let part_at = at.index(index);
        let Content::ToolResult { call, content, is_error, .. } = content else {
            return Err(part_at.wrong("only results of tools belong here"));
        };
        if *is_error {
            losses.note("tool_result.is_error");
        }
        let is_text = |content: &&Content| matches!(content, Content::Text(_));
        let (texts, rest): (Vec<&Content>, Vec<&Content>) = content.iter().partition(is_text);
        let text = match texts.as_slice() {
            [] => json!(""),
            texts => self::content(texts, part_at)?,
        };
        written.push(json!({"role": "tool", "tool_call_id": call, "content": text}));
        if !rest.is_empty() {
            losses.note("tool_result.content");
            shown.push(json!({"type": "text", "text": format!("From the result of {call}:")}));
        }
        for found in rest {
            shown.push(part(found, part_at)?);
        }
    }
    if !shown.is_empty() {
        written.push(json!({"role": "user", "content": shown}));
    }
    Ok(())
}
