//! Reads and writes streams: items one after another, and all of them again at the end.

use super::answer::{self, envelope, incomplete, item_id, output_text, read_finish, read_usage};
use super::write;
use crate::chat::{Chat, Delta, Fault, Finish, Passed, ToolCall};
use crate::dialect::{StreamReader, StreamWriter, Unreadable, faults, sse};
use crate::events::Event;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::models::TokenUsage;

#[derive(Debug, Default)]
pub(super) struct Reader {
    /// By the index of the item: our number of the call, and whether its arguments were passed on.
    calls: BTreeMap<u64, (u32, bool)>,
    refuses: bool,
    has_failed: bool,
}

impl StreamReader for Reader {
    fn read(&mut self, event: &Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), Unreadable> {
        // Some providers end their streams like chat completions.
        if event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let value: Value = serde_json::from_str(event.data)
            .map_err(|_| Unreadable("an event of its stream is not JSON".to_owned()))?;
        let choice = 0;
        let text = value["delta"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        match value["type"].as_str().or(event.name).unwrap_or_default() {
            "response.created" => begin(&value["response"], deltas),
            "response.output_text.delta" => {
                deltas.extend(text.map(|text| Delta::Text { choice, text }));
            }
            "response.refusal.delta" => {
                self.refuses = true;
                deltas.extend(text.map(|text| Delta::Refusal { choice, text }));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                deltas.extend(text.map(|text| Delta::Reasoning { choice, text }));
            }
            "response.reasoning_summary_part.added"
                if value["summary_index"].as_u64().is_some_and(|index| index > 0) =>
            {
                deltas.push(Delta::Reasoning { choice, text: "\n\n".to_owned() });
            }
            "response.output_item.added" => self.item(&value, deltas)?,
            "response.function_call_arguments.delta" => {
                if let (Some(text), Some((part, told))) = (text, self.call(&value)) {
                    *told = true;
                    deltas.push(Delta::ToolArguments { choice, part: *part, text });
                }
            }
            "response.output_item.done" => self.done(&value, deltas)?,
            "response.completed" | "response.incomplete" => self.end(&value["response"], deltas),
            "response.failed" => self.fail(&value["response"], deltas),
            "error" => self.fail(&value, deltas),
            _ => {}
        }
        Ok(())
    }
}

fn begin(response: &Value, deltas: &mut Vec<Delta>) {
    let text = |name: &str| response[name].as_str().unwrap_or_default().to_owned();
    let created = response["created_at"].as_number().and_then(answer::seconds);
    deltas.push(Delta::Begin { id: text("id"), model: text("model"), created });
}

impl Reader {
    fn call(&mut self, value: &Value) -> Option<&mut (u32, bool)> {
        self.calls.get_mut(&value["output_index"].as_u64()?)
    }

    fn item(&mut self, value: &Value, deltas: &mut Vec<Delta>) -> Result<(), Unreadable> {
        let item = &value["item"];
        if item["type"] != "function_call" || self.call(value).is_some() {
            return Ok(());
        }
        let (Some(id), Some(name)) = (item["call_id"].as_str(), item["name"].as_str()) else {
            return Err(Unreadable("a call of a tool has no name".to_owned()));
        };
        let index = value["output_index"].as_u64();
        let index = index.ok_or_else(|| Unreadable("an item has no place".to_owned()))?;
        let part = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        self.calls.insert(index, (part, false));
        deltas.push(Delta::ToolBegin {
            choice: 0,
            part,
            id: id.to_owned(),
            name: name.to_owned(),
            signature: item["signature"].as_str().map(str::to_owned),
        });
        Ok(())
    }

