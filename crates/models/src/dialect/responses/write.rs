//! Writes requests. The provider is told to store nothing, since a caller of another dialect did
//! not ask for that; so thoughts come back sealed instead.

use crate::chat::{Chat, Content, Format, Message, Part, Role, Source, Tool, ToolChoice};
use crate::dialect::members::{At, Object};
use crate::dialect::{Losses, Unsayable, parts, strict};
use serde_json::{Value, json};

pub(super) fn request(chat: &Chat, losses: &mut Losses) -> Result<Value, Unsayable> {
    refuse(chat)?;
    let mut body = Object::default();
    body.put("model", chat.model.as_str());
    let rest = match chat.messages.as_slice() {
        [Message { role: Role::System, parts, .. }, rest @ ..] => match parts.as_slice() {
            [Part { content: Content::Text(text), others }] => {
                parts::lose(others, losses);
                body.put("instructions", text.as_str());
                rest
            }
            _ => &chat.messages,
        },
        all => all,
    };
    body.put("input", input(rest, chat.messages.len() - rest.len(), losses)?);
    if !chat.tools.is_empty() {
        body.put("tools", chat.tools.iter().map(|found| tool(found, losses)).collect::<Vec<_>>());
        body.maybe("tool_choice", chat.tool_choice.as_ref().map(tool_choice));
        body.maybe("parallel_tool_calls", chat.parallel_tools);
    }
    body.maybe("max_output_tokens", chat.max_tokens);
    body.maybe("temperature", chat.temperature.clone());
    body.maybe("top_p", chat.top_p.clone());
    body.maybe("user", parts::end_user(chat, losses));
    text(chat, &mut body, losses);
    reasoning(chat, &mut body, losses);
    body.put("store", chat.others.get("store").cloned().unwrap_or(json!(false)));
    if chat.stream {
        body.put("stream", true);
    }
    lose(chat, losses);
    parts::others(&chat.others, knows, losses, |name, value| {
        if !matches!(name, "store" | "verbosity") {
            body.put(name, value.clone());
        }
    });
    Ok(body.into())
}

fn refuse(chat: &Chat) -> Result<(), Unsayable> {
    if chat.choices.is_some_and(|choices| choices != 1) {
        return Err(Unsayable::new("n", "this model gives one answer"));
    }
    if !chat.stop.is_empty() {
        return Err(Unsayable::new("stop", "this model is told of no sequences to stop at"));
    }
    Ok(())
}

fn knows(name: &str, value: &Value) -> bool {
    match name {
        "metadata" | "prompt_cache_key" | "prompt_cache_retention" | "store" | "verbosity" => true,
        "service_tier" => matches!(value.as_str(), Some("default" | "flex" | "priority")),
        "truncation" => value == "auto",
        "max_tool_calls" | "include" | "top_logprobs" => true,
        _ => false,
    }
}

fn lose(chat: &Chat, losses: &mut Losses) {
    let is_set = |penalty: &Option<serde_json::Number>| {
        penalty.as_ref().is_some_and(|penalty| penalty.as_f64() != Some(0.0))
    };
    let lost = [
        ("top_k", chat.top_k.is_some()),
        ("seed", chat.seed.is_some()),
        ("presence_penalty", is_set(&chat.presence_penalty)),
        ("frequency_penalty", is_set(&chat.frequency_penalty)),
    ];
    lost.iter().filter(|(_, is_lost)| *is_lost).for_each(|(name, _)| losses.note(*name));
}

fn text(chat: &Chat, body: &mut Object, losses: &mut Losses) {
    let mut text = Object::default();
    match &chat.format {
        None => {}
        Some(Format::Text) => text.put("format", json!({"type": "text"})),
        Some(Format::Json) => text.put("format", json!({"type": "json_object"})),
        Some(Format::Schema { name, description, schema, strict }) => {
            let mut format = Object::default();
            format.put("type", "json_schema");
            format.put("name", name.as_str());
            format.maybe("description", description.as_deref());
            format.put("schema", schema.clone());
            format.maybe("strict", strict::of_answer(*strict, schema, losses));
            text.put("format", format);
        }
    }
    text.maybe("verbosity", chat.others.get("verbosity").cloned());
    if !text.0.is_empty() {
        body.put("text", text);
    }
}

fn reasoning(chat: &Chat, body: &mut Object, losses: &mut Losses) {
    let mut reasoning = Object::default();
    if let Some(found) = &chat.reasoning {
        let derived = found.budget_tokens.map(|budget| {
            losses.note("reasoning.budget_tokens");
            parts::effort_of(budget).to_owned()
        });
        reasoning.maybe("effort", found.effort.clone().or(derived));
        reasoning.maybe("summary", found.summary.as_deref());
    }
    let thoughts = chat.messages.iter().flat_map(|message| &message.parts);
    let has_thoughts =
        thoughts.into_iter().any(|part| matches!(part.content, Content::Reasoning { .. }));
    // Models that do not reason refuse this.
    if !reasoning.0.is_empty() || has_thoughts {
        body.put("include", json!(["reasoning.encrypted_content"]));
    }
    if !reasoning.0.is_empty() {
        body.put("reasoning", reasoning);
    }
}

