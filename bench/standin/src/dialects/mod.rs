//! Each provider's dialect, as its documentation describes it.

mod anthropic;
mod cohere;
mod gemini;
mod openai;
mod responses;

use crate::reply::{Asked, Reply};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value, json};
use std::collections::VecDeque;

const DIMENSIONS: usize = 8;
/// Seconds since 1970. Nobody compares it with a clock.
const CREATED: i64 = 1_700_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Responses,
    Anthropic,
    Gemini,
    GeminiStream,
    Cohere,
    OpenAiEmbeddings,
    GeminiEmbedding,
    GeminiEmbeddings,
    CohereEmbeddings,
}

/// One write of a stream, and the tokens in it.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    pub(crate) tokens: u64,
    pub(crate) thoughts: u64,
}

impl Piece {
    fn event(data: &Value) -> Self {
        Self { bytes: format!("data: {data}\n\n").into(), tokens: 0, thoughts: 0 }
    }

    fn named(data: &Value) -> Self {
        let name = data["type"].as_str().unwrap_or_default();
        Self { bytes: format!("event: {name}\ndata: {data}\n\n").into(), tokens: 0, thoughts: 0 }
    }

    fn token(mut self) -> Self {
        self.tokens = 1;
        self
    }

    fn thought(mut self) -> Self {
        (self.tokens, self.thoughts) = (1, 1);
        self
    }
}

impl Dialect {
    pub(crate) fn of(path: &str) -> Option<Self> {
        if let Some((_, verb)) = path.rsplit_once(':') {
            return Some(match verb {
                "generateContent" => Self::Gemini,
                "streamGenerateContent" => Self::GeminiStream,
                "embedContent" => Self::GeminiEmbedding,
                "batchEmbedContents" => Self::GeminiEmbeddings,
                _ => return None,
            });
        }
        let end = |end: &str| path.ends_with(end);
        match () {
            () if end("/chat/completions") => Some(Self::OpenAi),
            () if end("/responses") => Some(Self::Responses),
            () if end("/messages") => Some(Self::Anthropic),
            () if end("/v2/chat") => Some(Self::Cohere),
            () if end("/embeddings") => Some(Self::OpenAiEmbeddings),
            () if end("/v2/embed") => Some(Self::CohereEmbeddings),
            () => None,
        }
    }

    pub(crate) const fn is_embedding(self) -> bool {
        matches!(
            self,
            Self::OpenAiEmbeddings
                | Self::GeminiEmbedding
                | Self::GeminiEmbeddings
                | Self::CohereEmbeddings
        )
    }
}

pub(crate) fn read(dialect: Option<Dialect>, path: &str, body: &Value) -> Asked {
    let mut asked = Asked {
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        stream: body["stream"] == true,
        input: input_words(body).max(1),
        images: images(body),
        ..Asked::default()
    };
    match dialect {
        Some(Dialect::OpenAi) => openai::read(&mut asked, body),
        Some(Dialect::Responses) => responses::read(&mut asked, body),
        Some(Dialect::Anthropic) => anthropic::read(&mut asked, body),
        Some(Dialect::Cohere) => cohere::read(&mut asked, body),
        Some(
            Dialect::Gemini
            | Dialect::GeminiStream
            | Dialect::GeminiEmbedding
            | Dialect::GeminiEmbeddings,
        ) => gemini::read(&mut asked, path, body),
        _ => {}
    }
    asked
}

/// Returns a whole answer.
pub(crate) fn whole(dialect: Dialect, reply: &Reply) -> Value {
    match dialect {
        Dialect::Responses => responses::whole(reply, "completed"),
        Dialect::Anthropic => anthropic::whole(reply),
        Dialect::Gemini | Dialect::GeminiStream => gemini::whole(reply),
        Dialect::Cohere => cohere::whole(reply),
        _ => openai::whole(reply),
    }
}

pub(crate) fn stream(
    dialect: Dialect,
    reply: &Reply,
    wants_usage: bool,
    pings: bool,
    as_events: bool,
) -> VecDeque<Piece> {
    match dialect {
        Dialect::Responses => responses::stream(reply),
        Dialect::Anthropic => anthropic::stream(reply, pings),
        Dialect::Gemini | Dialect::GeminiStream => gemini::stream(reply, as_events),
        Dialect::Cohere => cohere::stream(reply),
        _ => openai::stream(reply, wants_usage, pings),
    }
    .into()
}

