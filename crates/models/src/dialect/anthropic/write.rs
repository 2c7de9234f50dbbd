//! Writes requests.

use super::thinking;
use super::versions::{is_newest, knows_schemas, max_tokens, version};
use crate::chat::{Chat, Content, Format, Message, Part, Role, Source, Tool, ToolChoice};
use crate::dialect::members::{At, Object};
use crate::dialect::{Losses, Unsayable, parts, strict};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::borrow::Cow;

pub(super) fn request(chat: &Chat, losses: &mut Losses) -> Result<Value, Unsayable> {
    if chat.choices.is_some_and(|choices| choices != 1) {
        return Err(Unsayable::new("n", "this model gives one answer"));
    }
    let mut body = Object::default();
    body.put("model", chat.model.as_str());
    let most = chat.max_tokens.unwrap_or_else(|| max_tokens(&chat.model));
    body.put("max_tokens", most);
    let (system, messages) = messages(chat, losses)?;
    if !system.is_empty() {
        body.put("system", joined(system));
    }
    body.put("messages", messages);
    tools(chat, &mut body, losses);
    stop(chat, &mut body)?;
    let mut output_config = Object::default();
    let thinks = thinking::put(chat, most, &mut output_config, &mut body, losses);
    sampling(chat, thinks, &mut body, losses);
    format(chat, &mut output_config, losses);
    if !output_config.0.is_empty() {
        body.put("output_config", output_config);
    }
    if let Some(user) = &chat.end_user {
        body.put("metadata", json!({"user_id": user}));
    }
    if chat.stream {
        body.put("stream", true);
    }
    parts::others(&chat.others, knows, losses, |name, value| body.put(name, value.clone()));
    Ok(body.into())
}

fn knows(name: &str, value: &Value) -> bool {
    match name {
        "cache_control" | "context_management" => true,
        "service_tier" => value == "standard_only",
        _ => false,
    }
}

fn stop(chat: &Chat, body: &mut Object) -> Result<(), Unsayable> {
    if chat.stop.is_empty() {
        return Ok(());
    }
    if chat.stop.iter().any(|stop| stop.trim().is_empty()) {
        return Err(Unsayable::new("stop", "this model stops at no sequence of white space alone"));
    }
    body.put("stop_sequences", chat.stop.clone());
    Ok(())
}

fn sampling(chat: &Chat, thinks: bool, body: &mut Object, losses: &mut Losses) {
    if is_newest(&chat.model) {
        let differs = |number: &Option<serde_json::Number>| {
            number.as_ref().is_some_and(|number| number.as_f64() != Some(1.0))
        };
        let lost = [
            ("temperature", differs(&chat.temperature)),
            ("top_p", differs(&chat.top_p)),
            ("top_k", chat.top_k.is_some()),
        ];
        lost.iter().filter(|(_, is_lost)| *is_lost).for_each(|(name, _)| losses.note(*name));
    } else {
        chosen(chat, thinks, body, losses);
    }
    let lost = [
        ("seed", chat.seed.is_some()),
        ("presence_penalty", chat.presence_penalty.as_ref().is_some_and(is_set)),
        ("frequency_penalty", chat.frequency_penalty.as_ref().is_some_and(is_set)),
    ];
    lost.iter().filter(|(_, is_lost)| *is_lost).for_each(|(name, _)| losses.note(*name));
}

/// Writes the sampling parameters for models that take them.
fn chosen(chat: &Chat, thinks: bool, body: &mut Object, losses: &mut Losses) {
    let one = || serde_json::Number::from(1);
    let temperature = chat.temperature.clone().map(|found| match found.as_f64() {
        Some(value) if value > 1.0 => {
            losses.note("temperature");
            one()
        }
        _ => found,
    });
    let is_one = |number: &serde_json::Number| number.as_f64() == Some(1.0);
    let temperature = match temperature {
        Some(found) if thinks && !is_one(&found) => {
            losses.note("temperature");
            None
        }
        found => found,
    };
    // Newer models refuse to get both at once.
    let is_newer = version(&chat.model).is_some_and(|version| version >= (4, 1));
    let refuses_top_p =
        |top_p: f64| (is_newer && temperature.is_some()) || (thinks && top_p < 0.95);
    match &chat.top_p {
        Some(top_p) if is_one(top_p) && thinks => {}
        Some(top_p) if top_p.as_f64().is_some_and(refuses_top_p) => losses.note("top_p"),
        top_p => body.maybe("top_p", top_p.clone()),
    }
    body.maybe("temperature", temperature);
    match chat.top_k {
        Some(_) if thinks => losses.note("top_k"),
        top_k => body.maybe("top_k", top_k),
    }
}

