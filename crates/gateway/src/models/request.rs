//! What a request asks for. Its body is read whole and parsed once, no deeper than needed.

use super::upstream::Pieces;
use ::models::dialect::Dialect;
use ::models::operation::Operation;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::ops::Range;

/// The members of a request, in any dialect, that decide what is done with it. No others are
/// parsed. What they may be is for the provider to say, so that only their text is kept here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Members<'b> {
    #[serde(borrow, deserialize_with = "present")]
    model: Option<&'b RawValue>,
    #[serde(borrow)]
    stream: Option<&'b RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    stream_options: Option<&'b RawValue>,
    #[serde(borrow)]
    max_tokens: Option<&'b RawValue>,
    #[serde(borrow)]
    max_completion_tokens: Option<&'b RawValue>,
    #[serde(borrow)]
    max_output_tokens: Option<&'b RawValue>,
    #[serde(borrow)]
    n: Option<&'b RawValue>,
    #[serde(borrow)]
    service_tier: Option<&'b RawValue>,
    #[serde(borrow)]
    background: Option<&'b RawValue>,
    #[serde(borrow)]
    user: Option<&'b RawValue>,
    #[serde(borrow)]
    metadata: Option<&'b RawValue>,
    #[serde(borrow)]
    messages: Option<&'b RawValue>,
    #[serde(borrow)]
    input: Option<&'b RawValue>,
    #[serde(borrow)]
    contents: Option<&'b RawValue>,
    #[serde(borrow, rename = "generationConfig", alias = "generation_config")]
    generation: Option<&'b RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata<'b> {
    #[serde(borrow)]
    user_id: Option<Cow<'b, str>>,
    #[serde(borrow)]
    tag: Option<Cow<'b, str>>,
}

/// The most answers that Gemini gives to one request.
const CANDIDATES_MAX: u64 = 8;

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Generation {
    #[serde(alias = "max_output_tokens")]
    max_output_tokens: Option<u64>,
    #[serde(alias = "candidate_count")]
    candidate_count: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl Members<'_> {
    /// Returns the maximum tokens of an answer and the number of answers, from the members that
    /// count in the dialect. Members of another dialect, which the provider does not read, must not
    /// lower the bound.
    fn bounds(&self, dialect: Option<Dialect>) -> (Option<u64>, u64) {
        let generation = || match self.generation {
            Some(_) => read::<Generation>(self.generation),
            None => Some(Generation::default()),
        };
        let (tokens, choices) = match dialect {
            Some(Dialect::OpenAi) => {
                let tokens = largest(&[self.max_tokens, self.max_completion_tokens]);
                let choices = match count(self.n) {
                    Count::Unsaid => None,
                    Count::Is(choices) => Some(choices),
                    // Some servers accept numbers in more forms than we do, and have no maximum.
                    Count::Unknown => Some(u64::MAX),
                };
                (tokens, choices)
            }
            Some(Dialect::Responses) => (largest(&[self.max_output_tokens]), None),
            Some(Dialect::Anthropic | Dialect::Cohere) => (largest(&[self.max_tokens]), None),
            Some(Dialect::Gemini) => {
                let generation = generation();
                // The provider accepts numbers in more forms than we do.
                let choices = generation.map_or(Some(CANDIDATES_MAX), |read| read.candidate_count);
                (generation.and_then(|read| read.max_output_tokens), choices)
            }
            None => (None, None),
        };
        (tokens, choices.unwrap_or(1).max(1))
    }
}

/// How many tokens or answers a member asks for.
enum Count {
    Unsaid,
    Is(u64),
    /// Less than none, which means no limit to some servers, or nothing that we can read.
    Unknown,
}

fn count(said: Option<&RawValue>) -> Count {
    let Some(said) = said else { return Count::Unsaid };
    if let Ok(count) = said.get().parse() {
        return Count::Is(count);
    }
    match read::<f64>(Some(said)) {
        // Beyond all whole numbers of this type it is the largest one.
        Some(float) if float >= 0.0 && float.fract() == 0.0 => Count::Is(float as u64),
        _ => Count::Unknown,
    }
}

