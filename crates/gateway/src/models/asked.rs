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
/// parsed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Members<'b> {
    #[serde(borrow, deserialize_with = "present")]
    model: Option<&'b RawValue>,
    stream: Option<bool>,
    #[serde(borrow, deserialize_with = "present")]
    stream_options: Option<&'b RawValue>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    n: Option<u64>,
    #[serde(borrow)]
    service_tier: Option<&'b RawValue>,
    background: Option<bool>,
    #[serde(borrow)]
    user: Option<Cow<'b, str>>,
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
            Some(Dialect::OpenAi) => (self.max_completion_tokens.max(self.max_tokens), self.n),
            Some(Dialect::Responses) => (self.max_output_tokens, None),
            Some(Dialect::Anthropic | Dialect::Cohere) => (self.max_tokens, None),
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

/// A request that has been read.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) operation: Operation,
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
    #[error("the body must be a JSON object")]
    NotAnObject,
    #[error("`model` must be a text")]
    Model,
}

/// Longest end user or tag that is kept for counting, in characters.
const WORD_MAX: usize = 128;

impl Asked {
    /// Reads a request. `path` is the part after the name of the model.
    pub(crate) fn read(path: &str, body: Bytes) -> Result<Self, BadBody> {
        let operation = Operation::of(path);
        let mut asked = Self {
            operation,
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
                Err(error) if must_be_json => return Err(BadBody::NotJson(error)),
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
        self.is_stream |= self.is_chat() && members.stream == Some(true);
        self.stream_options_at = members.stream_options.and_then(|value| place_of(value, body));
        let options: Option<StreamOptions> = read(members.stream_options);
        self.wants_usage = options.and_then(|options| options.include_usage) == Some(true);
        (self.max_output, self.choices) = members.bounds(self.dialect());
        let tier: Option<Cow<'_, str>> = read(members.service_tier);
        self.is_background = members.background == Some(true);
        self.has_priority = tier.as_deref() == Some("priority");
        let metadata: Metadata<'_> = read(members.metadata).unwrap_or_default();
        let user = members.user.as_deref().or(metadata.user_id.as_deref());
        self.end_user = user.and_then(word);
        self.tag = metadata.tag.as_deref().and_then(word);
        let conversation = members.messages.or(members.input).or(members.contents);
        self.conversation_at = conversation.and_then(|value| place_of(value, body));
        Ok(())
    }

    /// Returns the same request with another body.
    pub(crate) fn with_body(&self, body: Bytes) -> Result<Self, BadBody> {
        let mut asked =
            Self { model_at: None, stream_options_at: None, conversation_at: None, ..self.clone() };
        asked.take(&serde_json::from_slice(&body).map_err(BadBody::NotJson)?, &body)?;
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
        self.is_chat() || matches!(self.operation, Operation::Embeddings(_))
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const CHAT: &str = "/v1/chat/completions";

    fn asked(body: &str) -> Asked {
        Asked::read(CHAT, Bytes::copy_from_slice(body.as_bytes())).unwrap()
    }

    fn sent(body: &str, model: Option<&str>, usage: bool) -> String {
        String::from_utf8(asked(body).spliced(model, usage).whole().to_vec()).unwrap()
    }

    #[test]
    fn a_model_is_filled_in_or_replaced_and_nothing_else_changes() {
        let body = r#" { "x" : 1.0e2, "model" : "mine" ,"y":[ ] } "#;
        assert_eq!(sent(body, None, false), body);
        assert_eq!(sent(body, Some("mine"), false), body);
        assert_eq!(sent(body, Some("g\"4"), false), body.replace("\"mine\"", r#""g\"4""#));
        assert_eq!(sent(r#"{"a":1}"#, Some("g"), false), r#"{"model":"g","a":1}"#);
        assert_eq!(sent("{ }", Some("g"), false), r#"{"model":"g" }"#);
        assert_eq!(sent(r#"{"model":null}"#, Some("g"), false), r#"{"model":"g"}"#);
    }

    #[test]
    fn answers_that_cannot_be_counted_are_as_many_as_there_may_be() {
        let path = "/v1beta/models/g:generateContent";
        let choices = |config: &str| {
            let body = format!("{{\"generationConfig\":{config}}}");
            Asked::read(path, Bytes::from(body)).unwrap().choices
        };
        assert_eq!((choices("{}"), choices("null")), (1, 1));
        assert_eq!(choices(r#"{"candidateCount":3}"#), 3);
        assert_eq!(choices(r#"{"candidateCount":"2"}"#), CANDIDATES_MAX);
        assert_eq!(choices(r#"{"candidateCount":1,"candidate_count":8}"#), CANDIDATES_MAX);
    }

    #[test]
    fn a_call_before_others_is_known_however_it_is_written() {
        for body in [r#"{"service_tier":"priority"}"#, r#"{"service_tier":"prior\u0069ty"}"#] {
            assert!(asked(body).has_priority, "{body}");
        }
        for body in ["{}", r#"{"service_tier":"flex"}"#, r#"{"service_tier":["priority"]}"#] {
            assert!(!asked(body).has_priority, "{body}");
        }
    }

    #[test]
    fn usage_is_asked_for_in_streams_that_do_not() {
        assert_eq!(
            sent(r#"{"model":"m","stream":true}"#, Some("g"), true),
            format!(r#"{{"stream_options":{USAGE},"model":"g","stream":true}}"#)
        );
        let body = r#"{"stream_options":{"include_usage":false},"stream":true}"#;
        assert_eq!(
            sent(body, None, true),
            format!(r#"{{"stream_options":{USAGE},"stream":true}}"#)
        );
        let more = r#"{"stream_options":{"include_obfuscation":false},"stream":true}"#;
        let sent: serde_json::Value = serde_json::from_str(&sent(more, None, true)).unwrap();
        assert_eq!(sent["stream_options"]["include_usage"], true);
        assert_eq!(sent["stream_options"]["include_obfuscation"], false, "the rest stays");
        assert!(asked(r#"{"stream_options":{"include_usage":true}}"#).wants_usage);
    }

    #[test]
    fn what_is_counted_by_is_read_in_every_dialect() {
        let openai = asked(r#"{"max_tokens":5,"max_completion_tokens":7,"n":2,"user":"u"}"#);
        assert_eq!((openai.max_output, openai.choices), (Some(7), 2));
        assert_eq!(openai.end_user.as_deref(), Some("u"));
        let in_words_of = |path: &str, body: &str| {
            Asked::read(path, Bytes::copy_from_slice(body.as_bytes())).unwrap()
        };
        let body =
            r#"{"max_tokens":5,"max_completion_tokens":1,"metadata":{"user_id":"a","tag":"t"}}"#;
        let anthropic = in_words_of("/v1/messages", body);
        assert_eq!(anthropic.end_user.as_deref(), Some("a"));
        assert_eq!((anthropic.tag.as_deref(), anthropic.max_output), (Some("t"), Some(5)));
        for body in [
            r#"{"max_tokens":1,"generationConfig":{"maxOutputTokens":9,"candidateCount":3}}"#,
            r#"{"max_tokens":1,"generation_config":{"max_output_tokens":9,"candidate_count":3}}"#,
        ] {
            let gemini = in_words_of("/v1beta/models/g:generateContent", body);
            assert_eq!((gemini.max_output, gemini.choices), (Some(9), 3));
        }
        let both = r#"{"generationConfig":{"maxOutputTokens":9,"max_output_tokens":1}}"#;
        assert_eq!(in_words_of("/v1beta/models/g:generateContent", both).max_output, None);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for body in ["", "{", "[]", "7", "{\"model\":\"a\",\"model\":\"b\"}", "{\"model\":1}"] {
            assert!(Asked::read(CHAT, Bytes::copy_from_slice(body.as_bytes())).is_err(), "{body}");
        }
        assert!(Asked::read("/v1/files", Bytes::from_static(b"\x00\x01")).is_ok());
    }

    #[test]
    fn a_conversation_is_known_by_how_it_began() {
        let of = |body: &Value| asked(&body.to_string()).conversation();
        let first = json!({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]});
        let later = json!({"messages": [{"role": "system", "content": "new"}, {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]});
        let other = json!({"messages": [{"role": "user", "content": "b"}]});
        assert_eq!(of(&first), of(&later));
        assert_ne!(of(&first), of(&other));
        assert!(of(&json!({"input": "text"})).is_some());
        assert_eq!(of(&json!({})), None);
    }

    proptest! {
        /// Whatever else a body has, it reads the same afterwards, with these members set.
        #[test]
        fn only_what_is_set_changes(keys in proptest::collection::btree_map("[a-l]{1,4}", ".{0,8}", 0..5), model in proptest::option::of(".{0,6}"), stream in any::<bool>()) {
            let mut body = serde_json::Map::new();
            body.extend(keys.into_iter().map(|(key, value)| (key, Value::from(value))));
            if let Some(model) = &model {
                body.insert("model".into(), model.clone().into());
            }
            body.insert("stream".into(), stream.into());
            let text = Value::Object(body.clone()).to_string();
            let sent: Value = serde_json::from_str(&sent(&text, Some("new"), stream)).unwrap();
            body.insert("model".into(), "new".into());
            if stream {
                body.insert("stream_options".into(), json!({"include_usage": true}));
            }
            prop_assert_eq!(sent, Value::Object(body));
        }

        #[test]
        fn no_body_is_trouble(body in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Asked::read(CHAT, body.clone().into());
            if let Ok(asked) = Asked::read("/x", body.into()) {
                asked.spliced(Some("m"), true).whole();
                asked.conversation();
            }
        }
    }
}