fn is_set(penalty: &serde_json::Number) -> bool {
    penalty.as_f64() != Some(0.0)
}

fn format(chat: &Chat, output_config: &mut Object, losses: &mut Losses) {
    match &chat.format {
        None | Some(Format::Text) => {}
        // Nothing makes a model answer in JSON of any form here.
        Some(Format::Json) => losses.note("response_format"),
        Some(Format::Schema { description, schema, .. }) => {
            if description.is_some() {
                losses.note("response_format.description");
            }
            let closed = strict::closed(schema);
            if closed.as_ref() != schema {
                losses.note("response_format.schema");
            }
            output_config.put("format", json!({"type": "json_schema", "schema": closed}));
        }
    }
}

fn tools(chat: &Chat, body: &mut Object, losses: &mut Losses) {
    if chat.tools.is_empty() {
        return;
    }
    body.put("tools", chat.tools.iter().map(|found| tool(found, chat, losses)).collect::<Vec<_>>());
    let mut choice = Object::default();
    match &chat.tool_choice {
        Some(ToolChoice::Auto) => choice.put("type", "auto"),
        Some(ToolChoice::None) => choice.put("type", "none"),
        Some(ToolChoice::Required) => choice.put("type", "any"),
        Some(ToolChoice::Named(name)) => {
            choice.put("type", "tool");
            choice.put("name", name.as_str());
        }
        None if chat.parallel_tools == Some(false) => choice.put("type", "auto"),
        None => {}
    }
    if choice.0.is_empty() {
        return;
    }
    if chat.tool_choice != Some(ToolChoice::None) {
        choice.maybe("disable_parallel_tool_use", chat.parallel_tools.map(|parallel| !parallel));
    }
    body.put("tool_choice", choice);
}

fn tool(tool: &Tool, chat: &Chat, losses: &mut Losses) -> Value {
    let mut body = Object::default();
    body.put("name", tool.name.as_str());
    body.maybe("description", tool.description.as_deref());
    let empty = || json!({"type": "object", "properties": {}});
    body.put("input_schema", tool.parameters.clone().unwrap_or_else(empty));
    if tool.strict == Some(true) {
        match knows_schemas(&chat.model) {
            true => body.put("strict", true),
            false => losses.note("tools.strict"),
        }
    }
    marks(&tool.others, &mut body, losses);
    body.into()
}

/// Writes what should be cached, which only this dialect can express.
fn marks(others: &crate::chat::Others, body: &mut Object, losses: &mut Losses) {
    let knows = |name: &str, _: &Value| name == "cache_control";
    parts::others(others, knows, losses, |name, value| body.put(name, value.clone()));
}

/// Writes the system prompt and the conversation.
fn messages(chat: &Chat, losses: &mut Losses) -> Result<(Vec<Value>, Vec<Value>), Unsayable> {
    let all = At::BODY.name("messages");
    let (mut system, mut turns) = (Vec::new(), Vec::<(Role, Vec<Value>)>::new());
    for (index, message) in chat.messages.iter().enumerate() {
        let at = all.index(index);
        if message.name.is_some() {
            losses.note("messages.name");
        }
        let written = blocks(message, at, losses)?;
        if written.is_empty() {
            continue;
        }
        match (message.role, turns.last_mut()) {
            (Role::System, last) => {
                if last.is_some() {
                    losses.note("messages.role");
                }
                system.extend(written);
            }
            // All results must be in one message, followed by anything the user says.
            (Role::Tool | Role::User, Some((Role::Tool, last))) => last.extend(written),
            (role, _) => turns.push((role, written)),
        }
    }
    let turn = |(role, content): (Role, Vec<Value>)| {
        let role = if role == Role::Assistant { "assistant" } else { "user" };
        json!({"role": role, "content": joined(content)})
    };
    Ok((system, turns.into_iter().map(turn).collect()))
}

/// Returns plain text if the blocks are nothing else.
fn joined(mut blocks: Vec<Value>) -> Value {
    let is_plain = |block: &Value| {
        block["type"] == "text" && block.as_object().is_some_and(|map| map.len() == 2)
    };
    match blocks.as_mut_slice() {
        [one] if is_plain(one) => one["text"].take(),
        _ => Value::Array(blocks),
    }
}

