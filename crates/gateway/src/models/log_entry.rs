//! The log entry of a request: what the log of a model gets of it.

use super::call::Call;
use super::collected::is_events;
use super::failed::{Answered, Counted};
use super::patterns::boundary_before;
use super::redact::NOT_SHOWN;
use super::served::Served;
use super::{ModelProblem, Models};
use crate::problem::Problem;
use ::models::chat::Delta;
use ::models::dialect::{Dialect, StreamReader};
use ::models::events::Events;
use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::Duration;
use types::kinds::model::{ModelFailure, ModelType};
use types::models::{ModelCall, ModelLogEntry, ModelOutcome, TokenUsage};

/// What a part of an answer takes in the log in addition to its text, in bytes, or less.
const PART_BYTES: usize = 8;

pub(crate) struct Entry {
    pub(crate) served: Arc<Served>,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) status: u16,
    /// The code of our own error, if the caller gets one.
    pub(crate) error: Option<&'static str>,
    pub(crate) tried: Vec<(String, ModelFailure)>,
    /// `None` means bodies are not logged.
    pub(crate) request: Option<Bytes>,
    pub(crate) answer: Option<Told>,
}

/// What is kept of an answer on its way to the caller.
pub(crate) enum Told {
    Bytes(Vec<u8>),
    Texts(Box<Texts>),
    /// Nothing: secrets could not be recognised in it.
    Hidden,
}

/// The texts of a stream. A secret that comes in several pieces is in none of its events.
pub(crate) struct Texts {
    /// `None` means enough was read.
    reading: Option<(Events, Box<dyn StreamReader>)>,
    parts: Vec<Part>,
    length: usize,
}

struct Part {
    choice: u32,
    member: &'static str,
    /// Which call of a tool it belongs to.
    call: u32,
    text: String,
}

impl Call<'_> {
    /// Returns the log entry of the request, if the model has a log. `passing` has the headers of
    /// an answer that is passed on as it comes.
    pub(crate) fn entry(&self, status: u16, passing: Option<&HeaderMap>) -> Option<Entry> {
        let log = self.served.route.request_log.as_ref();
        let log = log.filter(|log| log.enabled == Some(true))?;
        let bodies = log.bodies == Some(true);
        Some(Entry {
            served: Arc::clone(self.served),
            method: self.sent.method.to_string(),
            path: self.sent.path.clone(),
            status,
            error: None,
            tried: self.tried.clone(),
            request: bodies.then(|| self.asked.body.clone()),
            answer: bodies.then(|| passing.map_or(Told::Bytes(Vec::new()), |it| self.told(it))),
        })
    }

    /// Settles a request that nobody answers, and writes its line.
    pub(crate) fn tell_failed(&self, counted: Counted, told: &Result<Answered, Problem>) {
        let (status, error) = match told {
            Ok((response, _)) => (response.status(), None),
            Err(problem) => (problem.status(), Some(problem.code())),
        };
        let mut entry = self.entry(status.as_u16(), None);
        if let Some(entry) = &mut entry {
            entry.error = error;
            // What a hook would have masked or blocked must not get into the log.
            let hook = matches!(
                told,
                Err(Problem::Model(ModelProblem::Stopped(_) | ModelProblem::BadBody(_)))
            );
            entry.request = entry.request.take().filter(|_| !hook);
            told.iter().for_each(|(_, body)| entry.sent(body, self.models));
        }
        match (counted, entry) {
            (Counted::Ends(mut account, outcome), entry) => {
                account.log(entry);
                account.settle(outcome);
            }
            (Counted::Nothing | Counted::GivenBack(_), Some(entry)) => {
                entry.tell(self.models, self.refused(), None, self.began.elapsed());
            }
            (Counted::Nothing | Counted::GivenBack(_), None) => {}
        }
    }

    /// Returns the call of a request for which no provider was asked.
    fn refused(&self) -> ModelCall {
        ModelCall {
            at: self.models.world.now(),
            workspace: self.served.route.workspace.clone(),
            model: self.served.route.name.clone(),
            model_id: self.served.route.id.clone(),
            provider: ModelType::PublicModel,
            provider_model: String::new(),
            key: self.caller.holder.clone(),
            end_user: self.end_user.clone(),
            tag: self.tag.clone(),
            usage: TokenUsage::default(),
            cost: 0,
            prices: String::new(),
            outcome: ModelOutcome::Refused,
        }
    }

    /// Returns how an answer is kept for the log that is passed on as it comes.
    fn told(&self, headers: &HeaderMap) -> Told {
        let is_events = is_events(headers);
        let is_stream = is_events || self.asked.is_stream;
        if self.served.redaction.is_empty() || !is_stream {
            return Told::Bytes(Vec::new());
        }
        let dialect = self.asked.dialect().filter(|_| is_events);
        dialect.map_or(Told::Hidden, |dialect| {
            Told::Texts(Box::new(Texts::of(dialect, self.models.settings.event_max)))
        })
    }
}

