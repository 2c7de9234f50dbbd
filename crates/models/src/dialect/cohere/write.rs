//! Writes requests.

use crate::chat::{
    Chat, Content, Format, Message, Part, Reasoning, Role, Source, Tool, ToolCall, ToolChoice,
};
use crate::dialect::members::Object;
use crate::dialect::{Losses, Unsayable, parts};
use serde_json::{Value, json};

pub(super) fn request(chat: &Chat, losses: &mut Losses) -> Result<Value, Unsayable> {
    let mut body = Object::default();
    body.put("model", chat.model.as_str());
    let mut messages = Vec::new();
    for (index, message) in chat.messages.iter().enumerate() {
        write_message(message, &format!("messages[{index}]"), losses, &mut messages)?;
    }
    body.put("messages", messages);
    tools(chat, &mut body, losses)?;
    body.maybe("max_tokens", chat.max_tokens);
    body.maybe("temperature", chat.temperature.clone().map(Value::Number));
    body.maybe("p", chat.top_p.clone().map(Value::Number));
    body.maybe("k", chat.top_k);
    body.maybe("presence_penalty", chat.presence_penalty.clone().map(Value::Number));
    body.maybe("frequency_penalty", chat.frequency_penalty.clone().map(Value::Number));
    if !chat.stop.is_empty() {
        body.put("stop_sequences", chat.stop.clone());
    }
    match chat.seed.map(u64::try_from) {
        Some(Ok(seed)) => body.put("seed", seed),
        Some(Err(_)) => losses.note("seed"),
        None => {}
    }
    body.maybe("response_format", format(chat.format.as_ref(), losses));
    body.maybe("thinking", chat.reasoning.as_ref().and_then(thinking));
    if chat.choices.is_some_and(|choices| choices > 1) {
        return Err(Unsayable::new("n", "Cohere answers once"));
    }
    body.put("stream", chat.stream);
    if chat.parallel_tools == Some(false) {
        losses.note("parallel_tool_calls");
    }
    if chat.end_user.is_some() {
        losses.note("user");
    }
    parts::others(&chat.others, |_, _| false, losses, |_, _| {});
    Ok(body.into())
}

fn write_message(
    message: &Message,
    at: &str,
    losses: &mut Losses,
    messages: &mut Vec<Value>,
) -> Result<(), Unsayable> {
    if message.name.is_some() {
        losses.note("messages.name");
    }
    message.parts.iter().for_each(|part| parts::lose(&part.others, losses));
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => {
            messages.push(assistant(&message.parts, at, losses)?);
            return Ok(());
        }
        Role::Tool => {
            for (index, part) in message.parts.iter().enumerate() {
                messages.push(result(part, &format!("{at}.content[{index}]"), losses)?);
            }
            return Ok(());
        }
    };
    let content = content(message.parts.iter(), at, losses)?;
    messages.push(json!({ "role": role, "content": content }));
    Ok(())
}

/// Writes content. A single text is written without a list.
fn content<'p>(
    parts: impl Iterator<Item = &'p Part>,
    at: &str,
    losses: &mut Losses,
) -> Result<Value, Unsayable> {
    let mut written = Vec::new();
    for (index, part) in parts.enumerate() {
        written.push(write_content(&part.content, &format!("{at}.content[{index}]"), losses)?);
    }
    Ok(match written.as_mut_slice() {
        [] => Value::from(""),
        [one] if one["type"] == "text" => one["text"].take(),
        _ => Value::Array(written),
    })
}

fn write_content(content: &Content, at: &str, losses: &mut Losses) -> Result<Value, Unsayable> {
    match content {
        Content::Text(text) => Ok(json!({ "type": "text", "text": text })),
        Content::Refusal(text) => {
            losses.note("refusal");
            Ok(json!({ "type": "text", "text": text }))
        }
        Content::Reasoning { text, .. } => Ok(json!({ "type": "thinking", "thinking": text })),
        Content::Image { source, detail } => {
            let mut image = Object::default();
            image.put("url", image_url(source, at)?);
            image.maybe("detail", detail.as_deref());
            Ok(json!({ "type": "image_url", "image_url": Value::from(image) }))
        }
        Content::File { .. } | Content::Audio { .. } => {
            Err(Unsayable::new(at, "Cohere reads text and images only"))
        }
        Content::ToolCall(_) | Content::ToolResult { .. } => {
            Err(Unsayable::new(at, "cannot stand here"))
        }
    }
}

fn image_url(source: &Source, at: &str) -> Result<String, Unsayable> {
    match source {
        Source::Url(url) => Ok(url.clone()),
        Source::Data { media_type, data } => Ok(parts::data_url(media_type, data)),
        Source::Id(_) => {
            let why = "was uploaded to another provider, and Cohere does not have it";
            Err(Unsayable::new(at, why))
        }
    }
}

