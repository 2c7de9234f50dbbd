//! Checks on requests before they go out, and on answers before they come in, as users configure
//! them.

use super::Room;
use super::patterns::{TooSlow, boundary_before, compiled, find, is_json, masked, says_twice};
use super::settings::AnswerTimeouts;
use super::texts::{Unseen, rewritten};
use super::upstream::{Broken, Outgoing, Pieces, SharedClient, Uncollected};
use admission::{Pool, Refused, Turns};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Uri};
use regex::Regex;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use types::kinds::model::{ModelHook, ModelHookAction, ModelHookTime};
use types::models::ModelRoute;

/// How far apart in a stream the two ends of a match may lie, in bytes.
const WINDOW: usize = 4 << 10;
/// Most texts of one stream that are searched side by side.
const WINDOWS_MAX: usize = 256;
/// How long searching may hold up a stream in all, plus an allowance for each byte that is
/// searched. Usual patterns take a hundredth of that.
const WATCH_TIME: Duration = Duration::from_secs(1);
const WATCH_TIME_OF_BYTE: Duration = Duration::from_micros(2);
const TOO_SLOW: &str = "its pattern takes too long to look for";
const TOO_DEEP: &str = "its JSON is nested too deep to be looked at";
const UNREADABLE: &str = "a text in its JSON cannot be read";
const TOO_MANY: &str = "the answer has too many parts that come side by side";
const BLINDED: &str = "the answer cannot be read, so nothing can be looked for in it";
const WHOLE_ONLY: &str = "its webhook looks at whole answers only, so ask for one without `stream`";
/// Largest answer of a webhook, in bytes.
const ANSWER_MAX: usize = 8 << 20;

#[derive(Default)]
pub(crate) struct Hooks {
    hooks: Vec<Hook>,
}

/// What hooks need to run.
#[derive(Clone, Copy)]
pub(crate) struct HooksAsk<'a> {
    pub(crate) client: &'a SharedClient,
    pub(crate) looks: &'a Turns,
    /// Memory for what has to be parsed.
    pub(crate) bodies: &'a Pool<String>,
    pub(crate) owner: &'a str,
    /// Time limit for each hook.
    pub(crate) time: Duration,
}

#[derive(Clone)]
struct Hook {
    /// Its position among the hooks of the model's wish, from 0.
    number: usize,
    when: ModelHookTime,
    what: What,
    optional: bool,
}

#[derive(Clone)]
enum What {
    Pattern {
        pattern: Regex,
        action: ModelHookAction,
    },
    Webhook(Uri),
    /// The hook cannot be used. Whatever it should have checked does not pass.
    Broken(String),
}

/// A body that a hook has changed, with the room that it takes.
struct Changed {
    bytes: Bytes,
    _room: Room,
}

impl Changed {
    /// Returns bytes whose last clone gives the room back.
    fn kept(bytes: Bytes, room: Room) -> Bytes {
        Bytes::from_owner(Self { bytes, _room: room })
    }
}

impl AsRef<[u8]> for Changed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Why something does not pass.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    #[error("hook {number} of the model refuses {what}{}", why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Blocked { number: usize, what: &'static str, why: Option<String> },
    #[error("hook {number} of the model does not work: {why}")]
    Failed { number: usize, why: String },
    #[error("{0}")]
    Crowded(#[from] Refused),
}

impl Hooks {
    pub(crate) fn new(route: &ModelRoute) -> Self {
        let hooks = route.hooks.iter().enumerate().map(|(number, hook)| Hook {
            number,
            when: hook.when,
            what: What::of(hook),
            optional: hook.optional == Some(true),
        });
        Self { hooks: hooks.collect() }
    }

    fn at(&self, when: ModelHookTime) -> impl Iterator<Item = &Hook> {
        self.hooks.iter().filter(move |hook| hook.when == when)
    }

    pub(crate) fn any(&self, when: ModelHookTime) -> bool {
        self.at(when).next().is_some()
    }

    /// Runs all hooks for this time, and returns the body that may pass.
    pub(crate) async fn look(
        &self,
        when: ModelHookTime,
        body: Bytes,
        ask: HooksAsk<'_>,
    ) -> Result<Bytes, Stopped> {
        let mut body = body;
        if when == ModelHookTime::Before && self.any(when) {
            self.says_nothing_twice(&body, ask).await?;
        }
        for hook in self.at(when) {
            let looked = match &hook.what {
                What::Pattern { pattern, action } => {
                    hook.pattern(pattern, *action, &body, ask).await
                }
                What::Webhook(uri) => hook.webhook(uri, &body, ask).await,
                What::Broken(why) => Err(hook.failed(why.clone())),
            };
            match looked {
                Ok(Some(changed)) => body = changed,
                Ok(None) => {}
                Err(Stopped::Failed { .. }) if hook.optional => {}
                Err(stopped) => return Err(stopped),
            }
        }
        Ok(body)
    }