fn tool(tool: &Tool, losses: &mut Losses) -> Value {
    parts::lose(&tool.others, losses);
    let mut body = Object::default();
    body.put("type", "function");
    body.put("name", tool.name.as_str());
    body.maybe("description", tool.description.as_deref());
    body.put("parameters", tool.parameters.clone());
    // In this dialect tools are strict by default.
    body.put("strict", strict::of_tool(tool, losses).unwrap_or(false));
    body.into()
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({"type": "function", "name": name}),
    }
}

fn input(messages: &[Message], first: usize, losses: &mut Losses) -> Result<Vec<Value>, Unsayable> {
    let all = At::BODY.name("messages");
    let mut items = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        let message_at = all.index(first + index);
        if message.name.is_some() {
            losses.note("messages.name");
        }
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant | Role::Tool => "assistant",
        };
        let (mut spoken, content_at) = (Vec::new(), message_at.name("content"));
        for (index, part) in message.parts.iter().enumerate() {
            parts::lose(&part.others, losses);
            match content(&part.content, role, content_at.index(index), losses)? {
                Written::Content(part) => spoken.push(part),
                Written::Item(item) => {
                    say(role, &mut spoken, &mut items);
                    items.push(item);
                }
                Written::Nothing => {}
            }
        }
        say(role, &mut spoken, &mut items);
    }
    Ok(items)
}

fn say(role: &str, spoken: &mut Vec<Value>, items: &mut Vec<Value>) {
    if !spoken.is_empty() {
        let content = std::mem::take(spoken);
        items.push(json!({"type": "message", "role": role, "content": content}));
    }
}

enum Written {
    Content(Value),
    Item(Value),
    Nothing,
}

fn content(
    content: &Content,
    role: &str,
    at: At<'_>,
    losses: &mut Losses,
) -> Result<Written, Unsayable> {
    Ok(match content {
        Content::Reasoning { text, signature, sealed } => {
            match sealed.as_ref().or(signature.as_ref()) {
                Some(proof) => Written::Item(reasoning_item(None, text, Some(proof))),
                None => {
                    losses.note("reasoning");
                    Written::Nothing
                }
            }
        }
        Content::ToolCall(call) => {
            if call.signature.is_some() {
                losses.note("tool_call.signature");
            }
            Written::Item(json!({
                "type": "function_call", "call_id": call.id, "name": call.name,
                "arguments": call.arguments,
            }))
        }
        Content::ToolResult { call, content: found, is_error, .. } => {
            if *is_error {
                losses.note("tool_result.is_error");
            }
            let output = match found.as_slice() {
                [] => json!(""),
                [Content::Text(text)] => json!(text),
                all => {
                    all.iter().map(|found| spoken(found, "user", at)).collect::<Result<_, _>>()?
                }
            };
            Written::Item(json!({
                "type": "function_call_output", "call_id": call, "output": output,
            }))
        }
        other => Written::Content(spoken(other, role, at)?),
    })
}

pub(super) fn reasoning_item(id: Option<&str>, text: &str, proof: Option<&str>) -> Value {
    let summary = match text {
        "" => json!([]),
        text => json!([{"type": "summary_text", "text": text}]),
    };
    let mut body = Object::default();
    body.put("type", "reasoning");
    body.maybe("id", id);
    body.put("summary", summary);
    body.maybe("encrypted_content", proof);
    body.into()
}

fn spoken(content: &Content, role: &str, at: At<'_>) -> Result<Value, Unsayable> {
    let mut body = Object::default();
    match content {
        Content::Text(text) => {
            body.put("type", if role == "assistant" { "output_text" } else { "input_text" });
            body.put("text", text.as_str());
        }
        Content::Refusal(text) => {
            body.put("type", "refusal");
            body.put("refusal", text.as_str());
        }
        Content::Image { source, detail } => {
            body.put("type", "input_image");
            match source {
                Source::Url(url) => body.put("image_url", url.as_str()),
                Source::Data { media_type, data } => {
                    body.put("image_url", parts::data_url(media_type, data));
                }
                Source::Id(id) => body.put("file_id", id.as_str()),
            }
            body.maybe("detail", detail.as_deref());
        }
        Content::File { source, name } => {
            body.put("type", "input_file");
            match source {
                Source::Url(url) => body.put("file_url", url.as_str()),
                Source::Id(id) => body.put("file_id", id.as_str()),
                Source::Data { media_type, data } => {
                    body.put("filename", name.as_deref().unwrap_or("document.pdf"));
                    body.put("file_data", parts::data_url(media_type, data));
                }
            }
        }
        Content::Audio { source: Source::Data { media_type, data } } => {
            body.put("type", "input_audio");
            let format = parts::audio_format(media_type);
            body.put("input_audio", json!({"data": data, "format": format}));
        }
        Content::Audio { .. } => {
            return Err(at.wrong("audio has to be sent along: only its data can be said"));
        }
        Content::Reasoning { .. } | Content::ToolCall(_) | Content::ToolResult { .. } => {
            return Err(at.wrong("does not belong here"));
        }
    }
    Ok(body.into())
}
