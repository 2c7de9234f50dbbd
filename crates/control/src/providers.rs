//! What is known of the providers that a connection can be made to: which paths they serve, and
//! where their answers say what was used.

use std::collections::BTreeMap;
use types::wire::{Integration, IntegrationEndpoint, IntegrationEndpointToken};

/// How a provider's answers name the tokens that were used.
#[derive(Clone, Copy)]
enum Dialect {
    OpenAi,
    Anthropic,
    Gemini,
    Cohere,
}

/// Name, dialect and paths. The first path is the default one.
const MODELS: &[(&str, Dialect, &[&str])] = &[
    ("openai", Dialect::OpenAi, &["/v1/chat/completions", "/v1/responses", "/v1/embeddings"]),
    ("azure-openai-service", Dialect::OpenAi, &["/v1/chat/completions"]),
    ("azure-ai-inference", Dialect::OpenAi, &["/v1/chat/completions"]),
    ("azure-marketplace", Dialect::OpenAi, &["/v1/chat/completions"]),
    ("cerebras", Dialect::OpenAi, &["/v1/chat/completions"]),
    ("deepseek", Dialect::OpenAi, &["/v1/chat/completions"]),
    ("groq", Dialect::OpenAi, &["/v1/chat/completions"]),
    ("huggingface", Dialect::OpenAi, &["/v1/chat/completions"]),
    ("mistral", Dialect::OpenAi, &["/v1/chat/completions", "/v1/embeddings"]),
    ("xai", Dialect::OpenAi, &["/v1/chat/completions"]),
    ("anthropic", Dialect::Anthropic, &["/v1/messages"]),
    ("gemini", Dialect::Gemini, &["/v1beta/models/{model}:generateContent"]),
    ("vertexai", Dialect::Gemini, &["/v1beta/models/{model}:generateContent"]),
    ("cohere", Dialect::Cohere, &["/v2/chat", "/compatibility/v1/chat/completions"]),
];

/// Services whose connections hold credentials for MCP servers and agents; they have no model
/// endpoints.
const SERVICES: &[&str] = &["github", "gmail", "google-maps", "slack"];

/// Whether connections of this type can be made.
pub fn is_known(name: &str) -> bool {
    SERVICES.contains(&name) || MODELS.iter().any(|(known, ..)| *known == name)
}

/// The names of all types.
pub fn names() -> Vec<&'static str> {
    MODELS.iter().map(|(name, ..)| *name).chain(SERVICES.iter().copied()).collect()
}

pub fn find(name: &str) -> Option<Integration> {
    if SERVICES.contains(&name) {
        return Some(Integration { name: Some(name.into()), ..Integration::default() });
    }
    let (_, dialect, paths) = MODELS.iter().find(|(known, ..)| *known == name)?;
    let endpoints = paths
        .iter()
        .map(|path| ((*path).to_owned(), endpoint(*dialect)))
        .collect::<BTreeMap<_, _>>();
    Some(Integration {
        name: Some(name.into()),
        endpoints: Some(endpoints),
        ..Integration::default()
    })
}

fn endpoint(dialect: Dialect) -> IntegrationEndpoint {
    let token = |received: &str, sent: &str, total: Option<&str>| IntegrationEndpointToken {
        received: Some(received.into()),
        sent: Some(sent.into()),
        total: total.map(str::to_owned),
    };
    let (body, stream_key, token) = match dialect {
        Dialect::OpenAi => {
            let used =
                token("usage.prompt_tokens", "usage.completion_tokens", Some("usage.total_tokens"));
            (r#"{"messages":[{"role":"user","content":"Hello"}]}"#, "stream", used)
        }
        Dialect::Anthropic => {
            let used = token("usage.input_tokens", "usage.output_tokens", None);
            (
                r#"{"max_tokens":1024,"messages":[{"role":"user","content":"Hello"}]}"#,
                "stream",
                used,
            )
        }
        Dialect::Gemini => {
            let used = token(
                "usageMetadata.promptTokenCount",
                "usageMetadata.candidatesTokenCount",
                Some("usageMetadata.totalTokenCount"),
            );
            (r#"{"contents":[{"parts":[{"text":"Hello"}]}]}"#, "", used)
        }
        Dialect::Cohere => {
            let used = token("usage.tokens.input_tokens", "usage.tokens.output_tokens", None);
            (r#"{"messages":[{"role":"user","content":"Hello"}]}"#, "stream", used)
        }
    };
    IntegrationEndpoint {
        body: Some(body.into()),
        method: Some("POST".into()),
        stream_key: Some(stream_key.into()).filter(|key: &String| !key.is_empty()),
        stream_token: Some(token.clone()),
        token: Some(token),
        ..IntegrationEndpoint::default()
    }
}
