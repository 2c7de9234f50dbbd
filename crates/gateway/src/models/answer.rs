//! The body of a model's answer. Each piece is passed on as it comes, while usage is counted.

use super::Room;
use super::account::Account;
use super::cache::Keeping;
use super::decode::Decoder;
use super::hooks::{PartOfAnswer, TextOfAnswer, Watch};
use super::upstream::{Answer, REST_MAX, REST_TIME};
use super::without_usage::Held;
use super::{Models, Served};
use crate::body::BodyError;
use crate::hold::Hold;
use crate::problem::Problem;
use ::models::chat::{Delta, Fault};
use ::models::dialect::gemini::array::ListWriter;
use ::models::dialect::{Dialect, StreamReader};
use ::models::events::Events;
use ::models::translate::{StreamTranslation, write_last_fault};
use admission::Pace;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use types::models::ModelOutcome;

/// How pieces of a provider's answer become pieces of ours.
pub(crate) enum Flow {
    /// Byte for byte.
    Same,
    /// Without the event that reports usage, which the caller did not ask for.
    WithoutUsage(Held),
    Translated(Box<StreamTranslation>),
}

/// The text of a stream, for hooks.
pub(crate) struct Watched {
    /// Those of the model that was asked for, and of the one that answers.
    pub(crate) watches: Vec<Watch>,
    pub(crate) events: Events,
    pub(crate) reader: Box<dyn StreamReader>,
}

/// Where an answer is cached if all of it arrives.
pub(crate) struct CacheEntry {
    pub(crate) keeping: Keeping,
    pub(crate) served: Arc<Served>,
    pub(crate) headers: HeaderMap,
    pub(crate) provider_model: String,
}

pub(crate) struct ModelBody {
    pub(crate) models: Arc<Models>,
    /// `None` means the answer is over.
    pub(crate) answer: Option<Answer>,
    pub(crate) ready: VecDeque<Bytes>,
    /// Reading events takes time even if nothing of them is sent on.
    pub(crate) pace: Pace,
    pub(crate) decoder: Option<Decoder>,
    pub(crate) flow: Flow,
    /// Set if the caller gets a JSON list of what the events contain, and not a stream of events.
    pub(crate) list: Option<ListWriter>,
    pub(crate) is_events: bool,
    /// The dialect in which the caller reads errors.
    pub(crate) dialect: Option<Dialect>,
    pub(crate) watched: Option<Watched>,
    /// Whether it ended early. The caller gets this error after the pieces that are ready.
    pub(crate) is_cut: bool,
    pub(crate) kept: Option<CacheEntry>,
    /// The memory for the bytes that are held back.
    pub(crate) room: Room,
    pub(crate) last: u8,
    /// Settled before the things below are given back.
    pub(crate) account: Account,
    /// Dropped last: the exchange is over then.
    pub(crate) hold: Option<Hold>,
    pub(crate) _open: Open,
}

/// Counts open streams.
pub(crate) struct Open(());

