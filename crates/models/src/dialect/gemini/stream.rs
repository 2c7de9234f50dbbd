//! Reads and writes streams of pieces, each of which is an answer in itself.
//!
//! No event marks the end: the connection just ends. Older models say in every piece that they have
//! finished, so only the last piece counts.

use super::answer::{self, Answered};
use super::calls::Calls;
use super::fault;
use crate::chat::{Content, Delta, Finish, ToolCall};
use crate::dialect::members::{At, Members, Object};
use crate::dialect::parts::plain;
use crate::dialect::{Losses, StreamReader, StreamWriter, Unreadable, sse};
use crate::events::Event;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::models::TokenUsage;

/// Upper bound for the number of a candidate; nobody asks for that many.
const CHOICES_MAX: u32 = 128;
/// How many bytes of arguments are kept until their calls are complete.
const ARGUMENTS_MAX: usize = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct Reader {
    id: Option<String>,
    choices: BTreeMap<u32, ReadChoice>,
    usage: Option<TokenUsage>,
    has_failed: bool,
}

#[derive(Debug, Default)]
struct ReadChoice {
    calls: Calls,
    count: u32,
    finish: Option<Finish>,
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
        if let Some(error) = members.value("error") {
            self.has_failed = true;
            deltas.push(Delta::Fault(fault::of_error(error, 502)));
            return Ok(());
        }
        let id = members.owned("responseId")?;
        let model = members.owned("modelVersion")?;
        if self.id.is_none() {
            let id = id.unwrap_or_default();
            let model = model.unwrap_or_default();
            deltas.push(Delta::Begin { id: id.clone(), model, created: None });
            self.id = Some(id);
        }
        let (at, candidates) = (At::BODY.name("candidates"), members.list("candidates")?);
        for (index, candidate) in candidates.iter().enumerate() {
            self.candidate(candidate, at.index(index), deltas)?;
        }
        if let Some(finish) = answer::blocked(&mut members)? {
            self.choices.entry(0).or_default().finish = Some(finish);
        }
        if let Some(usage) = members.value("usageMetadata") {
            self.usage = Some(answer::usage(usage)?);
        }
        Ok(())
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), Unreadable> {
        let is_whole =
            !self.choices.is_empty() && self.choices.values().all(|choice| choice.finish.is_some());
        if self.has_failed || !is_whole {
            return Ok(());
        }
        for (index, choice) in std::mem::take(&mut self.choices) {
            let finish = match choice.finish {
                Some(Finish::Stop) if choice.count > 0 => Finish::ToolCalls,
                Some(finish) => finish,
                None => continue,
            };
            deltas.push(Delta::Finish { choice: index, finish });
        }
        deltas.extend(self.usage.take().map(Delta::Usage));
        deltas.push(Delta::End);
        Ok(())
    }
}