    /// Refuses JSON with duplicate members, so that every hook and every provider reads the same in
    /// it.
    async fn says_nothing_twice(&self, body: &Bytes, ask: HooksAsk<'_>) -> Result<(), Stopped> {
        let Some(first) = self.at(ModelHookTime::Before).next() else { return Ok(()) };
        let body = body.clone();
        match first.beside(ask, move |_| says_twice(&body)).await? {
            true => Err(Stopped::Blocked {
                number: first.number,
                what: first.seen(),
                why: Some("a member of its JSON is there twice".to_owned()),
            }),
            false => Ok(()),
        }
    }

    /// Refuses a stream if a hook has to look at it and cannot. Webhooks look at whole answers.
    pub(crate) fn must_see_streams(&self) -> Result<(), Stopped> {
        let mut needed = self.at(ModelHookTime::After).filter(|hook| !hook.optional);
        needed.try_for_each(|hook| match &hook.what {
            What::Pattern { .. } => Ok(()),
            What::Webhook(_) => Err(Stopped::Blocked {
                number: hook.number,
                what: "the request",
                why: Some(WHOLE_ONLY.to_owned()),
            }),
            What::Broken(why) => Err(hook.failed(why.clone())),
        })
    }

    /// Returns the search for the text of a stream, as it passes.
    pub(crate) fn watch(&self) -> Option<Watch> {
        let patterns = self.at(ModelHookTime::After).filter_map(|hook| match &hook.what {
            What::Pattern { pattern, .. } => Some((hook.number, pattern.clone())),
            _ => None,
        });
        let patterns: Vec<_> = patterns.collect();
        (!patterns.is_empty()).then(|| Watch {
            patterns,
            windows: HashMap::new(),
            left: WATCH_TIME,
        })
    }
}

/// Searches text that has already been sent, so it can only cut off what would follow.
pub(crate) struct Watch {
    patterns: Vec<(usize, Regex)>,
    windows: HashMap<TextOfAnswer, String>,
    /// Time left for searching.
    left: Duration,
}

/// Which text of an answer a piece belongs to. The pieces of several texts come mixed: several
/// answers to one request, reasoning and the answer itself, calls of several tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TextOfAnswer {
    pub(crate) choice: u32,
    pub(crate) part: PartOfAnswer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PartOfAnswer {
    Text,
    Refusal,
    Reasoning,
    Call(u32),
}

impl Watch {
    pub(crate) fn look(&mut self, place: TextOfAnswer, text: &str) -> Result<(), Stopped> {
        let full = self.windows.len() >= WINDOWS_MAX && !self.windows.contains_key(&place);
        if let (true, Some((number, _))) = (full, self.patterns.first()) {
            return Err(Stopped::Failed { number: *number, why: TOO_MANY.to_owned() });
        }
        let window = self.windows.entry(place).or_default();
        window.push_str(text);
        for (number, pattern) in &self.patterns {
            let (number, began) = (*number, Instant::now());
            if pattern.is_match(window) {
                return Err(Stopped::Blocked { number, what: "the answer", why: None });
            }
            let bytes = u32::try_from(window.len()).unwrap_or(u32::MAX);
            self.left += WATCH_TIME_OF_BYTE * bytes;
            self.left = self
                .left
                .checked_sub(began.elapsed())
                .ok_or_else(|| Stopped::Failed { number, why: TOO_SLOW.to_owned() })?;
        }
        if window.len() > 2 * WINDOW {
            let from = boundary_before(window, window.len() - WINDOW);
            window.drain(..from);
        }
        Ok(())
    }

    /// Returns the error for an answer that cannot be read, and so cannot be searched.
    pub(crate) fn blinded(&self) -> Stopped {
        let number = self.patterns.first().map_or(0, |(number, _)| *number);
        Stopped::Failed { number, why: BLINDED.to_owned() }
    }
}

impl What {
    fn of(hook: &ModelHook) -> Self {
        match (&hook.pattern, &hook.webhook) {
            (Some(pattern), _) => match compiled(pattern) {
                Ok(pattern) => {
                    let action = hook.action.unwrap_or(ModelHookAction::Block);
                    Self::Pattern { pattern, action }
                }
                Err(why) => Self::Broken(why),
            },
            (None, Some(url)) => match url.parse() {
                Ok(uri) => Self::Webhook(uri),
                Err(_) => Self::Broken("its address is none".to_owned()),
            },
            (None, None) => Self::Broken("it has neither a pattern nor an address".to_owned()),
        }
    }
}

