//! Turns a provider's answer into the caller's: as a stream, or read whole first where it has to be
//! understood.

use super::Room;
use super::answer::{CacheEntry, Flow, ModelBody, Open, Watched};
use super::answer_head::{CACHE, LEFT_OUT, dress, response};
use super::attempt::Begun;
use super::cache::{Keeping, Key};
use super::call::Call;
use super::decode::Coding;
use super::failed::{Counted, Failed};
use super::failure;
use super::hooks::{Stopped, Watch};
use super::plan::Reached;
use super::prepared::Translated;
use super::served::Served;
use super::settings::ModelSettings;
use super::without_usage::Held;
use super::{ModelProblem, Pieces};
use crate::body::Body;
use crate::problem::Problem;
use ::models::dialect::Dialect;
use ::models::dialect::gemini::array::ListWriter;
use ::models::events::Events;
use ::models::operation::Operation;
use ::models::tokens::input_estimate;
use ::models::translate::Bounds;
use admission::{Pace, Refused};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use types::kinds::model::{ModelFailure, ModelHookTime};
use types::models::ModelOutcome;

const EVENTS: &[u8] = b"text/event-stream";
/// What a line of a stream of events begins with.
const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];

impl Call<'_> {
    pub(crate) async fn respond(
        &self,
        reached: &Reached,
        mut begun: Begun<'_>,
        key: Option<Key>,
    ) -> Result<Response<Body>, Failed> {
        let is_counted =
            self.asked.is_chat() || matches!(self.asked.operation, Operation::Embeddings(_));
        let begins = match self.asked.is_stream {
            true => beginning(&begun, self.models.settings.answer_max),
            false => Bytes::new(),
        };
        if begins_events(&begins) && !is_events(&begun.head.headers) {
            // Not every server says so.
            begun.head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        }
        let is_events = is_events(&begun.head.headers);
        // Cached answers are always given as 200.
        let key = key.filter(|_| begun.head.status == StatusCode::OK);
        // Hooks look at the text of events as they pass, and at anything else once it is whole.
        let passes = begun.prepared.translation.is_none() && !self.looks_at_answers(reached);
        let is_list = passes && self.wants_list() && begins.trim_ascii_start().starts_with(b"[");
        // Anything else has to prove first that it is an answer at all.
        if self.asked.is_stream && (is_events || is_list) {
            // Only of a stream of events do we know that it came whole.
            let key = key.filter(|_| is_events);
            return self.stream(reached, begun, key, is_events).map_err(|failed| *failed);
        }
        if !is_counted {
            return self.stream(reached, begun, None, is_events).map_err(|failed| *failed);
        }
        self.whole(reached, begun, key).await
    }

    /// Passes an answer on as it comes.
    fn stream(
        &self,
        reached: &Reached,
        begun: Begun<'_>,
        key: Option<Key>,
        is_events: bool,
    ) -> Result<Response<Body>, Box<Failed>> {
        let (settings, model) = (&self.models.settings, &reached.model);
        let coding = Coding::of(&begun.head.headers);
        let is_same = matches!(coding, Coding::Unknown);
        let looks = begun.prepared.translation.is_some() || self.looks_at_answers(reached);
        if is_same && looks {
            let problem = ModelProblem::BadAnswer("it is compressed in a way that is not known");
            begun.admission.failed(Instant::now(), settings);
            let counted = Counted::Ends(Box::new(begun.account), ModelOutcome::Interrupted);
            return Err(Box::new(Failed::of(model, problem.into()).counted(counted)));
        }
        let mut headers = answer_headers(model, &begun, is_same, key.is_some());
        let Begun { prepared, head, answer, first, mut account, admission } = begun;
        admission.went_well();
        let translated = prepared.translation.is_some();
        let list = (translated && self.wants_list()).then(|| ListWriter::new(settings.event_max));
        if translated {
            let kind = if list.is_some() { "application/json" } else { "text/event-stream" };
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        account.log(self.entry(head.status.as_u16(), Some(&headers)));
        let watched = prepared.spoken.filter(|_| is_events);
        let watched = watched.and_then(|spoken| self.watched(reached, spoken));
        let hides_usage = prepared.hides_usage && is_events && !is_same;
        let flow = self.flow(prepared.translation, hides_usage);
        let kept = key.map(|key| CacheEntry {
            keeping: Keeping::new(key, self.cache_life(), self.models.cache.answer_max),
            served: Arc::clone(model),
            headers: headers.clone(),
            provider_model: prepared.model,
        });
        let mut body = ModelBody {
            models: Arc::clone(self.models),
            answer: Some(answer),
            ready: VecDeque::new(),
            pace: Pace::default(),
            decoder: match coding {
                Coding::Known(decoder) => Some(decoder),
                Coding::Plain | Coding::Unknown => None,
            },
            flow,
            list,
            is_events: is_events && !is_same,
            dialect: self.asked.dialect(),
            watched,
            is_cut: false,
            kept,
            room: Room::new(&self.models.bodies, &self.served.route.workspace_name),
            last: 0,
            account,
            hold: None,
            _open: Open::new(),
        };
        // Beside `Transfer-Encoding` a length counts for nothing.
        let is_measured = !head.headers.contains_key(TRANSFER_ENCODING);
        let length = head.headers.get(CONTENT_LENGTH).filter(|_| is_measured);
        if let (Flow::Same, None, false, Some(length)) =
            (&body.flow, &body.decoder, body.is_events, length)
        {
            headers.insert(CONTENT_LENGTH, length.clone());
        }
        if let Some(first) = first {
            body.take(first);
        }
        Ok(response(head.status, headers, Body::of_model(body)))
    }

    /// Returns how pieces of the provider's answer become pieces of ours.
    fn flow(&self, translation: Option<Translated>, hides_usage: bool) -> Flow {
        let settings = &self.models.settings;
        match translation {
            Some(Translated::Chat(translation)) => {
                let bounds = Bounds { event: settings.event_max, answer: settings.answer_max };
                Flow::Translated(Box::new(translation.bounded(bounds).stream()))
            }
            _ if hides_usage => Flow::WithoutUsage(Held::default()),
            // Embeddings are never streams.
            Some(Translated::Embeddings(_)) | None => Flow::Same,
        }
    }

    /// Returns what hooks look at in a stream of events; `None` if no hook looks at any.
    fn watched(&self, reached: &Reached, spoken: Dialect) -> Option<Watched> {
        let all = self.all_of(reached);
        let watches: Vec<Watch> = all.filter_map(|model| model.hooks.watch()).collect();
        let events = Events::new(self.models.settings.event_max);
        let reader = spoken.words().reader();
        (!watches.is_empty()).then_some(Watched { watches, events, reader })
    }

    /// Returns whether a Gemini stream is to be sent as one JSON list.
    fn wants_list(&self) -> bool {
        let query = self.sent.query.as_deref().unwrap_or_default();
        self.asked.operation == Operation::GeminiStream
            && !query.split('&').any(|parameter| parameter == "alt=sse")
    }

    /// Reads an answer to its end before any of it is passed on.
    async fn whole(
        &self,
        reached: &Reached,
        mut begun: Begun<'_>,
        key: Option<Key>,
    ) -> Result<Response<Body>, Failed> {
        let model = &reached.model;
        let (pieces, room) = match self.gather(&mut begun).await {
            Ok(gathered) => gathered,
            Err(unread) => return Err(unread.failed(model, begun, &self.models.settings)),
        };
        let mut headers = answer_headers(model, &begun, false, key.is_some());
        let read = self.read_whole(reached, &mut begun, pieces).await;
        begun.admission.went_well();
        let body = match read {
            Ok(body) => body,
            Err(problem) => {
                // The provider has done its work, which is charged.
                let counted = Counted::Ends(Box::new(begun.account), ModelOutcome::Answered);
                return Err(Failed::last(model, problem).counted(counted));
            }
        };
        begun.account.log(self.entry(begun.head.status.as_u16(), None));
        body.iter().for_each(|piece| begun.account.sent(piece));
        begun.account.settle(ModelOutcome::Answered);
        if begun.prepared.translation.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let (Some(key), Some(provider)) = (key, &model.route.provider) {
            let mut keeping = Keeping::new(key, self.cache_life(), self.models.cache.answer_max);
            if body.iter().all(|piece| keeping.add(piece)) {
                let owner = &self.served.route.workspace_name;
                let answered = (provider.kind, begun.prepared.model.clone());
                self.models.cache.keep(keeping, owner, headers.clone(), answered);
            }
        }
        Ok(response(begun.head.status, headers, Body::pieces(body, Some(room))))
    }

    /// Reads a whole answer and decompresses it. It counts as answered only once it has proved to
    /// be JSON.
    async fn gather(&self, begun: &mut Begun<'_>) -> Result<(Pieces, Room), Unread> {
        let max = self.models.settings.answer_max;
        let mut coding = Coding::of(&begun.head.headers);
        if matches!(coding, Coding::Unknown) {
            return Err(Unread::Nonsense("it is compressed in a way that is not known"));
        }
        let mut room = Room::new(&self.models.bodies, &self.served.route.workspace_name);
        let (mut pieces, mut length) = (Vec::new(), 0);
        let mut next = begun.first.take();
        loop {
            let piece = match next.take() {
                Some(piece) => piece,
                None => match begun.answer.piece().await {
                    Some(piece) => piece.map_err(|broken| Unread::Cut(broken.into()))?,
                    None => break,
                },
            };
            let piece = match &mut coding {
                Coding::Known(decoder) => {
                    decoder.push(&piece, max).map_err(|bad| Unread::Cut(bad.into()))?
                }
                Coding::Plain | Coding::Unknown => piece,
            };
            length += piece.len();
            begun.account.see(&piece);
            if length > max {
                return Err(Unread::Cut(ModelProblem::LongAnswer(max)));
            }
            room.grow(piece.len()).map_err(Unread::NoRoom)?;
            pieces.push(piece);
        }
        let pieces = Pieces::from_iter(pieces);
        let begins = pieces.iter().flatten().find(|byte| !byte.is_ascii_whitespace());
        if !matches!(begins, Some(b'{' | b'[')) {
            return Err(Unread::Nonsense("it is not JSON"));
        }
        if serde_json::from_slice::<serde::de::IgnoredAny>(&pieces.whole()).is_err() {
            let problem = ModelProblem::BadAnswer("it is not JSON, or not all of it");
            return Err(Unread::Cut(problem));
        }
        Ok((pieces, room))
    }

    async fn read_whole(
        &self,
        reached: &Reached,
        begun: &mut Begun<'_>,
        pieces: Pieces,
    ) -> Result<Pieces, Problem> {
        let body = match &begun.prepared.translation {
            Some(translation) => {
                let owner = &self.served.route.workspace_name;
                let whole = pieces.whole();
                let _values = Room::of_values(&self.models.bodies, owner, &whole)
                    .map_err(Problem::Crowded)?;
                let counted = || input_estimate(&begun.prepared.model, &self.asked.body);
                let translated = translation.answer(&whole, counted);
                Pieces::from(Bytes::from(translated.map_err(ModelProblem::from)?))
            }
            None => pieces,
        };
        if !self.looks_at_answers(reached) {
            return Ok(body);
        }
        let looked = self.look_at(reached, body.whole()).await;
        Ok(Pieces::from(looked.map_err(ModelProblem::from)?))
    }

    pub(crate) fn looks_at_answers(&self, reached: &Reached) -> bool {
        self.all_of(reached).any(|model| model.hooks.any(ModelHookTime::After))
    }

    async fn look_at(&self, reached: &Reached, mut body: Bytes) -> Result<Bytes, Stopped> {
        for model in self.all_of(reached).rev() {
            body = model.hooks.look(ModelHookTime::After, body, self.hooks_ask()).await?;
        }
        Ok(body)
    }

    fn cache_life(&self) -> Duration {
        let ttl = self.served.route.cache.as_ref().map_or(0, |cache| cache.ttl);
        Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
    }
}

