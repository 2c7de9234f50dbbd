//! Translates one call from one dialect into another: the request on its way to the provider, and
//! the answer, error or stream on its way back.

#[cfg(test)]
mod pairs;
pub(crate) mod proofs;
mod schema_tool;
#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod thoughts;
mod uploads;

use crate::chat::{Answer, Chat, Delta, Fault, Finish, Passed};
use crate::dialect::faults::recognized;
use crate::dialect::{Dialect, Losses, StreamReader, StreamWriter, Unreadable, Unsayable};
use crate::events::Events;
use bytes::BytesMut;
use schema_tool::SchemaTool;
use serde_json::Value;
use types::kinds::model::ModelType;
use types::models::TokenUsage;

pub use proofs::{has_proofs, open_in_place};

/// Limits on what a provider can make this process hold in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of one event of a stream.
    pub event: usize,
    /// Bytes of text in one stream. The text is kept because some dialects repeat all of it at the
    /// end.
    pub answer: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { event: 16 << 20, answer: 64 << 20 }
    }
}

/// The model that is called.
#[derive(Debug, Clone, Copy)]
pub struct Named<'n> {
    /// The provider's name for the model.
    pub model: &'n str,
    pub provider: Option<ModelType>,
}

impl<'n> From<&'n str> for Named<'n> {
    fn from(model: &'n str) -> Self {
        Self { model, provider: None }
    }
}

/// The translation of one call.
#[derive(Debug)]
pub struct Translation {
    from: Dialect,
    to: Dialect,
    /// The request, without its messages and tools.
    asked: Chat,
    losses: Losses,
    schema_tool: Option<SchemaTool>,
    bounds: Bounds,
    created: i64,
}

impl Translation {
    /// Translates a request. Returns the translation of the call, and the body for the provider.
    pub fn request<'n>(
        from: Dialect,
        to: Dialect,
        body: &Value,
        named: impl Into<Named<'n>>,
        is_stream: bool,
    ) -> Result<(Self, Vec<u8>), Unsayable> {
        let mut chat = from.words().read_request(body)?;
        let (mut losses, says_usage) = (Losses::default(), chat.stream_usage);
        let Named { model, provider } = named.into();
        model.clone_into(&mut chat.model);
        chat.provider = provider;
        (chat.stream, chat.stream_usage) = (is_stream, is_stream);
        uploads::refuse(&chat, from, to)?;
        proofs::open(&mut chat, to, &mut losses);
        let schema_tool = match to.words().says_schema_as_tool(&chat) {
            true => Some(SchemaTool::put(&mut chat)?),
            false => None,
        };
        let written = to.words().write_request(&chat, &mut losses)?;
        (chat.messages, chat.tools, chat.stream_usage) = (Vec::new(), Vec::new(), says_usage);
        let (bounds, created) = (Bounds::default(), 0);
        let translation = Self { from, to, asked: chat, losses, schema_tool, bounds, created };
        Ok((translation, written.to_string().into_bytes()))
    }

    #[must_use]
    pub fn bounded(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Sets the time (seconds since 1970) to give to dialects that say when an answer was made, in
    /// case the provider does not say.
    #[must_use]
    pub fn created(self, created: i64) -> Self {
        Self { created, ..self }
    }

    /// Returns what the request to the provider could not express, by its names in the caller's
    /// request.
    pub fn losses(&self) -> &[String] {
        &self.losses.0
    }

    /// Translates an answer that arrived as a whole.
    pub fn answer(&self, body: &[u8]) -> Result<Vec<u8>, Unreadable> {
        let body: Value =
            serde_json::from_slice(body).map_err(|_| Unreadable("it is not JSON".to_owned()))?;
        let mut answer = self.to.words().read_answer(&body)?;
        self.adapt(&mut answer);
        // The answer has no place to report what was left out of it.
        let written = self.from.words().write_answer(&answer, &mut Losses::default());
        Ok(written.to_string().into_bytes())
    }

    /// Changes an answer to what the caller asked for.
    fn adapt(&self, answer: &mut Answer) {
        answer.created.get_or_insert(self.created);
        if answer.model.is_empty() {
            answer.model.clone_from(&self.asked.model);
        }
        if let Some(tool) = &self.schema_tool {
            tool.take(answer);
        }
        if self.from != self.to {
            proofs::seal(answer, self.to);
        }
    }

    /// Translates a provider's error for the caller. The status stays the same.
    pub fn fault(&self, status: u16, body: &[u8]) -> Vec<u8> {
        fault_body(self.from, &recognized(self.to.words().read_fault(status, body)))
    }

    /// Begins to translate an answer that arrives as a stream.
    pub fn stream(self) -> StreamTranslation {
        StreamTranslation {
            events: Events::new(self.bounds.event),
            reader: self.to.words().reader(),
            writer: self.from.words().writer(&self.asked),
            deltas: Vec::new(),
            left: self.bounds.answer,
            said: 0,
            state: State::Running,
            has_begun: false,
            is_finished: false,
            usage: None,
            translation: self,
        }
    }
}

/// Writes an error that was made here, in the caller's dialect.
pub fn fault_body(dialect: Dialect, fault: &Fault) -> Vec<u8> {
    dialect.words().write_fault(fault).to_string().into_bytes()
}

/// Writes an error that was made here as the end of a stream that passed untranslated.
pub fn write_last_fault(dialect: Dialect, fault: &Fault, passed: &Passed, out: &mut BytesMut) {
    dialect.words().write_last_fault(fault, passed, out);
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Running,
    Ended,
    /// Nothing more is written.
    Failed(Fault),
}

/// What each piece of an answer counts towards [`Bounds::answer`] in addition to its text.
const OVERHEAD: usize = 16;

