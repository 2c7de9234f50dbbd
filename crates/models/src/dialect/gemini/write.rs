//! Writes requests.

use super::generations::{Generation, NO_SIGNATURE};
use super::parts;
use crate::chat::{Chat, Content, Format, Message, Part, Reasoning, Role, Tool, ToolChoice};
use crate::dialect::members::Object;
use crate::dialect::parts::{lose, others};
use crate::dialect::{Losses, Unsayable};
use serde_json::{Value, json};
use std::collections::HashMap;

pub(super) fn request(chat: &Chat, losses: &mut Losses) -> Result<Value, Unsayable> {
    let generation = Generation::of(&chat.model);
    let mut body = Object::default();
    let (system, contents) = contents(chat, generation, losses)?;
    body.put("contents", contents);
    if !system.is_empty() {
        body.put("systemInstruction", json!({ "parts": system }));
    }
    if !chat.tools.is_empty() {
        let tools: Vec<_> = chat.tools.iter().map(|tool| declaration(tool, losses)).collect();
        body.put("tools", json!([{ "functionDeclarations": tools }]));
    }
    body.maybe("toolConfig", tool_config(chat, losses)?);
    let config = generation_config(chat, generation, losses);
    if !config.0.is_empty() {
        body.put("generationConfig", Value::from(config));
    }
    note_losses(chat, losses);
    Ok(body.into())
}

fn note_losses(chat: &Chat, losses: &mut Losses) {
    if chat.parallel_tools == Some(false) {
        losses.note("parallel_tool_calls");
    }
    if chat.end_user.is_some() {
        losses.note("user");
    }
    others(&chat.others, |_, _| false, losses, |_, _| {});
}

/// Writes the parts of the system instruction, and the contents.
fn contents(
    chat: &Chat,
    generation: Generation,
    losses: &mut Losses,
) -> Result<(Vec<Value>, Vec<Value>), Unsayable> {
    let (mut system, mut contents) = (Vec::new(), Vec::<Written>::new());
    let mut called = Called::new();
    for (index, message) in chat.messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        if message.name.is_some() {
            losses.note("messages.name");
        }
        if message.role == Role::System {
            if !contents.is_empty() {
                // There is only one place for it, before everything else.
                losses.note("messages.role");
            }
            for part in &message.parts {
                if !matches!(part.content, Content::Text(_)) {
                    return Err(Unsayable::new(&at, "has to be text, as the system's"));
                }
                system.push(parts::write(part, &at, losses)?);
            }
            continue;
        }
        let parts = match message.role {
            Role::Tool => results(message, &called, &at, generation, losses)?,
            _ => spoken(message, &at, generation, losses)?.into_iter().enumerate().collect(),
        };
        remember(message, &mut called);
        match contents.last_mut() {
            // All results of one turn must be in one content.
            Some(last) if last.role == Role::Tool && message.role == Role::Tool => {
                last.parts.extend(parts);
            }
            _ => contents.push(Written { role: message.role, parts }),
        }
    }
    let mut contents: Vec<_> =
        contents.into_iter().map(|content| content.value(generation)).collect();
    if contents.is_empty() && !system.is_empty() {
        // There must be something to answer.
        losses.note("messages.role");
        contents.push(json!({ "role": "user", "parts": std::mem::take(&mut system) }));
    }
    Ok((system, contents))
}

struct Written {
    role: Role,
    /// Each part with the place of the call it answers.
    parts: Vec<(usize, Value)>,
}

impl Written {
    fn value(mut self, generation: Generation) -> Value {
        // Without ids, results are matched to their calls by the order.
        if !generation.has_ids {
            self.parts.sort_by_key(|(position, _)| *position);
        }
        let role = if self.role == Role::Assistant { "model" } else { "user" };
        let parts: Vec<_> = self.parts.into_iter().map(|(_, part)| part).collect();
        json!({ "role": role, "parts": parts })
    }
}

fn spoken(
    message: &Message,
    at: &str,
    generation: Generation,
    losses: &mut Losses,
) -> Result<Vec<Value>, Unsayable> {
    let mut writer = Spoken { kept: None, has_call: false, generation };
    let mut written = Vec::new();
    for (index, part) in message.parts.iter().enumerate() {
        let at = format!("{at}.content[{index}]");
        writer.part(part, &at, losses, &mut written)?;
    }
    if let Some(signature) = writer.kept {
        written.push(json!({ "text": "", "thoughtSignature": signature }));
    }
    if written.is_empty() {
        written.push(json!({ "text": "" }));
    }
    Ok(written)
}