fn blocks(message: &Message, at: At<'_>, losses: &mut Losses) -> Result<Vec<Value>, Unsayable> {
    let mut written = Vec::with_capacity(message.parts.len());
    let content_at = at.name("content");
    for (index, Part { content, others }) in message.parts.iter().enumerate() {
        let Some(mut body) = block(content, content_at.index(index), losses)? else { continue };
        marks(others, &mut body, losses);
        written.push(body.into());
    }
    Ok(written)
}

/// Writes a block. Returns `None` if nothing of it remains.
fn block(content: &Content, at: At<'_>, losses: &mut Losses) -> Result<Option<Object>, Unsayable> {
    let mut body = Object::default();
    match content {
        // Blocks of only white space are refused.
        Content::Text(text) | Content::Refusal(text) if text.trim().is_empty() => return Ok(None),
        Content::Text(text) => {
            body.put("type", "text");
            body.put("text", text.as_str());
        }
        Content::Refusal(text) => {
            losses.note("refusal");
            body.put("type", "text");
            body.put("text", text.as_str());
        }
        Content::Image { source: found, detail } => {
            if detail.as_deref().is_some_and(|detail| detail != "auto") {
                losses.note("image_url.detail");
            }
            body.put("type", "image");
            body.put("source", source(found));
        }
        Content::File { source: found, name } => {
            body.put("type", "document");
            body.put("source", document(found, &at)?);
            body.maybe("title", name.as_deref());
        }
        Content::Audio { .. } => return Err(at.wrong("this model hears nothing")),
        Content::Reasoning { .. } => match thought(content) {
            Some(thought) => body = thought,
            None => {
                losses.note("reasoning");
                return Ok(None);
            }
        },
        Content::ToolCall(call) => {
            body.put("type", "tool_use");
            body.put("id", id(&call.id));
            body.put("name", call.name.as_str());
            body.put("input", input(&call.arguments, &at)?);
        }
        Content::ToolResult { call, content, is_error, .. } => {
            body.put("type", "tool_result");
            body.put("tool_use_id", id(call));
            let content = content.iter().filter_map(|found| block(found, at, losses).transpose());
            let content = content.map(|found| found.map(Value::from)).collect::<Result<_, _>>()?;
            body.put("content", joined(content));
            if *is_error {
                body.put("is_error", true);
            }
        }
    }
    Ok(Some(body))
}

/// Writes a thought. Returns `None` without a proof: such a thought is not accepted.
pub(super) fn thought(content: &Content) -> Option<Object> {
    let Content::Reasoning { text, signature, sealed } = content else { return None };
    let mut body = Object::default();
    match (signature, sealed) {
        (None, Some(data)) if text.is_empty() => {
            body.put("type", "redacted_thinking");
            body.put("data", data.as_str());
        }
        (Some(proof), _) | (None, Some(proof)) => {
            body.put("type", "thinking");
            body.put("thinking", text.as_str());
            body.put("signature", proof.as_str());
        }
        (None, None) => return None,
    }
    Some(body)
}

/// Replaces characters in the ids of other providers that are refused here.
pub(super) fn id(id: &str) -> Cow<'_, str> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match id.chars().all(is_fine) {
        true => Cow::Borrowed(id),
        false => Cow::Owned(id.replace(|c| !is_fine(c), "_")),
    }
}

/// Reads the arguments of a call, which are JSON in this dialect and not text.
pub(super) fn input(arguments: &str, at: &At<'_>) -> Result<Value, Unsayable> {
    if arguments.trim().is_empty() {
        return Ok(json!({}));
    }
    match serde_json::from_str(arguments) {
        Ok(input @ Value::Object(_)) => Ok(input),
        _ => Err(at.wrong("the arguments of this call are no JSON object")),
    }
}

fn source(source: &Source) -> Value {
    match source {
        Source::Url(url) => json!({"type": "url", "url": url}),
        Source::Data { media_type, data } => {
            json!({"type": "base64", "media_type": media_type, "data": data})
        }
        Source::Id(id) => json!({"type": "file", "file_id": id}),
    }
}

fn document(found: &Source, at: &At<'_>) -> Result<Value, Unsayable> {
    let Source::Data { media_type, data } = found else { return Ok(source(found)) };
    if media_type == "application/pdf" {
        return Ok(source(found));
    }
    if !media_type.starts_with("text/") && media_type != "application/json" {
        return Err(at.wrong(format!("this model reads PDF and text, and not `{media_type}`")));
    }
    let text = STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(|| at.wrong("is not text in base64"))?;
    Ok(json!({"type": "text", "media_type": "text/plain", "data": text}))
}