    fn done(&mut self, value: &Value, deltas: &mut Vec<Delta>) -> Result<(), Unreadable> {
        let item = &value["item"];
        match item["type"].as_str().unwrap_or_default() {
            "reasoning" => {
                let sealed = item["encrypted_content"].as_str().filter(|sealed| !sealed.is_empty());
                let sealed = sealed.map(str::to_owned);
                if sealed.is_some() {
                    deltas.push(Delta::ReasoningProof { choice: 0, signature: None, sealed });
                }
            }
            "function_call" => {
                // Some providers send a call as a whole.
                self.item(value, deltas)?;
                let text = item["arguments"].as_str().filter(|text| !text.is_empty());
                if let (Some(text), Some((part, told @ false))) = (text, self.call(value)) {
                    *told = true;
                    let (part, text) = (*part, text.to_owned());
                    deltas.push(Delta::ToolArguments { choice: 0, part, text });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, response: &Value, deltas: &mut Vec<Delta>) {
        let finish = match read_finish(response, &[]) {
            Finish::Stop if !self.calls.is_empty() => Finish::ToolCalls,
            Finish::Stop if self.refuses => Finish::Refused,
            finish => finish,
        };
        deltas.push(Delta::Finish { choice: 0, finish });
        if response["usage"].is_object() {
            deltas.push(Delta::Usage(read_usage(&response["usage"])));
        }
        deltas.push(Delta::End);
    }

    /// Reports a failure once: providers may send it as an event and again at the end.
    fn fail(&mut self, value: &Value, deltas: &mut Vec<Delta>) {
        if !std::mem::replace(&mut self.has_failed, true) {
            let mut fault = faults::of_json(0, value);
            fault.status = faults::status_of(fault.kind.as_deref(), fault.code.as_deref());
            deltas.push(Delta::Fault(fault));
        }
    }
}

/// The item that is being written.
#[derive(Debug)]
enum Open {
    /// A message. `done` holds the parts before the current one.
    Message {
        done: Vec<Value>,
        text: String,
        is_refusal: bool,
    },
    Reasoning {
        text: String,
    },
    Call {
        part: u32,
        call: ToolCall,
    },
}

#[derive(Debug)]
pub(super) struct Writer {
    id: String,
    model: String,
    created: i64,
    sequence: u64,
    open: Option<Open>,
    output: Vec<Value>,
    finish: Finish,
    refuses: bool,
    usage: Option<TokenUsage>,
    is_broken: bool,
}

impl Writer {
    pub(super) fn new(asked: &Chat) -> Self {
        Self {
            id: String::new(),
            model: asked.model.clone(),
            created: 0,
            sequence: 0,
            open: None,
            output: Vec::new(),
            finish: Finish::Stop,
            refuses: false,
            usage: None,
            is_broken: false,
        }
    }

    /// Continues a stream whose events so far were not written here.
    pub(super) fn after(passed: &Passed) -> Self {
        Self {
            id: passed.id.clone(),
            model: passed.model.clone(),
            created: passed.created,
            sequence: passed.next_event,
            ..Self::new(&Chat::default())
        }
    }

    fn event(&mut self, name: &str, mut value: Value, out: &mut BytesMut) {
        value["type"] = json!(name);
        value["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        sse::named(out, name, &value);
    }

    /// Writes an event that belongs to the open item.
    fn of_item(&mut self, name: &str, mut value: Value, out: &mut BytesMut) {
        value["item_id"] = json!(self.item_id());
        value["output_index"] = json!(self.output.len());
        self.event(name, value, out);
    }

    fn item_id(&self) -> String {
        let kind = match self.open {
            Some(Open::Reasoning { .. }) => "rs",
            Some(Open::Call { .. }) => "fc",
            Some(Open::Message { .. }) | None => "msg",
        };
        item_id(kind, &self.id, self.output.len())
    }

    fn start(&mut self, open: Open, out: &mut BytesMut) {
        self.close(out);
        self.open = Some(open);
        let id = self.item_id();
        let item = match &self.open {
            Some(Open::Reasoning { .. }) => write::reasoning_item(Some(&id), "", None),
            Some(Open::Call { call, .. }) => {
                let mut item = answer::function_call(&id, call);
                item["status"] = json!("in_progress");
                item
            }
            Some(Open::Message { .. }) | None => answer::message(&id, "in_progress", Vec::new()),
        };
        let event = json!({"output_index": self.output.len(), "item": item});
        self.event("response.output_item.added", event, out);
    }

    fn close(&mut self, out: &mut BytesMut) {
        if matches!(self.open, Some(Open::Message { .. })) {
            self.close_part(out);
        }
        let id = self.item_id();
        let item = match self.open.take() {
            None => return,
            Some(Open::Message { done, .. }) => answer::message(&id, "completed", done),
            Some(Open::Reasoning { text }) => {
                self.open = Some(Open::Reasoning { text });
                return self.prove(None, out);
            }
            Some(Open::Call { call, part }) => {
                let item = answer::function_call(&id, &call);
                let done = json!({"arguments": call.arguments, "name": call.name});
                self.open = Some(Open::Call { part, call });
                self.of_item("response.function_call_arguments.done", done, out);
                self.open = None;
                item
            }
        };
        self.finish_item(item, out);
    }

    fn finish_item(&mut self, item: Value, out: &mut BytesMut) {
        let event = json!({"output_index": self.output.len(), "item": item});
        self.event("response.output_item.done", event, out);
        self.output.push(item);
    }

    /// Ends a part of a message. A part with an empty text was never begun.
    fn close_part(&mut self, out: &mut BytesMut) {
        let Some(Open::Message { done, text, is_refusal }) = &mut self.open else { return };
        if text.is_empty() {
            return;
        }
        let (index, text, is_refusal) = (done.len(), std::mem::take(text), *is_refusal);
        let (name, member, part) = match is_refusal {
            true => {
                ("response.refusal.done", "refusal", json!({"type": "refusal", "refusal": text}))
            }
            false => ("response.output_text.done", "text", output_text(&text)),
        };
        done.push(part.clone());
        let mut event = json!({"content_index": index});
        event[member] = json!(text);
        if !is_refusal {
            event["logprobs"] = json!([]);
        }
        self.of_item(name, event, out);
        let event = json!({"content_index": index, "part": part});
        self.of_item("response.content_part.done", event, out);
    }

    fn speak(&mut self, more: &str, refuses: bool, out: &mut BytesMut) {
        match &self.open {
            Some(Open::Message { is_refusal, .. }) if *is_refusal != refuses => {
                self.close_part(out)
            }
            Some(Open::Message { .. }) => {}
            _ => {
                let (done, text) = (Vec::new(), String::new());
                self.start(Open::Message { done, text, is_refusal: refuses }, out);
            }
        }
        let Some(Open::Message { done, text, is_refusal }) = &mut self.open else { return };
        let (index, is_first) = (done.len(), text.is_empty());
        *is_refusal = refuses;
        text.push_str(more);
        if is_first {
            let part = match refuses {
                true => json!({"type": "refusal", "refusal": ""}),
                false => output_text(""),
            };
            let event = json!({"content_index": index, "part": part});
            self.of_item("response.content_part.added", event, out);
        }
        let mut event = json!({"content_index": index, "delta": more});
        if refuses {
            return self.of_item("response.refusal.delta", event, out);
        }
        event["logprobs"] = json!([]);
        self.of_item("response.output_text.delta", event, out);
    }

    fn think(&mut self, more: &str, out: &mut BytesMut) {
        if !matches!(self.open, Some(Open::Reasoning { .. })) {
            self.start(Open::Reasoning { text: String::new() }, out);
        }
        let Some(Open::Reasoning { text }) = &mut self.open else { return };
        let is_first = text.is_empty();
        text.push_str(more);
        if is_first {
            let part = json!({"type": "summary_text", "text": ""});
            let event = json!({"summary_index": 0, "part": part});
            self.of_item("response.reasoning_summary_part.added", event, out);
        }
        let event = json!({"summary_index": 0, "delta": more});
        self.of_item("response.reasoning_summary_text.delta", event, out);
    }

    /// Writes the proof of a thought and ends it.
    fn prove(&mut self, proof: Option<&str>, out: &mut BytesMut) {
        if !matches!(self.open, Some(Open::Reasoning { .. })) {
            self.start(Open::Reasoning { text: String::new() }, out);
        }
        let Some(Open::Reasoning { text }) = &self.open else { return };
        let text = text.clone();
        let item = write::reasoning_item(Some(&self.item_id()), &text, proof);
        if !text.is_empty() {
            let done = json!({"summary_index": 0, "text": text});
            self.of_item("response.reasoning_summary_text.done", done, out);
            let part = json!({"type": "summary_text", "text": text});
            let done = json!({"summary_index": 0, "part": part});
            self.of_item("response.reasoning_summary_part.done", done, out);
        }
        self.open = None;
        self.finish_item(item, out);
    }

    fn arguments(&mut self, of: u32, more: &str, out: &mut BytesMut) {
        match &mut self.open {
            Some(Open::Call { part, call }) if *part == of => {
                call.arguments.push_str(more);
                let event = json!({"delta": more});
                self.of_item("response.function_call_arguments.delta", event, out);
            }
            _ => {
                let message = "the provider's calls of tools are mixed in its stream".to_owned();
                self.fault(&Fault { status: 502, message, ..Fault::default() }, out);
            }
        }
    }

    fn begin(&mut self, out: &mut BytesMut) {
        let mut response = envelope(&self.id, &self.model, self.created, Vec::new(), None, None);
        response["status"] = json!("in_progress");
        self.event("response.created", json!({"response": response.clone()}), out);
        self.event("response.in_progress", json!({"response": response}), out);
    }

    fn end(&mut self, out: &mut BytesMut) {
        self.close(out);
        let reason = incomplete(&self.finish, self.refuses);
        let output = std::mem::take(&mut self.output);
        let (model, created) = (self.model.as_str(), self.created);
        let response = envelope(&self.id, model, created, output, reason, self.usage);
        let name = if reason.is_some() { "response.incomplete" } else { "response.completed" };
        self.event(name, json!({"response": response}), out);
    }

    /// Writes an error twice, as OpenAI does: some clients read the one, some the other.
    fn fault(&mut self, fault: &Fault, out: &mut BytesMut) {
        self.is_broken = true;
        let code = fault.code.as_deref().unwrap_or(match fault.status {
            429 => "rate_limit_exceeded",
            400..500 => "invalid_prompt",
            _ => "server_error",
        });
        let event = json!({"code": code, "message": fault.message, "param": fault.parameter});
        self.event("error", event, out);
        let output = std::mem::take(&mut self.output);
        let (model, created) = (self.model.as_str(), self.created);
        let mut response = envelope(&self.id, model, created, output, None, self.usage);
        response["status"] = json!("failed");
        response["error"] = json!({"code": code, "message": fault.message});
        self.event("response.failed", json!({"response": response}), out);
    }
}

impl StreamWriter for Writer {
    fn write(&mut self, delta: &Delta, out: &mut BytesMut) {
        if self.is_broken {
            return;
        }
        match delta {
            Delta::Begin { id, model, created } => {
                (self.id, self.model) = (id.clone(), model.clone());
                self.created = created.unwrap_or(0);
                self.begin(out);
            }
            Delta::Text { choice: 0, text } => self.speak(text, false, out),
            Delta::Refusal { choice: 0, text } => {
                self.refuses = true;
                self.speak(text, true, out);
            }
            Delta::Reasoning { choice: 0, text } => self.think(text, out),
            Delta::ReasoningProof { choice: 0, signature, sealed } => {
                self.prove(sealed.as_deref().or(signature.as_deref()), out);
            }
            Delta::ToolBegin { choice: 0, part, id, name, signature } => {
                let (id, name, signature) = (id.clone(), name.clone(), signature.clone());
                let call = ToolCall { id, name, arguments: String::new(), signature };
                self.start(Open::Call { part: *part, call }, out);
            }
            Delta::ToolArguments { choice: 0, part, text } => self.arguments(*part, text, out),
            Delta::Finish { choice: 0, finish } => {
                self.close(out);
                self.finish = finish.clone();
            }
            Delta::Usage(usage) => self.usage = Some(*usage),
            Delta::Ping => sse::comment(out),
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