/// Why an answer cannot be used.
enum Unread {
    /// It is not a model's answer: nothing is charged, and another model may be asked.
    Nonsense(&'static str),
    /// The provider was at work, which is charged as far as the answer came. Another model may be
    /// asked.
    Cut(ModelProblem),
    /// There is no memory for it here, and there would be none for another model's answer.
    NoRoom(Refused),
}

impl Unread {
    fn failed(self, model: &Arc<Served>, mut begun: Begun<'_>, settings: &ModelSettings) -> Failed {
        let (failed, outcome) = match self {
            Self::Nonsense(why) => {
                begun.account.read_with(None);
                let failed = Failed::of(model, ModelProblem::BadAnswer(why).into());
                let failure = failed.failure.unwrap_or(ModelFailure::ServerError);
                (failed, ModelOutcome::Failed(failure))
            }
            Self::Cut(problem) => (Failed::of(model, problem.into()), ModelOutcome::Interrupted),
            Self::NoRoom(refused) => {
                (Failed::last(model, Problem::Crowded(refused)), ModelOutcome::Interrupted)
            }
        };
        if failed.failure.is_some_and(failure::is_its_own) {
            begun.admission.failed(Instant::now(), settings);
        }
        failed.counted(Counted::Ends(Box::new(begun.account), outcome))
    }
}

/// Returns the head of an answer as the caller gets it. `is_same` says that its body is the
/// provider's, byte for byte.
fn answer_headers(model: &Served, begun: &Begun<'_>, is_same: bool, caches: bool) -> HeaderMap {
    let mut headers = begun.head.headers.clone();
    dress(&mut headers, model, is_same);
    let left_out = begun.prepared.left_out.join(", ");
    if let (false, Ok(left_out)) = (left_out.is_empty(), HeaderValue::try_from(left_out)) {
        headers.insert(LEFT_OUT, left_out);
    }
    if caches {
        headers.insert(CACHE, HeaderValue::from_static("miss"));
    }
    headers
}

/// Returns the first bytes of a stream that were waited for, decompressed.
fn beginning(begun: &Begun<'_>, max: usize) -> Bytes {
    let Some(first) = &begun.first else { return Bytes::new() };
    match Coding::of(&begun.head.headers) {
        // What is compressed wrongly begins with nothing that could be a stream.
        Coding::Known(mut decoder) => decoder.push(first, max).unwrap_or(Bytes::new()),
        Coding::Plain | Coding::Unknown => first.clone(),
    }
}

/// Returns whether this can be the beginning of a stream of events.
fn begins_events(begins: &[u8]) -> bool {
    let begins = begins.strip_prefix(b"\xef\xbb\xbf").unwrap_or(begins).trim_ascii_start();
    let is_field = |field: &&[u8]| {
        let length = field.len().min(begins.len());
        begins[..length] == field[..length]
    };
    !begins.is_empty() && FIELDS.iter().any(is_field)
}

pub(crate) fn is_events(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.as_bytes();
        kind.len() >= EVENTS.len() && kind[..EVENTS.len()].eq_ignore_ascii_case(EVENTS)
    })
}
