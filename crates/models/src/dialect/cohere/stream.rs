//! Reads and writes streams of named events, which open and close each content and call.

use super::answer;
use crate::chat::{Delta, Finish};
use crate::dialect::members::{At, Members};
use crate::dialect::{StreamReader, StreamWriter, Unreadable, faults, sse};
use crate::events::Event;
use bytes::BytesMut;
use serde_json::{Value, json};
use types::models::TokenUsage;

#[derive(Debug, Default)]
pub(super) struct Reader {
    has_begun: bool,
}

impl StreamReader for Reader {
    fn read(&mut self, event: &Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), Unreadable> {
        let data = event.data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let value: Value = serde_json::from_str(data)
            .map_err(|_| Unreadable("an event of the stream is no JSON".to_owned()))?;
        let mut members = Members::of(&value, At::BODY)?;
        let Some(kind) = members.text("type")?.or(event.name) else {
            deltas.push(Delta::Fault(faults::of_json(502, &value)));
            return Ok(());
        };
        let part = u32::try_from(members.count("index")?.unwrap_or(0)).unwrap_or(u32::MAX);
        let (delta, message) = (&value["delta"], &value["delta"]["message"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match kind {
            "message-start" if !self.has_begun => {
                self.has_begun = true;
                let id = members.owned("id")?.unwrap_or_default();
                deltas.push(Delta::Begin { id, model: String::new(), created: None });
            }
            "content-start" | "content-delta" => {
                let content = &message["content"];
                let (said, thought) = (text(&content["text"]), text(&content["thinking"]));
                if !thought.is_empty() {
                    deltas.push(Delta::Reasoning { choice: 0, text: thought });
                }
                if !said.is_empty() {
                    deltas.push(Delta::Text { choice: 0, text: said });
                }
            }
            "tool-plan-delta" => {
                let text = text(&message["tool_plan"]);
                deltas.push(Delta::Reasoning { choice: 0, text });
            }
            "tool-call-start" => {
                let call = &message["tool_calls"];
                let (id, name) = (text(&call["id"]), text(&call["function"]["name"]));
                deltas.push(Delta::ToolBegin { choice: 0, part, id, name, signature: None });
                self.arguments(part, call, deltas);
            }
            "tool-call-delta" => self.arguments(part, &message["tool_calls"], deltas),
            "message-end" => end(delta, deltas),
            // The ends of contents and calls, and citations.
            _ => {}
        }
        Ok(())
    }
}

impl Reader {
    fn arguments(&self, part: u32, call: &Value, deltas: &mut Vec<Delta>) {
        match call["function"]["arguments"].as_str() {
            None | Some("") => {}
            Some(text) => {
                deltas.push(Delta::ToolArguments { choice: 0, part, text: text.to_owned() });
            }
        }
    }
}

fn end(delta: &Value, deltas: &mut Vec<Delta>) {
    let usage = delta.get("usage").filter(|usage| usage.is_object()).map(answer::usage);
    if !delta["error"].is_null() {
        deltas.extend(usage.map(Delta::Usage));
        deltas.push(Delta::Fault(faults::of_json(502, delta)));
        return;
    }
    let finish = delta["finish_reason"].as_str().map_or(Finish::Stop, answer::read_finish);
    deltas.push(Delta::Finish { choice: 0, finish });
    deltas.extend(usage.map(Delta::Usage));
    deltas.push(Delta::End);
}

/// Writes the first answer; a stream has no place for others.
#[derive(Debug, Default)]
pub(super) struct Writer {
    open: Open,
    contents: u32,
    finish: Option<Finish>,
    usage: Option<TokenUsage>,
    is_over: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Open {
    #[default]
    Nothing,
    Text,
    Thinking,
    Call(u32),
}

impl StreamWriter for Writer {
    fn write(&mut self, delta: &Delta, out: &mut BytesMut) {
        if self.is_over {
            return;
        }
        match delta {
            Delta::Begin { id, .. } => {
                let message = json!({
                    "role": "assistant", "content": [], "tool_plan": "",
                    "tool_calls": [], "citations": [],
                });
                let start =
                    json!({ "type": "message-start", "id": id, "delta": { "message": message } });
                sse::named(out, "message-start", &start);
            }
            Delta::Text { choice: 0, text } | Delta::Refusal { choice: 0, text } => {
                self.open(Open::Text, out);
                self.piece(
                    "content-delta",
                    self.content(),
                    json!({ "content": { "text": text } }),
                    out,
                );
            }
            Delta::Reasoning { choice: 0, text } => {
                self.open(Open::Thinking, out);
                let piece = json!({ "content": { "thinking": text } });
                self.piece("content-delta", self.content(), piece, out);
            }
            Delta::ToolBegin { choice: 0, part, id, name, .. } => {
                self.close(out);
                self.open = Open::Call(*part);
                let call = json!({
                    "id": id, "type": "function",
                    "function": { "name": name, "arguments": "" },
                });
                self.piece("tool-call-start", *part, json!({ "tool_calls": call }), out);
            }
            Delta::ToolArguments { choice: 0, part, text } => {
                let call = json!({ "function": { "arguments": text } });
                self.piece("tool-call-delta", *part, json!({ "tool_calls": call }), out);
            }
            Delta::Finish { choice: 0, finish } => {
                self.close(out);
                self.finish = Some(finish.clone());
            }
            Delta::Usage(usage) => self.usage = Some(*usage),
            Delta::Ping => sse::comment(out),
            Delta::Fault(fault) => self.end("ERROR", Some(&fault.message), out),
            Delta::End => {
                self.close(out);
                let word = self.finish.take();
                self.end(answer::write_finish(&word.unwrap_or(Finish::Stop)), None, out);
            }
            _ => {}
        }
    }
}

impl Writer {
    /// Returns the number of the open content.
    fn content(&self) -> u32 {
        self.contents.saturating_sub(1)
    }

    fn open(&mut self, wanted: Open, out: &mut BytesMut) {
        if self.open == wanted {
            return;
        }
        self.close(out);
        let content = match wanted {
            Open::Thinking => json!({ "type": "thinking", "thinking": "" }),
            _ => json!({ "type": "text", "text": "" }),
        };
        self.contents += 1;
        self.open = wanted;
        self.piece("content-start", self.content(), json!({ "content": content }), out);
    }

    fn close(&mut self, out: &mut BytesMut) {
        let (kind, index) = match std::mem::take(&mut self.open) {
            Open::Nothing => return,
            Open::Text | Open::Thinking => ("content-end", self.content()),
            Open::Call(part) => ("tool-call-end", part),
        };
        sse::named(out, kind, &json!({ "type": kind, "index": index }));
    }

    fn piece(&self, kind: &str, index: u32, message: Value, out: &mut BytesMut) {
        let delta = json!({ "message": message });
        sse::named(out, kind, &json!({ "type": kind, "index": index, "delta": delta }));
    }

    fn end(&mut self, finish: &str, error: Option<&str>, out: &mut BytesMut) {
        self.is_over = true;
        let mut delta = json!({ "finish_reason": finish });
        if let Some(usage) = &self.usage {
            delta["usage"] = answer::write_usage(usage);
        }
        if let Some(error) = error {
            delta["error"] = error.into();
        }
        sse::named(out, "message-end", &json!({ "type": "message-end", "delta": delta }));
    }
}