impl Entry {
    /// Takes bytes that go to the caller.
    pub(crate) fn sent(&mut self, piece: &[u8], models: &Models) {
        // Twice what is kept in the end, so that there is something left when it is redacted.
        let max = models.settings.log_body_max * 2;
        match &mut self.answer {
            Some(Told::Bytes(answer)) => {
                let room = max.saturating_sub(answer.len()).min(piece.len());
                answer.extend_from_slice(&piece[..room]);
            }
            Some(told @ Told::Texts(_)) => {
                let Told::Texts(texts) = told else { return };
                if texts.read(piece, max).is_none() {
                    *told = Told::Hidden;
                }
            }
            Some(Told::Hidden) | None => {}
        }
    }

    /// Returns how many bytes of an incomplete event are held.
    pub(crate) fn held(&self) -> usize {
        let Some(Told::Texts(texts)) = &self.answer else { return 0 };
        texts.reading.as_ref().map_or(0, |(events, _)| events.held())
    }

    /// Queues the line of a call that is over.
    pub(crate) fn tell(
        self,
        models: &Models,
        call: ModelCall,
        first_byte: Option<Duration>,
        took: Duration,
    ) {
        let workspace = call.workspace.clone();
        models.log.tell(&workspace, || self.told(models, call, first_byte, took));
    }

    fn told(
        self,
        models: &Models,
        call: ModelCall,
        first_byte: Option<Duration>,
        took: Duration,
    ) -> ModelLogEntry {
        let max = models.settings.log_body_max;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let redaction = &self.served.redaction;
        let answer = self.answer.map(|told| match told {
            Told::Bytes(answer) => redaction.shown(&answer, max),
            Told::Texts(texts) => redaction.shown(texts.json().to_string().as_bytes(), max),
            Told::Hidden => NOT_SHOWN.to_owned(),
        });
        ModelLogEntry {
            call,
            method: self.method,
            path: self.path,
            status: self.status,
            error: self.error.map(str::to_owned),
            first_byte_ms: ms(first_byte.unwrap_or(took)),
            took_ms: ms(took),
            tried: self.tried,
            request: self.request.map(|request| redaction.shown(&request, max)),
            answer,
            left_out: 0,
        }
    }
}

impl Texts {
    /// Reads a stream in this dialect, whose events are at most `event_max` bytes long.
    pub(crate) fn of(dialect: Dialect, event_max: usize) -> Self {
        let reading = Some((Events::new(event_max), dialect.words().reader()));
        Self { reading, parts: Vec::new(), length: 0 }
    }

    /// Reads more of the stream. `None` means it cannot be read.
    fn read(&mut self, piece: &[u8], max: usize) -> Option<()> {
        let Some((events, reader)) = &mut self.reading else { return Some(()) };
        let (mut deltas, mut is_read) = (Vec::new(), true);
        let pushed = events.push(piece, |event| {
            is_read &= reader.read(&event, &mut deltas).is_ok();
        });
        deltas.iter().for_each(|delta| self.take(delta, max));
        if self.length >= max {
            self.reading = None;
        }
        (pushed.is_ok() && is_read).then_some(())
    }

    fn take(&mut self, delta: &Delta, max: usize) {
        if self.length >= max {
            return;
        }
        let (choice, member, call, text) = match delta {
            Delta::Text { choice, text } => (*choice, "text", 0, text),
            Delta::Refusal { choice, text } => (*choice, "refusal", 0, text),
            Delta::Reasoning { choice, text } => (*choice, "reasoning", 0, text),
            Delta::ToolBegin { choice, part, name, .. } => (*choice, "call", *part, name),
            Delta::ToolArguments { choice, part, text } => (*choice, "arguments", *part, text),
            Delta::Fault(fault) => (0, "error", 0, &fault.message),
            _ => return,
        };
        let is_same = |part: &Part| (part.choice, part.member, part.call) == (choice, member, call);
        let at = self.parts.iter().rposition(is_same).unwrap_or_else(|| {
            self.length += PART_BYTES;
            self.parts.push(Part { choice, member, call, text: String::new() });
            self.parts.len() - 1
        });
        let room = max.saturating_sub(self.length);
        let text = &text[..boundary_before(text, room)];
        self.length += text.len();
        self.parts[at].text.push_str(text);
    }

    /// Returns the texts as a list, in the order in which they began.
    fn json(&self) -> Value {
        let parts = self.parts.iter().map(|Part { choice, member, text, .. }| match choice {
            0 => json!({ *member: text }),
            choice => json!({ "choice": choice, *member: text }),
        });
        parts.collect()
    }
}