impl Open {
    pub(crate) fn new() -> Self {
        metrics::gauge!("holm_model_streams_open").increment(1.0);
        Self(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        metrics::gauge!("holm_model_streams_open").decrement(1.0);
    }
}

impl ModelBody {
    pub(crate) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(piece)));
            }
            if std::mem::take(&mut self.is_cut) {
                return Poll::Ready(Some(Err(BodyError::Cut)));
            }
            let Some(answer) = &mut self.answer else { return Poll::Ready(None) };
            if let Some(Poll::Ready(end)) = self.hold.as_mut().map(|hold| hold.poll_end(cx)) {
                self.answer = None;
                self.account.settle(ModelOutcome::Aborted);
                return Poll::Ready(Some(Err(end.into())));
            }
            ready!(self.pace.poll_turn(cx));
            match ready!(answer.poll_piece(cx)) {
                Some(Ok(piece)) => {
                    self.pace.moved(piece.len());
                    let is_over = answer.is_over();
                    self.take(piece);
                    // Ended here, so that usage is counted before the caller sees the end.
                    if is_over && self.answer.is_some() {
                        self.end();
                    }
                }
                Some(Err(broken)) => self.break_off(&Problem::Model(broken.into())),
                None => self.end(),
            }
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.answer.is_none() && self.ready.is_empty() && !self.is_cut
    }

    /// Takes a piece of the provider's answer.
    pub(crate) fn take(&mut self, piece: Bytes) {
        let piece = match &mut self.decoder {
            None => piece,
            Some(decoder) => match decoder.push(&piece, self.models.settings.answer_max) {
                Ok(piece) => piece,
                Err(bad) => return self.break_off(&Problem::Model(bad.into())),
            },
        };
        if piece.is_empty() {
            return;
        }
        if let Err(refused) = self.room.hold(self.held() + piece.len()) {
            return self.break_off(&Problem::Crowded(refused));
        }
        self.account.see(&piece);
        self.last = piece.last().copied().unwrap_or(self.last);
        if let Err(stopped) = self.watched.as_mut().map_or(Ok(()), |watched| watched.look(&piece)) {
            return self.break_off(&Problem::Model(stopped.into()));
        }
        match &mut self.flow {
            Flow::Same => self.send(piece),
            Flow::WithoutUsage(held) => {
                let max = self.models.settings.event_max;
                let pieces = held.push(piece, max);
                pieces.into_iter().for_each(|piece| self.send(piece));
            }
            Flow::Translated(translation) => {
                let mut out = BytesMut::new();
                let pushed = translation.push(&piece, &mut out);
                let (is_over, failed) = (translation.is_over(), translation.fault().is_some());
                self.say(out);
                if pushed.is_err() || failed {
                    self.over(ModelOutcome::Interrupted);
                } else if is_over {
                    self.keep();
                    if let Some(answer) = self.answer.take() {
                        answer.read_on();
                    }
                    self.over(ModelOutcome::Answered);
                }
            }
        }
    }

    /// Returns how many bytes wait for more bytes, or for the caller.
    fn held(&self) -> usize {
        let flow = match &self.flow {
            Flow::Same => 0,
            Flow::WithoutUsage(held) => held.length(),
            Flow::Translated(translation) => translation.held(),
        };
        let watched = self.watched.as_ref().map_or(0, |watched| watched.events.held());
        let kept = self.kept.as_ref().map_or(0, |kept| kept.keeping.length);
        let ready: usize = self.ready.iter().map(Bytes::len).sum();
        flow + watched + kept + ready + self.account.held()
    }

    /// Sends events, or what they contain.
    fn say(&mut self, events: BytesMut) {
        let Some(list) = &mut self.list else { return self.send(events.freeze()) };
        let mut out = BytesMut::new();
        // These events were written by us, so they are well-formed.
        if let Err(bad) = list.push(&events, &mut out) {
            tracing::error!(%bad, "events of this server cannot be read");
        }
        self.send(out.freeze());
    }

    fn close_list(&mut self) {
        if let Some(list) = self.list.take() {
            let mut out = BytesMut::new();
            list.end(&mut out);
            self.send(out.freeze());
        }
    }

    fn send(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.account.sent(&piece);
        if let Some(kept) = &mut self.kept
            && !kept.keeping.add(&piece)
        {
            self.kept = None;
        }
        self.ready.push_back(piece);
    }

    /// Completes the answer once the provider's has ended.
    pub(crate) fn end(&mut self) {
        match &mut self.flow {
            Flow::Same => {}
            Flow::WithoutUsage(held) => {
                let rest = held.rest();
                self.send(rest);
            }
            Flow::Translated(translation) => {
                let mut out = BytesMut::new();
                let ended = translation.end(&mut out);
                self.say(out);
                if ended.is_err() {
                    return self.over(ModelOutcome::Interrupted);
                }
            }
        }
        if self.is_events && self.decoder.is_none() && !is_end(self.last) {
            return self.break_off(&Problem::Model(super::ModelProblem::BadAnswer(
                "its stream ended in the middle of an event",
            )));
        }
        if self.is_events && !self.account.is_finished() {
            // A translation has written an end, and so has a provider that only leaves out the mark
            // behind it.
            let has_end = matches!(self.flow, Flow::Translated(_)) || self.account.says_its_end();
            if !has_end {
                return self.break_off(&Problem::Model(super::ModelProblem::BadAnswer(
                    "its stream ended in the middle",
                )));
            }
            return self.over(ModelOutcome::Interrupted);
        }
        self.keep();
        self.over(ModelOutcome::Answered);
    }

    /// Puts the answer into the cache.
    fn keep(&mut self) {
        self.close_list();
        let Some(kept) = self.kept.take() else { return };
        let CacheEntry { keeping, served, headers, provider_model } = kept;
        if let Some(provider) = &served.route.provider {
            let owner = &served.route.workspace_name;
            let answered = (provider.kind, provider_model);
            self.models.cache.keep(keeping, owner, headers, answered);
        }
    }

    /// Ends the answer early. The caller of a stream finds the reason in the stream; for any other
    /// answer the connection breaks off.
    fn break_off(&mut self, problem: &Problem) {
        tracing::debug!(%problem, "the answer of a model ends early");
        self.kept = None;
        if self.is_events {
            self.tell(problem);
        } else {
            self.is_cut = true;
        }
        self.over(ModelOutcome::Interrupted);
    }

    /// Ends a stream with an event that tells of a problem.
    fn tell(&mut self, problem: &Problem) {
        let fault = Fault {
            status: problem.status().as_u16(),
            code: Some(problem.code().to_owned()),
            message: problem.to_string(),
            ..Fault::default()
        };
        let mut out = BytesMut::new();
        if let Flow::Translated(translation) = &mut self.flow {
            translation.break_off(fault, &mut out);
            return self.say(out);
        }
        // The provider's last event may lack its end.
        out.extend_from_slice(match self.last {
            0 => b"",
            b'\n' => b"\n",
            _ => b"\n\n",
        });
        match self.dialect {
            Some(dialect) => {
                write_last_fault(dialect, &fault, &self.account.passed(), &mut out);
            }
            None => out.extend_from_slice(format!("data: {}\n\n", fault.message).as_bytes()),
        }
        self.say(out);
    }

    fn over(&mut self, outcome: ModelOutcome) {
        self.close_list();
        self.answer = None;
        self.kept = None;
        self.account.settle(outcome);
        self.hold = None;
    }
}