struct Spoken {
    /// The signature of a thought. It goes on the part after the thought.
    kept: Option<String>,
    has_call: bool,
    generation: Generation,
}

impl Spoken {
    fn part(
        &mut self,
        part: &Part,
        at: &str,
        losses: &mut Losses,
        written: &mut Vec<Value>,
    ) -> Result<(), Unsayable> {
        let mut value = match &part.content {
            Content::Reasoning { text, signature, sealed } => {
                if sealed.is_some() {
                    losses.note("reasoning.signature");
                }
                if let Some(signature) = signature {
                    self.kept = Some(signature.clone());
                }
                if text.is_empty() {
                    return Ok(());
                }
                written.push(parts::write(part, at, losses)?);
                return Ok(());
            }
            Content::ToolCall(call) => {
                let value = parts::write_call(call, self.generation.has_ids)
                    .ok_or_else(|| Unsayable::new(at, "its arguments have to be a JSON object"))?;
                lose(&part.others, losses);
                if call.signature.is_some() {
                    self.kept.clone_from(&call.signature);
                }
                // The signature of several calls is on the first.
                let is_first = !std::mem::replace(&mut self.has_call, true);
                if is_first && self.kept.is_none() && self.generation.wants_signatures {
                    self.kept = Some(NO_SIGNATURE.to_owned());
                }
                value
            }
            // Vertex AI refuses an empty text next to a call.
            Content::Text(text) | Content::Refusal(text)
                if text.is_empty() && part.others.is_empty() && self.kept.is_none() =>
            {
                return Ok(());
            }
            _ => parts::write(part, at, losses)?,
        };
        if let Some(signature) = self.kept.take() {
            value["thoughtSignature"] = signature.into();
        }
        written.push(value);
        Ok(())
    }
}

/// Writes results of tools, each with the name of its tool and the place of its call.
fn results(
    message: &Message,
    called: &Called<'_>,
    at: &str,
    generation: Generation,
    losses: &mut Losses,
) -> Result<Vec<(usize, Value)>, Unsayable> {
    let (mut written, mut beside) = (Vec::new(), Vec::new());
    for (of_message, part) in message.parts.iter().enumerate() {
        let at = format!("{at}.content[{of_message}]");
        lose(&part.others, losses);
        let Content::ToolResult { call, name, .. } = &part.content else {
            return Err(Unsayable::new(at, "is no result of a tool"));
        };
        let (position, of_call) = called.get(call.as_str()).copied().unzip();
        let name = of_call.or(name.as_deref()).ok_or_else(|| {
            Unsayable::new(&at, format!("no tool was called as `{call}` before it"))
        })?;
        let has_ids = generation.has_ids;
        let value = parts::write_result(&part.content, name, has_ids, &at, &mut beside, losses)?;
        written.push((position.unwrap_or(usize::MAX), value));
    }
    written.extend(beside.into_iter().map(|part| (usize::MAX, part)));
    Ok(written)
}

/// The latest call of each id so far: its place among the calls of its message, and the name of the
/// tool. Searching for each result's call would be quadratic.
type Called<'c> = HashMap<&'c str, (usize, &'c str)>;

fn remember<'c>(message: &'c Message, called: &mut Called<'c>) {
    // If two calls in a message have the same id, the first counts.
    for (at, part) in message.parts.iter().enumerate().rev() {
        if let Content::ToolCall(call) = &part.content {
            called.insert(&call.id, (at, &call.name));
        }
    }
}

fn declaration(tool: &Tool, losses: &mut Losses) -> Value {
    let mut object = Object::default();
    object.put("name", tool.name.as_str());
    object.maybe("description", tool.description.as_deref());
    object.maybe("parametersJsonSchema", tool.parameters.clone());
    lose(&tool.others, losses);
    object.into()
}

fn tool_config(chat: &Chat, losses: &mut Losses) -> Result<Option<Value>, Unsayable> {
    let strict = chat.tools.iter().filter(|tool| tool.strict == Some(true)).count();
    let is_strict = strict > 0 && strict == chat.tools.len();
    let calling = match &chat.tool_choice {
        None | Some(ToolChoice::Auto) if is_strict => json!({ "mode": "VALIDATED" }),
        None => Value::Null,
        Some(ToolChoice::Auto) => json!({ "mode": "AUTO" }),
        Some(ToolChoice::None) => json!({ "mode": "NONE" }),
        // In this mode every tool's schema is enforced.
        Some(ToolChoice::Required) => json!({ "mode": "ANY" }),
        Some(ToolChoice::Named(name)) => {
            if !chat.tools.iter().any(|tool| tool.name == *name) {
                return Err(Unsayable::new("tool_choice", format!("there is no tool `{name}`")));
            }
            json!({ "mode": "ANY", "allowedFunctionNames": [name] })
        }
    };
    let is_loose = matches!(chat.tool_choice, None | Some(ToolChoice::Auto));
    if strict > 0 && !is_strict && is_loose {
        losses.note("tools.strict");
    }
    Ok((!calling.is_null()).then(|| json!({ "functionCallingConfig": calling })))
}