pub(crate) fn fault(dialect: Dialect, status: u16, code: Option<&str>) -> Value {
    let message = match code {
        Some(code) => format!("The stand-in fails with {status}: {code}."),
        None => format!("The stand-in fails with {status}."),
    };
    match dialect {
        Dialect::Anthropic => anthropic::fault(status, &message),
        Dialect::Gemini
        | Dialect::GeminiStream
        | Dialect::GeminiEmbedding
        | Dialect::GeminiEmbeddings => gemini::fault(status, &message),
        Dialect::Cohere | Dialect::CohereEmbeddings => json!({"id": "fault", "message": message}),
        _ => openai::fault(status, code, &message),
    }
}

/// Returns a failure in the middle of a stream.
pub(crate) fn stream_fault(dialect: Dialect) -> Bytes {
    let told = fault(dialect, 529, None);
    match dialect {
        Dialect::Anthropic => Piece::named(&told).bytes,
        Dialect::Responses => Piece::named(&json!({
            "type": "error", "code": "server_error", "message": "The stand-in fails.", "param": null, "sequence_number": 99,
        }))
        .bytes,
        _ => Piece::event(&told).bytes,
    }
}

pub(crate) fn embeddings(dialect: Dialect, asked: &Asked, body: &Value) -> Value {
    let values: Vec<f32> = (0..DIMENSIONS).map(|at| at as f32 / 8.0).collect();
    let many = |list: &Value| list.as_array().map_or(1, Vec::len);
    match dialect {
        Dialect::GeminiEmbedding => json!({"embedding": {"values": values}}),
        Dialect::GeminiEmbeddings => {
            json!({"embeddings": vec![json!({"values": values}); many(&body["requests"])]})
        }
        Dialect::CohereEmbeddings => json!({
            "id": "embedded", "embeddings": {"float": vec![values; many(&body["texts"])]}, "texts": body["texts"],
            "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": asked.input}},
        }),
        _ => {
            let packed = || values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
            let value = match body["encoding_format"].as_str() {
                Some("base64") => json!(STANDARD.encode(packed())),
                _ => json!(values),
            };
            let data: Vec<_> = (0..many(&body["input"]))
                .map(|at| json!({"object": "embedding", "index": at, "embedding": value}))
                .collect();
            let usage = json!({"prompt_tokens": asked.input, "total_tokens": asked.input});
            json!({"object": "list", "data": data, "model": asked.model, "usage": usage})
        }
    }
}

pub(crate) fn models(path: &str, headers: &HeaderMap) -> Value {
    let names = ["standin-large", "standin-small"];
    if path.contains("v1beta") && !path.contains("openai") {
        let model = |name| {
            json!({"name": format!("models/{name}"), "displayName": name, "inputTokenLimit": 1_000_000,
                "outputTokenLimit": 8192, "supportedGenerationMethods": ["generateContent"]})
        };
        return json!({"models": names.map(model)});
    }
    if headers.contains_key("anthropic-version") {
        let model = |name| json!({"type": "model", "id": name, "display_name": name, "created_at": "2025-01-01T00:00:00Z"});
        return json!({"data": names.map(model), "has_more": false, "first_id": names[0], "last_id": names[1]});
    }
    let model =
        |name| json!({"id": name, "object": "model", "created": CREATED, "owned_by": "standin"});
    json!({"object": "list", "data": names.map(model)})
}

/// Counts all words that a model reads, as a token each.
fn input_words(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(input_words).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| match (name.as_str(), value) {
                (
                    "text" | "content" | "input" | "instructions" | "system" | "output" | "texts"
                    | "parts" | "prompt",
                    Value::String(text),
                ) => text.split_whitespace().count() as u64,
                ("input" | "texts", Value::Array(items)) if items.iter().any(Value::is_string) => {
                    items
                        .iter()
                        .filter_map(Value::as_str)
                        .map(|text| text.split_whitespace().count() as u64)
                        .sum()
                }
                ("tools" | "response_format" | "text_format", _) => 0,
                _ => input_words(value),
            })
            .sum(),
        _ => 0,
    }
}

fn images(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(images).sum(),
        Value::Object(members) => {
            let kind = value["type"].as_str().unwrap_or_default();
            let data = &value["inlineData"]["mimeType"];
            let is_image = ["image_url", "input_image", "image"].contains(&kind)
                || data.as_str().is_some_and(|kind| kind.starts_with("image/"));
            if is_image { 1 } else { members.values().map(images).sum() }
        }
        _ => 0,
    }
}

fn number(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|number| usize::try_from(number).ok())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
