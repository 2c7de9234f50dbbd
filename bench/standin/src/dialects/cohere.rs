//! `/v2/chat`

use super::{Piece, number};
use crate::reply::{Asked, Finish, Reply};
use serde_json::{Value, json};

pub(super) fn read(asked: &mut Asked, body: &Value) {
    super::openai::read(asked, body);
    asked.max_tokens = number(&body["max_tokens"]);
    if body["tool_choice"] == "NONE" {
        asked.tools.clear();
    }
    let format = &body["response_format"];
    asked.schema = format.get("json_schema").or_else(|| format.get("schema")).cloned();
}

fn finish(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "COMPLETE",
        Finish::Length => "MAX_TOKENS",
        Finish::Tools => "TOOL_CALL",
    }
}

fn usage(reply: &Reply) -> Option<Value> {
    reply.usage.map(|used| {
        let tokens = json!({"input_tokens": used.input, "output_tokens": used.output});
        json!({"billed_units": tokens, "tokens": tokens, "cached_tokens": used.cached})
    })
}

pub(super) fn whole(reply: &Reply) -> Value {
    let mut content = Vec::new();
    if !reply.thoughts.is_empty() {
        content.push(json!({"type": "thinking", "thinking": reply.thoughts.concat()}));
    }
    let mut message = json!({"role": "assistant"});
    if reply.calls.is_empty() {
        content.push(json!({"type": "text", "text": reply.whole_text()}));
    } else {
        let calls = reply.calls.iter().map(|call| {
            json!({"id": call.id, "type": "function",
                "function": {"name": call.name, "arguments": call.whole()}})
        });
        message["tool_calls"] = calls.collect();
    }
    if !content.is_empty() {
        message["content"] = content.into();
    }
    let mut answer =
        json!({"id": reply.id, "message": message, "finish_reason": finish(reply.finish)});
    if let Some(usage) = usage(reply) {
        answer["usage"] = usage;
    }
    answer
}

pub(super) fn stream(reply: &Reply) -> Vec<Piece> {
    let event = |kind: &str, index: usize, message: Value| {
        Piece::named(&json!({"type": kind, "index": index, "delta": {"message": message}}))
    };
    let start = json!({"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []});
    let begin = json!({"type": "message-start", "id": reply.id, "delta": {"message": start}});
    let mut pieces = vec![Piece::named(&begin)];
    let mut index = 0;
    for (kind, member, parts) in
        [("thinking", "thinking", &reply.thoughts), ("text", "text", &reply.text)]
    {
        if parts.is_empty() {
            continue;
        }
        pieces.push(event("content-start", index, json!({"content": {"type": kind, member: ""}})));
        for part in parts {
            let piece = event("content-delta", index, json!({"content": {member: part}}));
            pieces.push(if kind == "thinking" { piece.thought() } else { piece.token() });
        }
        pieces.push(Piece::named(&json!({"type": "content-end", "index": index})));
        index += 1;
    }
    for (index, call) in reply.calls.iter().enumerate() {
        let begin = json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}});
        pieces.push(event("tool-call-start", index, json!({"tool_calls": begin})));
        for text in &call.arguments {
            let more = json!({"tool_calls": {"function": {"arguments": text}}});
            pieces.push(event("tool-call-delta", index, more).token());
        }
        pieces.push(Piece::named(&json!({"type": "tool-call-end", "index": index})));
    }
    let mut end = json!({"finish_reason": finish(reply.finish)});
    if let Some(usage) = usage(reply) {
        end["usage"] = usage;
    }
    pieces.push(Piece::named(&json!({"type": "message-end", "delta": end})));
    pieces
}