fn generation_config(chat: &Chat, generation: Generation, losses: &mut Losses) -> Object {
    let mut config = Object::default();
    config.maybe("maxOutputTokens", chat.max_tokens);
    config.maybe("temperature", chat.temperature.clone().map(Value::Number));
    config.maybe("topP", chat.top_p.clone().map(Value::Number));
    config.maybe("topK", chat.top_k);
    config.maybe("presencePenalty", chat.presence_penalty.clone().map(Value::Number));
    config.maybe("frequencyPenalty", chat.frequency_penalty.clone().map(Value::Number));
    config.maybe("candidateCount", chat.choices);
    if !chat.stop.is_empty() {
        config.put("stopSequences", chat.stop.clone());
    }
    match chat.seed.map(i32::try_from) {
        Some(Ok(seed)) => config.put("seed", seed),
        Some(Err(_)) => losses.note("seed"),
        None => {}
    }
    match &chat.format {
        None => {}
        Some(Format::Text) => config.put("responseMimeType", "text/plain"),
        Some(Format::Json) => config.put("responseMimeType", "application/json"),
        Some(Format::Schema { schema, description, strict, .. }) => {
            config.put("responseMimeType", "application/json");
            config.put("responseJsonSchema", schema.clone());
            if description.is_some() {
                losses.note("response_format.description");
            }
            // The schema is always enforced.
            if *strict == Some(false) {
                losses.note("response_format.strict");
            }
        }
    }
    if let Some(reasoning) = &chat.reasoning {
        let thinking = thinking(reasoning, (&chat.model, generation), losses);
        if !thinking.0.is_empty() {
            config.put("thinkingConfig", Value::from(thinking));
        }
    }
    config
}

fn thinking(
    reasoning: &Reasoning,
    (model, generation): (&str, Generation),
    losses: &mut Losses,
) -> Object {
    let mut config = Object::default();
    let effort = reasoning.effort.as_deref();
    match (reasoning.budget_tokens, effort) {
        (Some(budget), _) => {
            let told = within(model, budget);
            config.put("thinkingBudget", told);
            if told != budget {
                losses.note("reasoning.budget_tokens");
            }
            if effort.is_some() {
                losses.note("reasoning.effort");
            }
        }
        (None, Some("none")) if generation.has_levels => {
            // Thinking cannot be turned off.
            losses.note("reasoning.effort");
            config.put("thinkingLevel", "LOW");
        }
        (None, Some("none")) => {
            let told = within(model, 0);
            config.put("thinkingBudget", told);
            if told != 0 {
                losses.note("reasoning.effort");
            }
        }
        (None, Some(effort)) if generation.has_levels => {
            let level = level(effort, losses);
            config.put("thinkingLevel", level);
        }
        // The same values as in Google's own compatibility layer for OpenAI.
        (None, Some(effort)) => match effort {
            "minimal" | "low" => config.put("thinkingBudget", 1024),
            "medium" => config.put("thinkingBudget", 8192),
            "high" => config.put("thinkingBudget", 24576),
            _ => {
                losses.note("reasoning.effort");
                config.put("thinkingBudget", 24576);
            }
        },
        (None, None) => {}
    }
    match reasoning.summary.as_deref() {
        None => {}
        Some("none") => config.put("includeThoughts", false),
        Some(_) => config.put("includeThoughts", true),
    }
    config
}

/// Returns the nearest budget that the model accepts.
fn within(model: &str, budget: u64) -> u64 {
    let is = |part: &str| model.contains(part);
    match budget {
        0 if is("flash") => 0,
        _ if is("flash-lite") => budget.clamp(512, 24_576),
        _ if is("flash") => budget.clamp(1, 24_576),
        _ if is("pro") => budget.clamp(128, 32_768),
        _ => budget,
    }
}

fn level(effort: &str, losses: &mut Losses) -> String {
    match effort {
        "minimal" | "low" | "medium" | "high" => effort.to_ascii_uppercase(),
        _ => {
            losses.note("reasoning.effort");
            "HIGH".to_owned()
        }
    }
}
