//! `/v1/messages`

use super::{Piece, list, number};
use crate::reply::{Asked, Finish, Reply};
use serde_json::{Value, json};

pub(super) fn read(asked: &mut Asked, body: &Value) {
    asked.max_tokens = number(&body["max_tokens"]);
    asked.tools = list(&body["tools"])
        .filter(|tool| tool.get("input_schema").is_some())
        .map(|tool| {
            (tool["name"].as_str().unwrap_or_default().to_owned(), tool["input_schema"].clone())
        })
        .collect();
    if body["tool_choice"]["type"] == "none" {
        asked.tools.clear();
    }
    asked.has_results = list(&body["messages"])
        .any(|message| list(&message["content"]).any(|part| part["type"] == "tool_result"));
    asked.schema = body["output_config"]["format"]
        .get("schema")
        .or_else(|| body["output_format"].get("schema"))
        .cloned();
}

fn finish(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
        Finish::Tools => "tool_use",
    }
}

/// The dialect's input count leaves out what was in a cache.
fn usage(reply: &Reply) -> Value {
    reply.usage.map_or(Value::Null, |used| {
        json!({"input_tokens": used.input - used.cached, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": used.cached, "output_tokens": used.output, "service_tier": "standard"})
    })
}

fn blocks(reply: &Reply) -> Vec<(Value, &[String])> {
    let mut blocks = Vec::new();
    if !reply.thoughts.is_empty() {
        let block =
            json!({"type": "thinking", "thinking": reply.thoughts.concat(), "signature": "proof"});
        blocks.push((block, reply.thoughts.as_slice()));
    }
    if reply.calls.is_empty() {
        blocks.push((json!({"type": "text", "text": reply.whole_text()}), reply.text.as_slice()));
    }
    for call in &reply.calls {
        let input: Value = serde_json::from_str(&call.whole()).unwrap_or_default();
        let block = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input});
        blocks.push((block, call.arguments.as_slice()));
    }
    blocks
}

pub(super) fn whole(reply: &Reply) -> Value {
    let content: Vec<_> = blocks(reply).into_iter().map(|(block, _)| block).collect();
    let mut answer = json!({"id": format!("msg_{}", reply.id), "type": "message", "role": "assistant",
        "model": reply.model, "content": content, "stop_reason": finish(reply.finish), "stop_sequence": null});
    if reply.usage.is_some() {
        answer["usage"] = usage(reply);
    }
    answer
}

pub(super) fn stream(reply: &Reply, pings: bool) -> Vec<Piece> {
    let ping = || Piece::named(&json!({"type": "ping"}));
    let mut message = whole(reply);
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    if reply.usage.is_some() {
        message["usage"]["output_tokens"] = 1.into();
    }
    let mut pieces =
        vec![Piece::named(&json!({"type": "message_start", "message": message})), ping()];
    for (index, (block, parts)) in blocks(reply).into_iter().enumerate() {
        let kind = block["type"].as_str().unwrap_or_default();
        let mut empty = block.clone();
        let (member, delta, value) = match kind {
            "thinking" => ("thinking", "thinking_delta", json!("")),
            "tool_use" => ("input", "input_json_delta", json!({})),
            _ => ("text", "text_delta", json!("")),
        };
        empty[member] = value;
        if kind == "thinking" {
            empty["signature"] = "".into();
        }
        pieces.push(Piece::named(
            &json!({"type": "content_block_start", "index": index, "content_block": empty}),
        ));
        let member = if kind == "tool_use" { "partial_json" } else { member };
        for part in parts {
            if pings {
                pieces.push(ping());
            }
            let more = json!({"type": "content_block_delta", "index": index, "delta": {"type": delta, member: part}});
            let piece = Piece::named(&more);
            pieces.push(if kind == "thinking" { piece.thought() } else { piece.token() });
        }
        if kind == "thinking" {
            let proof = json!({"type": "signature_delta", "signature": "proof"});
            pieces.push(Piece::named(
                &json!({"type": "content_block_delta", "index": index, "delta": proof}),
            ));
        }
        pieces.push(Piece::named(&json!({"type": "content_block_stop", "index": index})));
    }
    let mut last = json!({"type": "message_delta", "delta": {"stop_reason": finish(reply.finish), "stop_sequence": null}});
    if let Some(used) = reply.usage {
        last["usage"] = json!({"output_tokens": used.output});
    }
    pieces.push(Piece::named(&last));
    pieces.push(Piece::named(&json!({"type": "message_stop"})));
    pieces
}

pub(super) fn fault(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_standin"})
}
