//! `/v1/chat/completions`

use super::{CREATED, Piece, list, number};
use crate::reply::{Asked, Finish, Reply, Usage};
use serde_json::{Value, json};

pub(super) fn read(asked: &mut Asked, body: &Value) {
    asked.wants_usage = body["stream_options"]["include_usage"] == true;
    asked.max_tokens =
        number(&body["max_completion_tokens"]).or_else(|| number(&body["max_tokens"]));
    asked.tools = list(&body["tools"])
        .map(|tool| &tool["function"])
        .map(|tool| {
            (tool["name"].as_str().unwrap_or_default().to_owned(), tool["parameters"].clone())
        })
        .collect();
    if body["tool_choice"] == "none" {
        asked.tools.clear();
    }
    asked.has_results = list(&body["messages"]).any(|message| message["role"] == "tool");
    let format = &body["response_format"];
    asked.json = format["type"] == "json_object";
    asked.schema = format["json_schema"].get("schema").cloned();
}

fn finish(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::Tools => "tool_calls",
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
    })
}

pub(super) fn whole(reply: &Reply) -> Value {
    let calls: Vec<_> = reply
        .calls
        .iter()
        .map(|call| {
            json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.whole()}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": reply.whole_text(), "refusal": null});
    if !calls.is_empty() {
        message["content"] = Value::Null;
        message["tool_calls"] = calls.into();
    }
    if !reply.thoughts.is_empty() {
        message["reasoning_content"] = reply.thoughts.concat().into();
    }
    let mut answer = json!({
        "id": format!("chatcmpl-{}", reply.id), "object": "chat.completion", "created": CREATED, "model": reply.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish(reply.finish)}],
        "service_tier": "default", "system_fingerprint": "fp_standin",
    });
    if let Some(used) = &reply.usage {
        answer["usage"] = usage(used);
    }
    answer
}

pub(super) fn stream(reply: &Reply, wants_usage: bool, pings: bool) -> Vec<Piece> {
    let chunk = |choices: Value| {
        json!({"id": format!("chatcmpl-{}", reply.id), "object": "chat.completion.chunk", "created": CREATED,
            "model": reply.model, "system_fingerprint": "fp_standin", "choices": choices})
    };
    let delta = |delta: Value, finish: Value| {
        Piece::event(&chunk(
            json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]),
        ))
    };
    let mut pieces =
        vec![delta(json!({"role": "assistant", "content": "", "refusal": null}), Value::Null)];
    for thought in &reply.thoughts {
        pieces.push(delta(json!({"reasoning_content": thought}), Value::Null).thought());
    }
    for text in &reply.text {
        if pings {
            pieces.push(Piece { bytes: ": ping\n\n".into(), tokens: 0, thoughts: 0 });
        }
        pieces.push(delta(json!({"content": text}), Value::Null).token());
    }
    for (index, call) in reply.calls.iter().enumerate() {
        let begin = json!({"index": index, "id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": ""}});
        pieces.push(delta(json!({"tool_calls": [begin]}), Value::Null));
        for text in &call.arguments {
            let more = json!({"index": index, "function": {"arguments": text}});
            pieces.push(delta(json!({"tool_calls": [more]}), Value::Null).token());
        }
    }
    pieces.push(delta(json!({}), finish(reply.finish).into()));
    if let Some(used) = reply.usage.filter(|_| wants_usage) {
        let mut last = chunk(json!([]));
        last["usage"] = usage(&used);
        pieces.push(Piece::event(&last));
    }
    pieces.push(Piece { bytes: "data: [DONE]\n\n".into(), tokens: 0, thoughts: 0 });
    pieces
}

pub(super) fn fault(status: u16, code: Option<&str>, message: &str) -> Value {
    let (kind, usual) = match status {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        404 => ("invalid_request_error", Some("model_not_found")),
        429 => ("requests", Some("rate_limit_exceeded")),
        500.. => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code.or(usual)}})
}