impl Reader {
    fn candidate(
        &mut self,
        candidate: &Value,
        at: At<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Unreadable> {
        let mut members = Members::of(candidate, at)?;
        let index = members.count("index")?.unwrap_or(0);
        let index = u32::try_from(index).ok().filter(|index| *index < CHOICES_MAX);
        let choice = index.ok_or_else(|| members.wrong("index", "is too high"))?;
        let id = self.id.as_deref().unwrap_or_default();
        let state = self.choices.entry(choice).or_insert_with(|| ReadChoice {
            calls: Calls::of_answer(&answer::choice_id(id, choice as usize)),
            ..ReadChoice::default()
        });
        for part in answer::read_parts(&mut members, at, &mut state.calls)? {
            match part.content {
                Content::Text(text) => deltas.push(Delta::Text { choice, text }),
                Content::Reasoning { text, signature, .. } => {
                    if !text.is_empty() {
                        deltas.push(Delta::Reasoning { choice, text });
                    }
                    if signature.is_some() {
                        deltas.push(Delta::ReasoningProof { choice, signature, sealed: None });
                    }
                }
                Content::ToolCall(ToolCall { id, name, arguments, signature }) => {
                    let part = state.count;
                    state.count += 1;
                    deltas.push(Delta::ToolBegin { choice, part, id, name, signature });
                    deltas.push(Delta::ToolArguments { choice, part, text: arguments });
                }
                _ => return Err(at.wrong("has media, which streams cannot carry").into()),
            }
        }
        if let Some(word) = members.text("finishReason")? {
            state.finish = Some(answer::read_finish(word));
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct Writer {
    id: String,
    model: String,
    choices: BTreeMap<u32, WrittenChoice>,
    usage: Option<TokenUsage>,
    /// How many bytes of arguments are kept now.
    kept: usize,
    is_over: bool,
}

#[derive(Debug, Default)]
struct WrittenChoice {
    answered: Answered,
    /// Calls whose arguments are still arriving.
    calls: Vec<(u32, ToolCall)>,
    finish: Option<Finish>,
}

impl StreamWriter for Writer {
    fn write(&mut self, delta: &Delta, out: &mut BytesMut) {
        if self.is_over {
            return;
        }
        match delta {
            Delta::Begin { id, model, .. } => {
                self.id.clone_from(id);
                self.model.clone_from(model);
            }
            Delta::Text { choice, text } | Delta::Refusal { choice, text } => {
                self.piece(*choice, json!({ "text": text }), out);
            }
            Delta::Reasoning { choice, text } => {
                self.flush(*choice, out);
                let state = self.choices.entry(*choice).or_default();
                state.answered.parts.push(json!({ "text": text, "thought": true }));
                self.write_parts(*choice, out);
            }
            Delta::ReasoningProof { choice, signature, .. } => {
                self.flush(*choice, out);
                if signature.is_some() {
                    let state = self.choices.entry(*choice).or_default();
                    state.answered.signature.clone_from(signature);
                }
            }
            Delta::ToolBegin { choice, part, id, name, signature } => {
                let call = ToolCall {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                    signature: signature.clone(),
                };
                self.choices.entry(*choice).or_default().calls.push((*part, call));
                self.keep(id.len() + name.len() + size_of::<ToolCall>(), out);
            }
            Delta::ToolArguments { choice, part, text } => {
                self.keep(text.len(), out);
                let calls = &mut self.choices.entry(*choice).or_default().calls;
                let call = calls.iter_mut().rev().find(|(of, _)| of == part);
                if let Some((_, call)) = call {
                    call.arguments.push_str(text);
                }
            }
            Delta::Finish { choice, finish } => {
                self.flush(*choice, out);
                self.choices.entry(*choice).or_default().finish = Some(finish.clone());
            }
            Delta::Usage(usage) => self.usage = Some(*usage),
            // An empty line, which all of Google's clients skip between events. They fail on
            // comments.
            Delta::Ping => out.extend_from_slice(b"\n"),
            Delta::Fault(fault) => {
                self.is_over = true;
                sse::data(out, &fault::write(fault));
            }
            Delta::End => self.end(out),
        }
    }
}

impl Writer {
    fn keep(&mut self, bytes: usize, out: &mut BytesMut) {
        self.kept = self.kept.saturating_add(bytes);
        if self.kept > ARGUMENTS_MAX {
            self.is_over = true;
            self.choices.clear();
            let message = "the arguments of a call are longer than is read".to_owned();
            let fault = crate::chat::Fault { status: 502, message, ..Default::default() };
            sse::data(out, &fault::write(&fault));
        }
    }

    fn piece(&mut self, choice: u32, part: Value, out: &mut BytesMut) {
        self.flush(choice, out);
        self.choices.entry(choice).or_default().answered.push(part);
        self.write_parts(choice, out);
    }

    /// Writes the calls so far. They are complete as soon as something else follows.
    fn flush(&mut self, choice: u32, out: &mut BytesMut) {
        let state = self.choices.entry(choice).or_default();
        if state.calls.is_empty() {
            return;
        }
        for (_, call) in std::mem::take(&mut state.calls) {
            let bytes = call.id.len() + call.name.len() + call.arguments.len();
            self.kept = self.kept.saturating_sub(bytes + size_of::<ToolCall>());
            let part = plain(Content::ToolCall(call));
            state.answered.part(&part, &mut Losses::default());
        }
        self.write_parts(choice, out);
    }

    fn write_parts(&mut self, choice: u32, out: &mut BytesMut) {
        let state = self.choices.entry(choice).or_default();
        if !state.answered.parts.is_empty() {
            let candidate = state.answered.candidate(choice as usize, None);
            self.chunk(vec![candidate], out);
        }
    }

    fn end(&mut self, out: &mut BytesMut) {
        self.is_over = true;
        let indexes: Vec<_> = self.choices.keys().copied().collect();
        indexes.into_iter().for_each(|choice| self.flush(choice, out));
        let mut candidates = Vec::new();
        for (index, mut choice) in std::mem::take(&mut self.choices) {
            let finish = choice.finish.unwrap_or(Finish::Stop);
            candidates.push(choice.answered.candidate(index as usize, Some(&finish)));
        }
        self.chunk(candidates, out);
    }

    fn chunk(&mut self, candidates: Vec<Value>, out: &mut BytesMut) {
        let mut chunk = Object::default();
        chunk.put("candidates", candidates);
        if let Some(usage) = self.usage.take_if(|_| self.is_over) {
            chunk.put("usageMetadata", answer::write_usage(&usage));
        }
        chunk.put("modelVersion", self.model.as_str());
        chunk.put("responseId", self.id.as_str());
        sse::data(out, &chunk.into());
    }
}
