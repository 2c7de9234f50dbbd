//! Reads and writes streams: blocks one after another, each with a start, deltas and a stop.

use super::answer::{Counts, read_finish, write_finish, write_usage};
use super::proofs::{UNPROVEN, is_proof};
use super::{fault, write};
use crate::chat::{Chat, Delta, Fault, Finish};
use crate::dialect::{StreamReader, StreamWriter, Unreadable, faults, sse};
use crate::events::Event;
use bytes::BytesMut;
use serde_json::{Value, json};
use types::models::TokenUsage;

#[derive(Debug, Default)]
pub(super) struct Reader {
    counts: Counts,
    calls: u32,
    open: Open,
}

/// The block that is being read.
#[derive(Debug, Default)]
enum Open {
    #[default]
    Other,
    Thinking {
        signature: String,
    },
    Call {
        part: u32,
        has_arguments: bool,
    },
}

impl StreamReader for Reader {
    fn read(&mut self, event: &Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), Unreadable> {
        let value: Value = serde_json::from_str(event.data)
            .map_err(|_| Unreadable("an event of its stream is not JSON".to_owned()))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match value["type"].as_str().or(event.name).unwrap_or_default() {
            "message_start" => {
                let message = &value["message"];
                let (id, model) = (text(&message["id"]), text(&message["model"]));
                deltas.push(Delta::Begin { id, model, created: None });
                self.counts.read(&message["usage"]);
                deltas.push(Delta::Usage(self.counts.usage()));
            }
            "content_block_start" => self.start(&value["content_block"], deltas)?,
            "content_block_delta" => self.delta(&value["delta"], deltas),
            "content_block_stop" => self.stop(deltas),
            "message_delta" => {
                let delta = &value["delta"];
                if let Some(word) = delta["stop_reason"].as_str() {
                    let finish = read_finish(word, delta["stop_sequence"].as_str());
                    deltas.push(Delta::Finish { choice: 0, finish });
                }
                self.counts.read(&value["usage"]);
                deltas.push(Delta::Usage(self.counts.usage()));
            }
            "message_stop" => deltas.push(Delta::End),
            "ping" => deltas.push(Delta::Ping),
            "error" => {
                let mut fault = faults::of_json(0, &value);
                fault.status = faults::status_of(fault.kind.as_deref(), None);
                deltas.push(Delta::Fault(fault::recognized(fault)));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Reader {
    fn start(&mut self, block: &Value, deltas: &mut Vec<Delta>) -> Result<(), Unreadable> {
        self.open = Open::Other;
        match block["type"].as_str().unwrap_or_default() {
            "text" => say(block["text"].as_str(), deltas, |text| Delta::Text { choice: 0, text }),
            "thinking" => {
                let signature = block["signature"].as_str().unwrap_or_default().to_owned();
                self.open = Open::Thinking { signature };
                let text = block["thinking"].as_str();
                say(text, deltas, |text| Delta::Reasoning { choice: 0, text });
            }
            "redacted_thinking" => {
                let sealed = block["data"].as_str().map(str::to_owned);
                deltas.push(Delta::ReasoningProof { choice: 0, signature: None, sealed });
            }
            "tool_use" => {
                let (Some(id), Some(name)) = (block["id"].as_str(), block["name"].as_str()) else {
                    return Err(Unreadable("a call of a tool has no name".to_owned()));
                };
                let (choice, part) = (0, self.calls);
                self.calls += 1;
                let (id, name) = (id.to_owned(), name.to_owned());
                deltas.push(Delta::ToolBegin { choice, part, id, name, signature: None });
                let whole = block["input"].as_object().filter(|input| !input.is_empty());
                if whole.is_some() {
                    let text = block["input"].to_string();
                    deltas.push(Delta::ToolArguments { choice, part, text });
                }
                self.open = Open::Call { part, has_arguments: whole.is_some() };
            }
            _ => {}
        }
        Ok(())
    }

    fn delta(&mut self, delta: &Value, deltas: &mut Vec<Delta>) {
        match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => {
                say(delta["text"].as_str(), deltas, |text| Delta::Text { choice: 0, text });
            }
            "thinking_delta" => {
                let text = delta["thinking"].as_str();
                say(text, deltas, |text| Delta::Reasoning { choice: 0, text });
            }
            "signature_delta" => {
                if let Open::Thinking { signature } = &mut self.open {
                    signature.push_str(delta["signature"].as_str().unwrap_or_default());
                }
            }
            "input_json_delta" => {
                if let Open::Call { part, has_arguments } = &mut self.open {
                    let part = *part;
                    let text = delta["partial_json"].as_str();
                    *has_arguments |= text.is_some_and(|text| !text.is_empty());
                    say(text, deltas, |text| Delta::ToolArguments { choice: 0, part, text });
                }
            }
            _ => {}
        }
    }

    fn stop(&mut self, deltas: &mut Vec<Delta>) {
        match std::mem::take(&mut self.open) {
            Open::Thinking { signature } if is_proof(&signature) => {
                let signature = Some(signature);
                deltas.push(Delta::ReasoningProof { choice: 0, signature, sealed: None });
            }
            // Other dialects do not take an empty text as a call without arguments.
            Open::Call { part, has_arguments: false } => {
                deltas.push(Delta::ToolArguments { choice: 0, part, text: "{}".to_owned() });
            }
            _ => {}
        }
    }
}

fn say(text: Option<&str>, deltas: &mut Vec<Delta>, delta: impl FnOnce(String) -> Delta) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        deltas.push(delta(text.to_owned()));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    /// A thought whose proof was written.
    Proven,
    Call(u32),
}

#[derive(Debug)]
pub(super) struct Writer {
    model: String,
    id: String,
    open: Option<Kind>,
    index: u32,
    finish: Finish,
    usage: TokenUsage,
    is_broken: bool,
}

impl Writer {
    pub(super) fn new(asked: &Chat) -> Self {
        Self {
            model: asked.model.clone(),
            id: String::new(),
            open: None,
            index: 0,
            finish: Finish::Stop,
            usage: TokenUsage::default(),
            is_broken: false,
        }
    }

    fn event(value: &Value, out: &mut BytesMut) {
        sse::named(out, value["type"].as_str().unwrap_or_default(), value);
    }

    fn close(&mut self, out: &mut BytesMut) {
        if self.open == Some(Kind::Thinking) {
            let unproven = json!({"type": "signature_delta", "signature": UNPROVEN});
            self.delta(unproven, out);
        }
        if self.open.take().is_some() {
            Self::event(&json!({"type": "content_block_stop", "index": self.index}), out);
            self.index += 1;
        }
    }

    fn start(&mut self, kind: Kind, block: Value, out: &mut BytesMut) {
        self.close(out);
        self.open = Some(kind);
        let event = json!({
            "type": "content_block_start", "index": self.index, "content_block": block,
        });
        Self::event(&event, out);
    }

    fn delta(&mut self, delta: Value, out: &mut BytesMut) {
        let event = json!({"type": "content_block_delta", "index": self.index, "delta": delta});
        Self::event(&event, out);
    }

    fn text(&mut self, text: &str, out: &mut BytesMut) {
        if self.open != Some(Kind::Text) {
            self.start(Kind::Text, json!({"type": "text", "text": ""}), out);
        }
        self.delta(json!({"type": "text_delta", "text": text}), out);
    }

    fn think(&mut self, out: &mut BytesMut) {
        if self.open != Some(Kind::Thinking) {
            let block = json!({"type": "thinking", "thinking": "", "signature": ""});
            self.start(Kind::Thinking, block, out);
        }
    }

    /// Writes the proof of a thought and ends it.
    fn prove(&mut self, signature: Option<&str>, sealed: Option<&str>, out: &mut BytesMut) {
        match (signature, sealed) {
            (None, Some(data)) if self.open != Some(Kind::Thinking) => {
                let block = json!({"type": "redacted_thinking", "data": data});
                self.start(Kind::Proven, block, out);
            }
            (Some(proof), _) | (None, Some(proof)) => {
                self.think(out);
                self.delta(json!({"type": "signature_delta", "signature": proof}), out);
                self.open = Some(Kind::Proven);
            }
            (None, None) => {}
        }
        self.close(out);
    }

    fn call(&mut self, part: u32, id: &str, name: &str, out: &mut BytesMut) {
        let id = match id {
            "" => format!("toolu_{}_{part}", write::id(&self.id)),
            id => write::id(id).into_owned(),
        };
        let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
        self.start(Kind::Call(part), block, out);
    }

    fn arguments(&mut self, part: u32, text: &str, out: &mut BytesMut) {
        if self.open == Some(Kind::Call(part)) {
            self.delta(json!({"type": "input_json_delta", "partial_json": text}), out);
            return;
        }
        let message = "the provider's calls of tools are mixed in its stream".to_owned();
        self.fault(&Fault { status: 502, message, ..Fault::default() }, out);
    }

    fn fault(&mut self, fault: &Fault, out: &mut BytesMut) {
        self.is_broken = true;
        Self::event(&fault::write(fault), out);
    }

    fn begin(&mut self, id: &str, model: &str, out: &mut BytesMut) {
        (self.id, self.model) = (id.to_owned(), model.to_owned());
        let message = json!({
            "id": id, "type": "message", "role": "assistant", "model": model, "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": write_usage(self.usage),
        });
        Self::event(&json!({"type": "message_start", "message": message}), out);
    }

    fn end(&mut self, out: &mut BytesMut) {
        self.close(out);
        let (reason, sequence) = write_finish(&self.finish);
        let event = json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": write_usage(self.usage),
        });
        Self::event(&event, out);
        Self::event(&json!({"type": "message_stop"}), out);
    }
}