/// Returns the largest of several maximums. `None` means that none is said, or that one of them may
/// mean any number.
fn largest(said: &[Option<&RawValue>]) -> Option<u64> {
    let mut largest = None;
    for said in said {
        match count(*said) {
            Count::Unsaid => {}
            Count::Is(count) => largest = largest.max(Some(count)),
            Count::Unknown => return None,
        }
    }
    largest
}

/// A request that has been read.
#[derive(Debug, Clone)]
pub(crate) struct ModelRequest {
    pub(crate) operation: Operation,
    /// The dialect of the path, if the request is for a count of tokens.
    pub(crate) counts_in: Option<Dialect>,
    pub(crate) body: Bytes,
    /// Whether the body is a JSON object, so that members can be set in it.
    is_object: bool,
    /// Where the value of `model` is, with its quotes.
    model_at: Option<Range<usize>>,
    /// The value of `model`.
    pub(crate) model: Option<String>,
    pub(crate) is_stream: bool,
    stream_options_at: Option<Range<usize>>,
    pub(crate) wants_usage: bool,
    pub(crate) max_output: Option<u64>,
    pub(crate) choices: u64,
    /// Whether the provider keeps the answer to be fetched later.
    pub(crate) is_background: bool,
    /// Whether it is to be answered before others, which costs more.
    pub(crate) has_priority: bool,
    pub(crate) end_user: Option<String>,
    pub(crate) tag: Option<String>,
    /// Where the messages are, by whose beginning a conversation is recognised.
    conversation_at: Option<Range<usize>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BadBody {
    #[error("the body is not JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("the body can be read in two ways: {0}")]
    Twice(serde_json::Error),
    #[error("the body must be a JSON object")]
    NotAnObject,
    #[error("`model` must be a text")]
    Model,
    #[error("`{0}` must be true or false")]
    NotBool(&'static str),
}

impl From<serde_json::Error> for BadBody {
    fn from(error: serde_json::Error) -> Self {
        // Members may be anything, but each only once.
        if error.is_data() { Self::Twice(error) } else { Self::NotJson(error) }
    }
}

/// Longest end user or tag that is kept for counting, in characters.
const WORD_MAX: usize = 128;

impl ModelRequest {
    /// Reads a request. `path` is the part after the name of the model.
    pub(crate) fn read(path: &str, body: Bytes) -> Result<Self, BadBody> {
        let operation = Operation::of(path);
        let mut asked = Self {
            operation,
            counts_in: counts_in(path),
            body: Bytes::new(),
            is_object: false,
            model_at: None,
            model: None,
            is_stream: operation == Operation::GeminiStream,
            stream_options_at: None,
            wants_usage: false,
            max_output: None,
            choices: 1,
            is_background: false,
            has_priority: false,
            end_user: None,
            tag: None,
            conversation_at: None,
        };
        let must_be_json = asked.is_json();
        let is_object = first_byte(&body) == Some(b'{');
        if is_object {
            match serde_json::from_slice::<Members<'_>>(&body) {
                Ok(members) => asked.take(&members, &body)?,
                Err(error) if must_be_json => return Err(error.into()),
                // A file, for example: its provider knows what it is.
                Err(_) => {}
            }
        } else if must_be_json {
            return Err(match serde_json::from_slice::<serde::de::IgnoredAny>(&body) {
                Err(error) => BadBody::NotJson(error),
                Ok(_) => BadBody::NotAnObject,
            });
        }
        asked.body = body;
        Ok(asked)
    }

    fn take(&mut self, members: &Members<'_>, body: &[u8]) -> Result<(), BadBody> {
        self.is_object = true;
        if let Some(model) = members.model.filter(|model| model.get() != "null") {
            self.model = Some(serde_json::from_str(model.get()).map_err(|_| BadBody::Model)?);
            self.model_at = place_of(model, body);
        } else {
            self.model_at = members.model.and_then(|model| place_of(model, body));
        }
        let is_stream = self.is_true("stream", members.stream)?;
        self.is_stream |= self.is_chat() && is_stream;
        self.stream_options_at = members.stream_options.and_then(|value| place_of(value, body));
        let options: Option<StreamOptions> = read(members.stream_options);
        self.wants_usage = options.and_then(|options| options.include_usage) == Some(true);
        (self.max_output, self.choices) = members.bounds(self.dialect());
        let tier: Option<Cow<'_, str>> = read(members.service_tier);
        self.is_background = self.is_true("background", members.background)?;
        self.has_priority = tier.as_deref() == Some("priority");
        let metadata: Metadata<'_> = read(members.metadata).unwrap_or_default();
        let user = members.user.and_then(name_of).or(metadata.user_id);
        self.end_user = user.as_deref().and_then(word);
        self.tag = metadata.tag.as_deref().and_then(word);
        let conversation = members.messages.or(members.input).or(members.contents);
        self.conversation_at = conversation.and_then(|value| place_of(value, body));
        Ok(())
    }

    /// Reads a member that decides how a request is counted, so that the provider must not read
    /// another answer in it than we do.
    fn is_true(&self, name: &'static str, said: Option<&RawValue>) -> Result<bool, BadBody> {
        match said.map_or("false", RawValue::get) {
            "true" => Ok(true),
            "false" => Ok(false),
            _ if self.is_json() => Err(BadBody::NotBool(name)),
            _ => Ok(false),
        }
    }

    /// Returns the same request with another body.
    pub(crate) fn with_body(&self, body: Bytes) -> Result<Self, BadBody> {
        let mut asked =
            Self { model_at: None, stream_options_at: None, conversation_at: None, ..self.clone() };
        asked.take(&serde_json::from_slice(&body)?, &body)?;
        asked.body.clone_from(&body);
        Ok(asked)
    }

    /// Returns the dialect in which the caller reads answers and errors.
    pub(crate) const fn dialect(&self) -> Option<Dialect> {
        match self.operation {
            Operation::Chat(dialect) | Operation::Embeddings(dialect) => Some(dialect),
            Operation::GeminiStream => Some(Dialect::Gemini),
            Operation::Models => Some(Dialect::OpenAi),
            Operation::Other => None,
        }
    }

    /// Returns whether the request is for an answer that is counted in tokens.
    pub(crate) const fn is_chat(&self) -> bool {
        matches!(self.operation, Operation::Chat(_) | Operation::GeminiStream)
    }

    /// Returns whether the body had to be JSON to be read, whatever type the caller gave it.
    pub(crate) const fn is_json(&self) -> bool {
        self.is_chat() || self.is_count() || matches!(self.operation, Operation::Embeddings(_))
    }

    /// Returns whether the request is for a count of tokens, which is free and makes nothing.
    pub(crate) const fn is_count(&self) -> bool {
        self.counts_in.is_some()
    }

    /// Returns whether the model is named in the body. Gemini's are in paths, and it refuses members
    /// that it does not know.
    pub(crate) fn names_model(&self) -> bool {
        self.is_json() && self.dialect().or(self.counts_in) != Some(Dialect::Gemini)
    }

    /// Returns the body to send on, with `model` set to the given one and usage asked for. The
    /// caller's bytes are not copied.
    pub(crate) fn spliced(&self, model: Option<&str>, adds_usage: bool) -> Pieces {
        let mut changes: Vec<(Range<usize>, Bytes)> = Vec::with_capacity(2);
        let mut members = String::new();
        if !self.is_object {
            return Pieces::from(self.body.clone());
        }
        if let Some(model) = model.filter(|model| self.model.as_deref() != Some(model)) {
            match &self.model_at {
                Some(at) => changes.push((at.clone(), Bytes::from(quoted(model)))),
                None => members.push_str(&format!("\"model\":{},", quoted(model))),
            }
        }
        if adds_usage {
            match &self.stream_options_at {
                Some(at) => changes.push((at.clone(), with_usage(&self.body[at.clone()]))),
                None => members.push_str(&format!("\"stream_options\":{USAGE},")),
            }
        }
        if !members.is_empty()
            && let Some(open) = memchr::memchr(b'{', &self.body)
        {
            let is_empty = first_byte(&self.body[open + 1..]) == Some(b'}');
            if is_empty {
                members.pop();
            }
            changes.push((open + 1..open + 1, Bytes::from(members)));
        }
        changes.sort_by_key(|(at, _)| at.start);
        let mut pieces = Vec::with_capacity(changes.len() * 2 + 1);
        let mut from = 0;
        for (at, new) in changes {
            pieces.push(self.body.slice(from..at.start));
            pieces.push(new);
            from = at.end;
        }
        pieces.push(self.body.slice(from..));
        Pieces::from_iter(pieces)
    }

    /// Returns a number that all requests of one conversation share, even if they do not name it:
    /// it is made from the first message that a person wrote.
    pub(crate) fn conversation(&self) -> Option<u64> {
        let at = self.conversation_at.clone()?;
        let text = &self.body[at];
        let first: &[u8] = match serde_json::from_slice::<Vec<&RawValue>>(text) {
            Ok(messages) => {
                let begins = |message: &&&RawValue| message.get().contains("\"user\"");
                let first = messages.iter().find(begins).or(messages.first())?;
                first.get().as_bytes()
            }
            // `input` may be a plain string.
            Err(_) => text,
        };
        Some(point(first))
    }
}

fn counts_in(path: &str) -> Option<Dialect> {
    match path.rsplit('/').next()? {
        "count_tokens" => Some(Dialect::Anthropic),
        last => last.ends_with(":countTokens").then_some(Dialect::Gemini),
    }
}

/// Maps text to a point among all possible ones.
pub(crate) fn point(bytes: &[u8]) -> u64 {
    let digest = Sha256::digest(bytes);
    digest.iter().take(8).fold(0, |point, byte| point << 8 | u64::from(*byte))
}

/// Returns the text in a form that can be counted by. `None` means nothing is left of it.
pub(crate) fn word(text: &str) -> Option<String> {
    let text = text.trim();
    let short: String = text.chars().filter(|c| !c.is_control()).take(WORD_MAX).collect();
    (!short.is_empty()).then_some(short)
}

/// Returns what an end user is called by: some count theirs.
fn name_of(value: &RawValue) -> Option<Cow<'_, str>> {
    match value.get() {
        number if number.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
            Some(Cow::Borrowed(number))
        }
        _ => read(Some(value)),
    }
}

/// Also present when it is `null`: setting it must not add the member a second time.
fn present<'b, D: Deserializer<'b>>(from: D) -> Result<Option<&'b RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

fn read<'b, T: Deserialize<'b>>(value: Option<&'b RawValue>) -> Option<T> {
    value.and_then(|value| serde_json::from_str(value.get()).ok())
}

const USAGE: &str = r#"{"include_usage":true}"#;

/// Returns the options of a stream with usage asked for, and everything else in them unchanged.
fn with_usage(options: &[u8]) -> Bytes {
    match serde_json::from_slice::<serde_json::Map<_, _>>(options) {
        Ok(mut options) => {
            options.insert("include_usage".to_owned(), true.into());
            serde_json::Value::Object(options).to_string().into()
        }
        Err(_) => Bytes::from_static(USAGE.as_bytes()),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn first_byte(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|byte| !byte.is_ascii_whitespace())
}

/// Returns the position of a value that was parsed from these bytes.
fn place_of(value: &RawValue, body: &[u8]) -> Option<Range<usize>> {
    let text = value.get();
    let start = (text.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let at = start..start.checked_add(text.len())?;
    (body.get(at.clone())? == text.as_bytes()).then_some(at)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
