//! `…:generateContent`

use super::{Piece, list, number};
use crate::reply::{Asked, Finish, Reply};
use bytes::Bytes;
use serde_json::{Value, json};

pub(super) fn read(asked: &mut Asked, path: &str, body: &Value) {
    let name = path.rsplit_once(':').map_or(path, |(name, _)| name);
    let name = name.rsplit_once("models/").map_or(name, |(_, name)| name);
    asked.model = name.to_owned();
    let settings = &body["generationConfig"];
    asked.max_tokens = number(&settings["maxOutputTokens"]);
    let schema = settings.get("responseSchema").or_else(|| settings.get("responseJsonSchema"));
    asked.schema = schema.cloned();
    asked.json = settings["responseMimeType"] == "application/json";
    asked.tools = list(&body["tools"])
        .flat_map(|tool| list(&tool["functionDeclarations"]))
        .map(|tool| {
            // The package on PyPI sends the protocol's name.
            let names = ["parameters", "parametersJsonSchema", "parameters_json_schema"];
            let schema = names.iter().find_map(|name| tool.get(*name));
            let name = tool["name"].as_str().unwrap_or_default().to_owned();
            (name, schema.cloned().unwrap_or_default())
        })
        .collect();
    if body["toolConfig"]["functionCallingConfig"]["mode"] == "NONE" {
        asked.tools.clear();
    }
    asked.has_results = list(&body["contents"])
        .any(|content| list(&content["parts"]).any(|part| part.get("functionResponse").is_some()));
}

/// Reasoning is not in the count of candidates.
fn usage(reply: &Reply) -> Option<Value> {
    reply.usage.map(|used| {
        json!({"promptTokenCount": used.input, "candidatesTokenCount": used.output - used.reasoning,
            "totalTokenCount": used.input + used.output, "cachedContentTokenCount": used.cached,
            "thoughtsTokenCount": used.reasoning})
    })
}

fn answer(reply: &Reply, parts: &[Value], finish: Option<Finish>) -> Value {
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] =
            if finish == Finish::Length { "MAX_TOKENS" } else { "STOP" }.into();
    }
    json!({"candidates": [candidate], "modelVersion": reply.model, "responseId": reply.id})
}

fn calls(reply: &Reply) -> impl Iterator<Item = (Value, u64)> {
    reply.calls.iter().map(|call| {
        let arguments: Value = serde_json::from_str(&call.whole()).unwrap_or_default();
        let part = json!({"functionCall": {"name": call.name, "args": arguments}});
        (part, call.arguments.len() as u64)
    })
}

pub(super) fn whole(reply: &Reply) -> Value {
    let mut parts = Vec::new();
    if !reply.thoughts.is_empty() {
        parts.push(json!({"text": reply.thoughts.concat(), "thought": true}));
    }
    if reply.calls.is_empty() {
        parts.push(json!({"text": reply.whole_text()}));
    }
    parts.extend(calls(reply).map(|(part, _)| part));
    let mut answer = answer(reply, &parts, Some(reply.finish));
    if let Some(usage) = usage(reply) {
        answer["usageMetadata"] = usage;
    }
    answer
}

/// Returns a stream as events, or as a JSON list that grows.
pub(super) fn stream(reply: &Reply, as_events: bool) -> Vec<Piece> {
    let mut told = Vec::new();
    for text in &reply.thoughts {
        told.push((answer(reply, &[json!({"text": text, "thought": true})], None), 1, 1));
    }
    for text in &reply.text {
        told.push((answer(reply, &[json!({"text": text})], None), 1, 0));
    }
    for (part, tokens) in calls(reply) {
        told.push((answer(reply, &[part], None), tokens, 0));
    }
    told.push((answer(reply, &[json!({"text": ""})], Some(reply.finish)), 0, 0));
    if let Some((last, ..)) = told.last_mut()
        && let Some(usage) = usage(reply)
    {
        last["usageMetadata"] = usage;
    }
    let count = told.len();
    let pieces = told.into_iter().enumerate().map(|(at, (value, tokens, thoughts))| {
        let bytes: Bytes = match (as_events, at) {
            (true, _) => format!("data: {value}\r\n\r\n").into(),
            (false, 0) => format!("[{value}").into(),
            (false, _) => format!(",\r\n{value}{}", if at + 1 == count { "]" } else { "" }).into(),
        };
        Piece { bytes, tokens, thoughts }
    });
    pieces.collect()
}

pub(super) fn fault(status: u16, message: &str) -> Value {
    let word = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 | 529 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    json!({"error": {"code": status, "message": message, "status": word}})
}