impl StreamWriter for Writer {
    fn write(&mut self, delta: &Delta, out: &mut BytesMut) {
        if self.is_broken {
            return;
        }
        match delta {
            Delta::Begin { id, model, .. } => self.begin(id, model, out),
            Delta::Text { choice: 0, text } | Delta::Refusal { choice: 0, text } => {
                self.text(text, out);
            }
            Delta::Reasoning { choice: 0, text } => {
                self.think(out);
                self.delta(json!({"type": "thinking_delta", "thinking": text}), out);
            }
            Delta::ReasoningProof { choice: 0, signature, sealed } => {
                self.prove(signature.as_deref(), sealed.as_deref(), out);
            }
            Delta::ToolBegin { choice: 0, part, id, name, signature } => {
                // A call has no place for the proof, but a thought before it has.
                self.prove(signature.as_deref(), None, out);
                self.call(*part, id, name, out);
            }
            Delta::ToolArguments { choice: 0, part, text } => self.arguments(*part, text, out),
            Delta::Finish { choice: 0, finish } => {
                self.close(out);
                self.finish = finish.clone();
            }
            Delta::Usage(usage) => self.usage = *usage,
            Delta::Ping => Self::event(&json!({"type": "ping"}), out),
            Delta::Fault(fault) => self.fault(fault, out),
            Delta::End => self.end(out),
            // A request in this dialect asks for one answer.
            Delta::Text { .. }
            | Delta::Refusal { .. }
            | Delta::Reasoning { .. }
            | Delta::ReasoningProof { .. }
            | Delta::ToolBegin { .. }
            | Delta::ToolArguments { .. }
            | Delta::Finish { .. } => {}
        }
    }
}