/// Keeps reading when a caller goes away just before the provider reports usage, so that nobody
/// avoids being charged that way.
impl Drop for ModelBody {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take().filter(|_| self.account.awaits_usage()) else {
            return;
        };
        let (account, decoder) = (self.account.hand_over(), self.decoder.take());
        // When the program is shutting down, nobody is left to read it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(count_rest(answer, decoder, account));
        }
    }
}

/// Reads on until the provider has reported the usage.
async fn count_rest(mut answer: Answer, mut decoder: Option<Decoder>, mut account: Account) {
    let reading = async {
        let mut left = REST_MAX;
        while account.awaits_usage()
            && let Some(Ok(piece)) = answer.piece().await
        {
            let Some(less) = left.checked_sub(piece.len()) else { return };
            left = less;
            let piece = match &mut decoder {
                Some(decoder) => decoder.push(&piece, REST_MAX),
                None => Ok(piece),
            };
            let Ok(piece) = piece else { return };
            account.see(&piece);
        }
    };
    // What did not come in time is estimated.
    let _ = tokio::time::timeout(REST_TIME, reading).await;
    account.settle(ModelOutcome::Aborted);
}

/// Returns whether a stream may end with this byte: some leave out the last line break.
const fn is_end(last: u8) -> bool {
    matches!(last, b'\n' | b'\r' | b']' | b'}' | 0)
}

impl Watched {
    fn look(&mut self, piece: &[u8]) -> Result<(), super::hooks::Stopped> {
        let Self { watches, events, reader } = self;
        let (mut deltas, mut is_read) = (Vec::new(), true);
        let pushed = events.push(piece, |event| {
            is_read &= reader.read(&event, &mut deltas).is_ok();
        });
        let mut texts: Vec<(TextOfAnswer, String)> = Vec::new();
        for (place, text) in deltas.iter().filter_map(text_of) {
            match texts.last_mut().filter(|(before, _)| *before == place) {
                Some((_, texts)) => texts.push_str(text),
                None => texts.push((place, text.to_owned())),
            }
        }
        for (place, text) in &texts {
            watches.iter_mut().try_for_each(|watch| watch.look(*place, text))?;
        }
        match watches.first() {
            Some(watch) if pushed.is_err() || !is_read => Err(watch.blinded()),
            _ => Ok(()),
        }
    }
}

fn text_of(delta: &Delta) -> Option<(TextOfAnswer, &str)> {
    let (choice, part, text) = match delta {
        Delta::Text { choice, text } => (choice, PartOfAnswer::Text, text),
        Delta::Refusal { choice, text } => (choice, PartOfAnswer::Refusal, text),
        Delta::Reasoning { choice, text } => (choice, PartOfAnswer::Reasoning, text),
        Delta::ToolBegin { choice, part, name, .. } => (choice, PartOfAnswer::Call(*part), name),
        Delta::ToolArguments { choice, part, text } => (choice, PartOfAnswer::Call(*part), text),
        _ => return None,
    };
    Some((TextOfAnswer { choice: *choice, part }, text))
}