impl Hook {
    const fn seen(&self) -> &'static str {
        match self.when {
            ModelHookTime::Before => "the request",
            ModelHookTime::After => "the answer",
        }
    }

    fn failed(&self, why: impl Into<String>) -> Stopped {
        Stopped::Failed { number: self.number, why: why.into() }
    }

    async fn pattern(
        &self,
        pattern: &Regex,
        action: ModelHookAction,
        body: &Bytes,
        ask: HooksAsk<'_>,
    ) -> Result<Option<Bytes>, Stopped> {
        let values = Room::of_values(ask.bodies, ask.owner, body)?;
        let mut room = Room::new(ask.bodies, ask.owner);
        if action == ModelHookAction::Mask {
            room.hold(body.len())?;
        }
        let (hook, pattern, body) = (self.clone(), pattern.clone(), body.clone());
        let looked = self.beside(ask, move |until| {
            let _values = values;
            let Some(changed) = hook.look_for(&pattern, action, &body, until)? else {
                return Ok(None);
            };
            // It may have become longer.
            room.hold(changed.len())?;
            Ok(Some(Changed::kept(changed, room)))
        });
        looked.await?
    }

    /// Runs work that may take long on another thread, within the workspace's turns.
    async fn beside<T: Send + 'static>(
        &self,
        ask: HooksAsk<'_>,
        work: impl FnOnce(Instant) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let Ok(turn) = tokio::time::timeout(ask.time, ask.looks.take(ask.owner)).await else {
            return Err(self.failed("too much of the workspace is being looked at"));
        };
        let until = Instant::now() + ask.time;
        let working = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(until)
        });
        working.await.map_err(|error| self.failed(error.to_string()))
    }

    /// Searches a body. In JSON, texts are compared by what they mean, however they are written.
    fn look_for(
        &self,
        pattern: &Regex,
        action: ModelHookAction,
        body: &Bytes,
        until: Instant,
    ) -> Result<Option<Bytes>, Stopped> {
        let mut found = false;
        let mut see = |text: &str| -> Result<Option<String>, TooSlow> {
            match action {
                ModelHookAction::Block => {
                    found |= find(pattern, text, 0, until)?.is_some();
                    Ok(None)
                }
                ModelHookAction::Mask => masked(pattern, text, until),
            }
        };
        let changed = match (std::str::from_utf8(body), is_json(body)) {
            (Ok(json), true) => rewritten(json, &mut see),
            (Err(_), true) => Err(Unseen::Unreadable),
            (_, false) => see(&String::from_utf8_lossy(body)).map_err(Unseen::from),
        };
        // Even if not all of it can be seen.
        if found {
            let Self { number, .. } = *self;
            return Err(Stopped::Blocked { number, what: self.seen(), why: None });
        }
        let changed = changed.map_err(|unseen| match unseen {
            Unseen::TooSlow => self.failed(TOO_SLOW),
            Unseen::TooDeep => self.not_seen(TOO_DEEP),
            Unseen::Unreadable => self.not_seen(UNREADABLE),
        })?;
        Ok(changed.map(Bytes::from))
    }

    /// Refuses what cannot be looked at. A request is at fault itself; an answer is not the
    /// caller's.
    fn not_seen(&self, why: &str) -> Stopped {
        match self.when {
            ModelHookTime::Before if !self.optional => {
                let why = Some(why.to_owned());
                Stopped::Blocked { number: self.number, what: self.seen(), why }
            }
            _ => self.failed(why),
        }
    }

    async fn webhook(
        &self,
        uri: &Uri,
        body: &Bytes,
        ask: HooksAsk<'_>,
    ) -> Result<Option<Bytes>, Stopped> {
        let HooksAsk { client, owner, time, .. } = ask;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = Pieces::from(body.clone());
        let request = Outgoing { method: Method::POST, uri: uri.clone(), headers, body };
        let timeouts = AnswerTimeouts { first: time, between: time, total: time };
        let answer = client.ask(request, owner, timeouts).await;
        let mut answer = answer.map_err(|error| self.failed(unanswered(&error)))?;
        let status = answer.status();
        let mut room = Room::new(ask.bodies, owner);
        let read = answer.body_mut().collect_in(&mut room, ANSWER_MAX).await;
        let (pieces, is_all) = read.map_err(|error| match error {
            Uncollected::Broken(error) => self.failed(unanswered(&error)),
            Uncollected::NoRoom(refused) => Stopped::Crowded(refused),
        })?;
        let answer = Pieces::from_iter(pieces).whole();
        if status.is_success() && !is_all {
            return Err(self.failed(format!("it answers more than {ANSWER_MAX} bytes")));
        }
        if status.is_success() {
            return match (answer.is_empty(), is_json(&answer)) {
                (true, _) => Ok(None),
                (false, true) => Ok(Some(Changed::kept(answer, room))),
                (false, false) => Err(self.failed("it answers something else than JSON")),
            };
        }
        if status.is_client_error() {
            let why = Some(String::from_utf8_lossy(&answer).chars().take(200).collect::<String>());
            let why = why.filter(|why| !why.trim().is_empty());
            return Err(Stopped::Blocked { number: self.number, what: self.seen(), why });
        }
        Err(self.failed(format!("it answers {}", status.as_u16())))
    }
}

/// Says why a webhook gave no answer: the texts of [`Broken`] are about providers.
fn unanswered(error: &Broken) -> String {
    match error {
        Broken::Unreachable(error) => error.to_string(),
        Broken::Cut(error) => format!("it ended the connection: {}", types::chain(error)),
        Broken::Silent(time) | Broken::OutOfTime(time) => {
            format!("it did not answer within {} ms", time.as_millis())
        }
    }
}

#[cfg(test)]
#[path = "hooks_tests.rs"]
mod tests;