/// Writes the assistant's message, in a request and in an answer. Thoughts, text and calls each
/// have their own place.
pub(super) fn assistant(parts: &[Part], at: &str, losses: &mut Losses) -> Result<Value, Unsayable> {
    let mut message = Object::default();
    message.put("role", "assistant");
    let mut calls = Vec::new();
    for part in parts {
        match &part.content {
            Content::ToolCall(call) => calls.push(write_call(call, losses)),
            Content::Reasoning { signature: Some(_), .. } => losses.note("reasoning.signature"),
            Content::Reasoning { sealed: Some(_), .. } => losses.note("reasoning.signature"),
            _ => {}
        }
    }
    let thoughts = parts.iter().filter_map(|part| match &part.content {
        Content::Reasoning { text, .. } if !text.is_empty() => Some(text.as_str()),
        _ => None,
    });
    // Every model knows plans, but only some know thoughts.
    let is_plan = !calls.is_empty();
    if is_plan {
        let plan: Vec<_> = thoughts.collect();
        if !plan.is_empty() {
            message.put("tool_plan", plan.join("\n"));
        }
        message.put("tool_calls", calls);
    }
    let mut said = parts.iter().filter(|part| match &part.content {
        Content::Reasoning { text, .. } => !is_plan && !text.is_empty(),
        Content::ToolCall(_) => false,
        _ => true,
    });
    if !is_plan || said.clone().next().is_some() {
        message.put("content", content(said.by_ref(), at, losses)?);
    }
    Ok(message.into())
}

fn write_call(call: &ToolCall, losses: &mut Losses) -> Value {
    if call.signature.is_some() {
        losses.note("tool_call.signature");
    }
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}

fn result(part: &Part, at: &str, losses: &mut Losses) -> Result<Value, Unsayable> {
    let Content::ToolResult { call, content, is_error, .. } = &part.content else {
        return Err(Unsayable::new(at, "is no result of a tool"));
    };
    if *is_error {
        losses.note("tool_result.is_error");
    }
    let mut written = Vec::new();
    for content in content {
        match content {
            Content::Text(text) => written.push(json!({ "type": "text", "text": text })),
            _ => return Err(Unsayable::new(at, "Cohere reads only text of tools")),
        }
    }
    let content = match written.as_mut_slice() {
        [] => Value::from(""),
        [one] => one["text"].take(),
        _ => Value::Array(written),
    };
    Ok(json!({ "role": "tool", "tool_call_id": call, "content": content }))
}

fn tools(chat: &Chat, body: &mut Object, losses: &mut Losses) -> Result<(), Unsayable> {
    let named = match &chat.tool_choice {
        None | Some(ToolChoice::Auto) => None,
        Some(ToolChoice::None) => {
            body.put("tool_choice", "NONE");
            None
        }
        Some(ToolChoice::Required) => {
            body.put("tool_choice", "REQUIRED");
            None
        }
        // Offering only this tool and requiring a call is the same as naming it.
        Some(ToolChoice::Named(name)) => {
            if !chat.tools.iter().any(|tool| tool.name == *name) {
                return Err(Unsayable::new("tool_choice", format!("there is no tool `{name}`")));
            }
            body.put("tool_choice", "REQUIRED");
            Some(name)
        }
    };
    let offered: Vec<_> =
        chat.tools.iter().filter(|tool| named.is_none_or(|name| tool.name == *name)).collect();
    if offered.is_empty() {
        return Ok(());
    }
    let strict = offered.iter().filter(|tool| tool.strict == Some(true)).count();
    match strict {
        0 => {}
        strict if strict == offered.len() => body.put("strict_tools", true),
        _ => losses.note("tools.strict"),
    }
    let written: Vec<_> = offered.into_iter().map(|tool| write_tool(tool, losses)).collect();
    body.put("tools", written);
    Ok(())
}

fn write_tool(tool: &Tool, losses: &mut Losses) -> Value {
    parts::lose(&tool.others, losses);
    let mut function = Object::default();
    function.put("name", tool.name.as_str());
    function.maybe("description", tool.description.as_deref());
    let none = || json!({ "type": "object", "properties": {} });
    function.put("parameters", tool.parameters.clone().unwrap_or_else(none));
    json!({ "type": "function", "function": Value::from(function) })
}

fn format(format: Option<&Format>, losses: &mut Losses) -> Option<Value> {
    Some(match format? {
        Format::Text => json!({ "type": "text" }),
        Format::Json => json!({ "type": "json_object" }),
        Format::Schema { schema, description, strict, .. } => {
            if description.is_some() {
                losses.note("response_format.description");
            }
            // The schema is always enforced.
            if *strict == Some(false) {
                losses.note("response_format.strict");
            }
            json!({ "type": "json_object", "json_schema": schema })
        }
    })
}

fn thinking(reasoning: &Reasoning) -> Option<Value> {
    let budget = match (reasoning.budget_tokens, reasoning.effort.as_deref()) {
        (Some(budget), _) => budget,
        (None, Some("none")) => return Some(json!({ "type": "disabled" })),
        // Without a limit.
        (None, Some("high")) => return Some(json!({ "type": "enabled" })),
        (None, Some(effort)) => parts::budget_of(effort),
        (None, None) => return None,
    };
    Some(json!({ "type": "enabled", "token_budget": budget }))
}