/// An answer that is translated while it passes. Any error also becomes the last event of the
/// stream, once.
pub struct StreamTranslation {
    translation: Translation,
    events: Events,
    reader: Box<dyn StreamReader>,
    writer: Box<dyn StreamWriter>,
    deltas: Vec<Delta>,
    /// Bytes of text that may still arrive.
    left: usize,
    /// Bytes of text that have arrived.
    said: usize,
    state: State,
    has_begun: bool,
    is_finished: bool,
    usage: Option<TokenUsage>,
}

impl StreamTranslation {
    /// Translates the next bytes. On an error `out` already holds the event that reports it; the
    /// caller must stop reading and release the provider.
    pub fn push(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<(), Unreadable> {
        let (reader, deltas) = (&mut self.reader, &mut self.deltas);
        let mut read = Ok(());
        let events = self.events.push(bytes, |event| {
            if read.is_ok() {
                read = reader.read(&event, deltas);
            }
        });
        let found = read.and(events.map_err(|bad| Unreadable(bad.to_string())));
        let passed = self.pass(out);
        let result = found.and(passed);
        if let Err(wrong) = &result {
            self.fail(wrong, out);
        }
        result
    }

    /// Ends the translation after the provider's stream ended. If the stream was cut off, `out`
    /// gets an error event.
    pub fn end(&mut self, out: &mut BytesMut) -> Result<(), Unreadable> {
        if self.state != State::Running {
            return Ok(());
        }
        // The empty line after the last event may be missing.
        self.push(b"\n\n", out)?;
        let read = self.reader.end(&mut self.deltas);
        let passed = self.pass(out);
        if let Err(wrong) = read.and(passed) {
            self.fail(&wrong, out);
            return Err(wrong);
        }
        if self.state != State::Running {
            return Ok(());
        }
        // Not every provider sends an event for the end.
        if self.is_finished {
            self.write(&Delta::End, out);
            return Ok(());
        }
        let wrong = Unreadable("its stream ended in the middle".to_owned());
        self.fail(&wrong, out);
        Err(wrong)
    }

    /// Ends the stream with an error that was made here.
    pub fn break_off(&mut self, fault: Fault, out: &mut BytesMut) {
        self.write(&Delta::Fault(fault), out);
    }

    /// Returns how many bytes are held at most: an incomplete event, and the text so far, which
    /// some dialects repeat as a whole at the end.
    pub fn held(&self) -> usize {
        self.events.held() + self.said
    }

    /// Returns the error that ended the stream.
    pub fn fault(&self) -> Option<&Fault> {
        match &self.state {
            State::Failed(fault) => Some(fault),
            State::Running | State::Ended => None,
        }
    }

    /// Returns whether the rest of the provider's stream can be ignored.
    pub fn is_over(&self) -> bool {
        self.state != State::Running
    }

    fn pass(&mut self, out: &mut BytesMut) -> Result<(), Unreadable> {
        let mut deltas = std::mem::take(&mut self.deltas);
        for mut delta in deltas.drain(..) {
            if let Some(tool) = &mut self.translation.schema_tool
                && !tool.stream(&mut delta)
            {
                continue;
            }
            let text = text_bytes(&delta);
            self.said += text;
            self.left = match self.left.checked_sub(text + OVERHEAD) {
                Some(left) => left,
                None => {
                    let max = self.translation.bounds.answer;
                    return Err(Unreadable(format!("its stream has more than {max} bytes")));
                }
            };
            if self.translation.from != self.translation.to {
                proofs::seal_delta(&mut delta, self.translation.to);
            }
            if let Delta::Fault(fault) = &mut delta {
                *fault = recognized(std::mem::take(fault));
            }
            self.write(&delta, out);
        }
        self.deltas = deltas;
        Ok(())
    }

    fn write(&mut self, delta: &Delta, out: &mut BytesMut) {
        if self.state != State::Running {
            return;
        }
        match delta {
            Delta::Begin { id, model, created } => return self.begin(id, model, *created, out),
            Delta::Ping | Delta::Fault(_) => {}
            _ => self.begin("", "", None, out),
        }
        match delta {
            Delta::Usage(usage) => self.usage = Some(*usage),
            Delta::Finish { .. } => self.is_finished = true,
            Delta::End => self.state = State::Ended,
            Delta::Fault(fault) => self.state = State::Failed(fault.clone()),
            _ => {}
        }
        self.writer.write(delta, out);
    }

    /// Writes the beginning once, even if the provider does not send one.
    fn begin(&mut self, id: &str, model: &str, created: Option<i64>, out: &mut BytesMut) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let asked = self.translation.asked.model.as_str();
        let model = if model.is_empty() { asked } else { model }.to_owned();
        let created = created.or(Some(self.translation.created));
        self.writer.write(&Delta::Begin { id: id.to_owned(), model, created }, out);
    }

    fn fail(&mut self, wrong: &Unreadable, out: &mut BytesMut) {
        let message = wrong.to_string();
        self.write(&Delta::Fault(Fault { status: 502, message, ..Fault::default() }), out);
    }
}

fn text_bytes(delta: &Delta) -> usize {
    match delta {
        Delta::Text { text, .. }
        | Delta::Refusal { text, .. }
        | Delta::Reasoning { text, .. }
        | Delta::ToolArguments { text, .. } => text.len(),
        Delta::ToolBegin { id, name, .. } => id.len() + name.len(),
        Delta::ReasoningProof { signature, sealed, .. } => {
            signature.as_ref().map_or(0, String::len) + sealed.as_ref().map_or(0, String::len)
        }
        Delta::Finish { finish: Finish::StopSequence(text) | Finish::Other(text), .. } => {
            text.len()
        }
        _ => 0,
    }
}
