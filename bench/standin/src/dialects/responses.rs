//! `/v1/responses`

use super::{CREATED, Piece, list, number};
use crate::reply::{Asked, Finish, Reply};
use serde_json::{Value, json};

pub(super) fn read(asked: &mut Asked, body: &Value) {
    asked.max_tokens = number(&body["max_output_tokens"]);
    asked.tools = list(&body["tools"])
        .filter(|tool| tool["type"] == "function")
        .map(|tool| {
            (tool["name"].as_str().unwrap_or_default().to_owned(), tool["parameters"].clone())
        })
        .collect();
    if body["tool_choice"] == "none" {
        asked.tools.clear();
    }
    asked.has_results = list(&body["input"]).any(|item| item["type"] == "function_call_output");
    let format = &body["text"]["format"];
    asked.json = format["type"] == "json_object";
    asked.schema = format.get("schema").cloned();
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// Returns the items of the output, each with its pieces.
fn output(reply: &Reply) -> Vec<(Value, &[String])> {
    let mut items = Vec::new();
    if !reply.thoughts.is_empty() {
        let summary = json!([{"type": "summary_text", "text": reply.thoughts.concat()}]);
        let item =
            json!({"type": "reasoning", "id": format!("rs_{}", reply.id), "summary": summary});
        items.push((item, reply.thoughts.as_slice()));
    }
    if reply.calls.is_empty() {
        let item = json!({"type": "message", "id": format!("msg_{}", reply.id), "status": "completed",
            "role": "assistant", "content": [text_part(&reply.whole_text())]});
        items.push((item, reply.text.as_slice()));
    }
    for call in &reply.calls {
        let item = json!({"type": "function_call", "id": format!("fc_{}", call.id), "call_id": call.id,
            "name": call.name, "arguments": call.whole(), "status": "completed"});
        items.push((item, call.arguments.as_slice()));
    }
    items
}

pub(super) fn whole(reply: &Reply, status: &str) -> Value {
    let (is_done, cut) = (status == "completed", reply.finish == Finish::Length);
    let output: Vec<_> = output(reply).into_iter().map(|(item, _)| item).collect();
    let usage = reply.usage.filter(|_| is_done).map(|used| {
        json!({"input_tokens": used.input, "input_tokens_details": {"cached_tokens": used.cached},
            "output_tokens": used.output, "output_tokens_details": {"reasoning_tokens": used.reasoning},
            "total_tokens": used.input + used.output})
    });
    json!({
        "id": format!("resp_{}", reply.id), "object": "response", "created_at": CREATED,
        "status": if is_done && cut { "incomplete" } else { status },
        "background": false, "error": null,
        "incomplete_details": (is_done && cut).then(|| json!({"reason": "max_output_tokens"})),
        "instructions": null, "max_output_tokens": null, "model": reply.model,
        "output": if is_done { output } else { Vec::new() },
        "parallel_tool_calls": true, "previous_response_id": null, "reasoning": {"effort": null, "summary": null},
        "store": false, "temperature": 1.0, "text": {"format": {"type": "text"}}, "tool_choice": "auto",
        "tools": [], "top_p": 1.0, "truncation": "disabled", "usage": usage, "user": null, "metadata": {},
    })
}

pub(super) fn stream(reply: &Reply) -> Vec<Piece> {
    let mut told = Vec::new();
    let begun = whole(reply, "in_progress");
    for kind in ["response.created", "response.in_progress"] {
        told.push((json!({"type": kind, "response": begun}), 0));
    }
    for (index, (item, pieces)) in output(reply).into_iter().enumerate() {
        one(&mut told, index, &item, pieces);
    }
    let all = whole(reply, "completed");
    let kind = if all["status"] == "incomplete" { "incomplete" } else { "completed" };
    told.push((json!({"type": format!("response.{kind}"), "response": all}), 0));
    told.into_iter()
        .enumerate()
        .map(|(number, (mut event, tokens))| {
            event["sequence_number"] = number.into();
            let is_thought = event["type"] == "response.reasoning_summary_text.delta";
            let piece = Piece::named(&event);
            Piece { tokens, thoughts: if is_thought { tokens } else { 0 }, ..piece }
        })
        .collect()
}

fn one(told: &mut Vec<(Value, u64)>, index: usize, item: &Value, pieces: &[String]) {
    let (kind, id) = (item["type"].as_str().unwrap_or_default(), &item["id"]);
    let event = |kind: &str, more: Value| {
        let mut event = json!({"type": format!("response.{kind}"), "output_index": index});
        if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
            event.extend(more);
        }
        event
    };
    let mut empty = item.clone();
    empty["status"] = "in_progress".into();
    for (name, value) in [("content", json!([])), ("summary", json!([])), ("arguments", json!(""))]
    {
        if item.get(name).is_some() {
            empty[name] = value;
        }
    }
    told.push((event("output_item.added", json!({"item": empty})), 0));
    let text = pieces.concat();
    match kind {
        "message" => {
            let at = |more| merged(json!({"item_id": id, "content_index": 0}), more);
            told.push((event("content_part.added", at(json!({"part": text_part("")}))), 0));
            for piece in pieces {
                let delta = at(json!({"delta": piece, "logprobs": []}));
                told.push((event("output_text.delta", delta), 1));
            }
            told.push((event("output_text.done", at(json!({"text": text, "logprobs": []}))), 0));
            told.push((event("content_part.done", at(json!({"part": text_part(&text)}))), 0));
        }
        "reasoning" => {
            let at = |more| merged(json!({"item_id": id, "summary_index": 0}), more);
            let part = |text: &str| json!({"part": {"type": "summary_text", "text": text}});
            told.push((event("reasoning_summary_part.added", at(part(""))), 0));
            for piece in pieces {
                told.push((event("reasoning_summary_text.delta", at(json!({"delta": piece}))), 1));
            }
            told.push((event("reasoning_summary_text.done", at(json!({"text": text}))), 0));
            told.push((event("reasoning_summary_part.done", at(part(&text))), 0));
        }
        _ => {
            for piece in pieces {
                let delta = json!({"item_id": id, "delta": piece});
                told.push((event("function_call_arguments.delta", delta), 1));
            }
            let done = json!({"item_id": id, "arguments": text, "name": item["name"]});
            told.push((event("function_call_arguments.done", done), 0));
        }
    }
    told.push((event("output_item.done", json!({"item": item})), 0));
}

fn merged(mut one: Value, two: Value) -> Value {
    if let (Value::Object(one), Value::Object(two)) = (&mut one, two) {
        one.extend(two);
    }
    one
}
