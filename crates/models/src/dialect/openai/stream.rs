//! Reads and writes streams of chunks.

use super::answer::{block, read_finish, read_usage, write_finish, write_usage};
use super::{fault, read};
use crate::chat::{Chat, Delta, Fault, Finish};
use crate::dialect::{StreamReader, StreamWriter, Unreadable, faults, sse};
use crate::events::Event;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use types::models::TokenUsage;

/// Upper bound for the number of an answer; no provider gives that many.
const CHOICES_MAX: u64 = 128;
/// The number given to a call in the old form, before there were `tool_calls`: there was at most
/// one, without a number.
const OLD_CALL: u64 = u64::MAX;

#[derive(Debug, Default)]
pub(super) struct Reader {
    has_begun: bool,
    /// By the answer and the provider's number of a call: its id, and our number.
    calls: BTreeMap<(u32, u64), (String, u32)>,
    refuses: BTreeSet<u32>,
    /// How many calls each answer has so far.
    counts: BTreeMap<u32, u32>,
}

impl StreamReader for Reader {
    fn read(&mut self, event: &Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), Unreadable> {
        if event.data.trim() == "[DONE]" {
            deltas.push(Delta::End);
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(event.data)
            .map_err(|_| Unreadable("an event of its stream is not JSON".to_owned()))?;
        if !chunk["error"].is_null() {
            let mut fault = faults::of_json(0, &chunk);
            fault.status = faults::status_of(fault.kind.as_deref(), fault.code.as_deref());
            deltas.push(Delta::Fault(fault));
            return Ok(());
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        // Azure's first chunk only reports its filter, with an empty id and no date.
        let says_choices = chunk["choices"].as_array().is_some_and(|all| !all.is_empty());
        let (id, model) = (text(&chunk["id"]), text(&chunk["model"]));
        if !self.has_begun && (!id.is_empty() || says_choices || chunk["usage"].is_object()) {
            self.has_begun = true;
            let created = chunk["created"].as_i64().filter(|created| *created != 0);
            deltas.push(Delta::Begin { id, model, created });
        }
        for choice in chunk["choices"].as_array().map(Vec::as_slice).unwrap_or(&[]) {
            self.choice(choice, deltas)?;
        }
        if chunk["usage"].is_object() {
            deltas.push(Delta::Usage(read_usage(&chunk["usage"])));
        }
        Ok(())
    }
}

impl Reader {
    fn choice(&mut self, value: &Value, deltas: &mut Vec<Delta>) -> Result<(), Unreadable> {
        let index = value["index"].as_u64().unwrap_or(0);
        if index >= CHOICES_MAX {
            return Err(Unreadable(format!("there is an answer {index}")));
        }
        let choice = u32::try_from(index).unwrap_or(0);
        let delta = &value["delta"];
        let text = |name: &str| {
            let text = delta[name].as_str().filter(|text| !text.is_empty());
            text.map(str::to_owned)
        };
        if let Some(text) = text("reasoning_content").or_else(|| text("reasoning")) {
            deltas.push(Delta::Reasoning { choice, text });
        }
        for block in delta["thinking_blocks"].as_array().map(Vec::as_slice).unwrap_or(&[]) {
            let owned = |value: &Value| value.as_str().map(str::to_owned);
            let (signature, sealed) = (owned(&block["signature"]), owned(&block["data"]));
            if signature.is_some() || sealed.is_some() {
                deltas.push(Delta::ReasoningProof { choice, signature, sealed });
            }
        }
        match &delta["content"] {
            Value::Array(parts) => parts.iter().for_each(|part| spoken(choice, part, deltas)),
            _ => deltas.extend(text("content").map(|text| Delta::Text { choice, text })),
        }
        if let Some(text) = text("refusal") {
            self.refuses.insert(choice);
            deltas.push(Delta::Refusal { choice, text });
        }
        for call in delta["tool_calls"].as_array().map(Vec::as_slice).unwrap_or(&[]) {
            self.call(choice, call, deltas)?;
        }
        if delta["function_call"].is_object() {
            let call = json!({"index": OLD_CALL, "function": delta["function_call"]});
            self.call(choice, &call, deltas)?;
        }
        if let Some(word) = value["finish_reason"].as_str() {
            let finish = match read_finish(word) {
                Finish::Stop if self.refuses.contains(&choice) => Finish::Refused,
                Finish::Stop if self.counts.contains_key(&choice) => Finish::ToolCalls,
                finish => finish,
            };
            deltas.push(Delta::Finish { choice, finish });
        }
        Ok(())
    }

    fn call(
        &mut self,
        choice: u32,
        call: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Unreadable> {
        let id = call["id"].as_str().unwrap_or_default();
        let counted = u64::from(self.counts.get(&choice).copied().unwrap_or(0));
        // Some providers do not number calls, and send each as a whole.
        let unnumbered = if id.is_empty() { counted.saturating_sub(1) } else { counted };
        let key = (choice, call["index"].as_u64().unwrap_or(unnumbered));
        let function = &call["function"];
        let known = self.calls.get(&key).filter(|(known, _)| id.is_empty() || id == known);
        let part = match known {
            Some((_, part)) => *part,
            None => {
                let Some(name) = function["name"].as_str() else {
                    return Err(Unreadable("a call of a tool has no name".to_owned()));
                };
                let count = self.counts.entry(choice).or_default();
                let part = *count;
                *count += 1;
                self.calls.insert(key, (id.to_owned(), part));
                let (id, name, signature) = (id.to_owned(), name.to_owned(), read::signature(call));
                deltas.push(Delta::ToolBegin { choice, part, id, name, signature });
                part
            }
        };
        let text = function["arguments"].as_str().filter(|text| !text.is_empty());
        deltas.extend(text.map(|text| Delta::ToolArguments {
            choice,
            part,
            text: text.to_owned(),
        }));
        Ok(())
    }
}

/// Reads one item of a list of parts, as Mistral streams.
fn spoken(choice: u32, part: &Value, deltas: &mut Vec<Delta>) {
    if let Some(text) = part["text"].as_str() {
        deltas.push(Delta::Text { choice, text: text.to_owned() });
    }
    for thought in part["thinking"].as_array().map(Vec::as_slice).unwrap_or(&[]) {
        if let Some(text) = thought["text"].as_str() {
            deltas.push(Delta::Reasoning { choice, text: text.to_owned() });
        }
    }
}

#[derive(Debug)]
pub(super) struct Writer {
    says_usage: bool,
    id: String,
    model: String,
    created: i64,
    usage: Option<TokenUsage>,
    begun: BTreeSet<u32>,
    refuses: BTreeSet<u32>,
    /// What was thought since the last proof; the next proof repeats it.
    thought: BTreeMap<u32, String>,
}

impl Writer {
    pub(super) fn new(asked: &Chat) -> Self {
        Self {
            says_usage: asked.stream_usage,
            id: String::new(),
            model: asked.model.clone(),
            created: 0,
            usage: None,
            begun: BTreeSet::new(),
            refuses: BTreeSet::new(),
            thought: BTreeMap::new(),
        }
    }

    fn envelope(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn chunk(&mut self, choice: u32, mut delta: Value, finish: Option<&str>, out: &mut BytesMut) {
        if self.begun.insert(choice)
            && let Some(delta) = delta.as_object_mut()
        {
            delta.insert("role".to_owned(), json!("assistant"));
        }
        let choices = json!([{
            "index": choice, "delta": delta, "logprobs": null, "finish_reason": finish,
        }]);
        sse::data(out, &self.envelope(choices));
    }

    fn end(&mut self, out: &mut BytesMut) {
        if let Some(usage) = self.usage.filter(|_| self.says_usage) {
            let mut chunk = self.envelope(json!([]));
            chunk["usage"] = write_usage(usage);
            sse::data(out, &chunk);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn fault(fault: &Fault, out: &mut BytesMut) {
        sse::data(out, &fault::write(fault));
    }
}

impl StreamWriter for Writer {
    fn write(&mut self, delta: &Delta, out: &mut BytesMut) {
        match delta {
            Delta::Begin { id, model, created } => {
                (self.id, self.model) = (id.clone(), model.clone());
                self.created = created.unwrap_or(0);
                self.chunk(0, json!({"content": ""}), None, out);
            }
            Delta::Text { choice, text } => {
                self.chunk(*choice, json!({"content": text}), None, out)
            }
            Delta::Refusal { choice, text } => {
                self.refuses.insert(*choice);
                self.chunk(*choice, json!({"refusal": text}), None, out);
            }
            Delta::Reasoning { choice, text } => {
                self.thought.entry(*choice).or_default().push_str(text);
                self.chunk(*choice, json!({"reasoning_content": text}), None, out);
            }
            Delta::ReasoningProof { choice, signature, sealed } => {
                let thought = self.thought.remove(choice).unwrap_or_default();
                let block = block(&thought, signature.as_deref(), sealed.as_deref());
                self.chunk(*choice, json!({"thinking_blocks": [block]}), None, out);
            }
            Delta::ToolBegin { choice, part, id, name, signature } => {
                let mut call = json!({
                    "index": part, "id": id, "type": "function",
                    "function": {"name": name, "arguments": ""},
                });
                if let Some(signature) = signature {
                    call["extra_content"] = json!({"google": {"thought_signature": signature}});
                }
                self.chunk(*choice, json!({"tool_calls": [call]}), None, out);
            }
            Delta::ToolArguments { choice, part, text } => {
                let call = json!({"index": part, "function": {"arguments": text}});
                self.chunk(*choice, json!({"tool_calls": [call]}), None, out);
            }
            Delta::Finish { choice, finish } => {
                let refuses = self.refuses.contains(choice);
                self.chunk(*choice, json!({}), Some(write_finish(finish, refuses)), out);
            }
            Delta::Usage(usage) => self.usage = Some(*usage),
            Delta::Ping => sse::comment(out),
            Delta::Fault(fault) => Self::fault(fault, out),
            Delta::End => self.end(out),
        }
    }
}
