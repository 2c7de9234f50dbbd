//! Descriptions of the services that connections can be made to: which paths their models serve,
//! and where answers say how many tokens were used. The knowledge itself is in `models::catalogue`.

use models::catalogue::catalogue;
use models::dialect::Dialect;
use models::operation::Operation;
use std::collections::BTreeMap;
use types::wire::{Integration, IntegrationEndpoint, IntegrationEndpointToken};

/// Checks whether connections of this type can be made.
pub fn is_known(name: &str) -> bool {
    catalogue().integrations().contains(&name)
}

/// Returns the names of all types of connections.
pub fn names() -> Vec<&'static str> {
    catalogue().integrations()
}

/// Finds an integration by the type of a connection or of a model. The published command line asks
/// with the type of a model, and calls the first path.
pub fn find(name: &str) -> Option<Integration> {
    let named = || Integration { name: Some(name.to_owned()), ..Integration::default() };
    let Some(entry) = catalogue().named(name) else {
        return catalogue().service(name).map(|_| named());
    };
    let endpoints: BTreeMap<_, _> =
        entry.endpoints.iter().map(|path| (path.clone(), endpoint(Operation::of(path)))).collect();
    Some(Integration { endpoints: Some(endpoints), ..named() })
}

/// Describes how an operation is called, and how its answers name the tokens that were used.
fn endpoint(operation: Operation) -> IntegrationEndpoint {
    let (body, has_stream_key) = match operation {
        Operation::Chat(Dialect::OpenAi | Dialect::Cohere) => {
            (r#"{"messages":[{"role":"user","content":"Hello"}]}"#, true)
        }
        Operation::Chat(Dialect::Responses) => (r#"{"input":"Hello"}"#, true),
        Operation::Chat(Dialect::Anthropic) => {
            (r#"{"max_tokens":1024,"messages":[{"role":"user","content":"Hello"}]}"#, true)
        }
        Operation::Chat(Dialect::Gemini) | Operation::GeminiStream => {
            (r#"{"contents":[{"role":"user","parts":[{"text":"Hello"}]}]}"#, false)
        }
        Operation::Embeddings(Dialect::Gemini) => {
            (r#"{"content":{"parts":[{"text":"Hello"}]}}"#, false)
        }
        Operation::Embeddings(Dialect::Cohere) => {
            (r#"{"texts":["Hello"],"input_type":"search_document"}"#, false)
        }
        Operation::Embeddings(_) => (r#"{"input":"Hello"}"#, false),
        Operation::Models | Operation::Other => {
            return IntegrationEndpoint { method: Some("GET".into()), ..Default::default() };
        }
    };
    let token = used(operation, "");
    let stream_token = match operation {
        Operation::Embeddings(_) => None,
        // Events wrap what stands at the top of a whole answer.
        Operation::Chat(Dialect::Responses) => Some(used(operation, "response.")),
        Operation::Chat(Dialect::Cohere) => Some(used(operation, "delta.")),
        _ => Some(token.clone()),
    };
    IntegrationEndpoint {
        body: Some(body.into()),
        method: Some("POST".into()),
        stream_key: has_stream_key.then(|| "stream".into()),
        stream_token,
        token: Some(token),
        ..IntegrationEndpoint::default()
    }
}

/// Returns the members of an answer that count tokens, each below the prefix `around`.
fn used(operation: Operation, around: &str) -> IntegrationEndpointToken {
    let (received, sent, total) = match operation {
        Operation::Chat(Dialect::OpenAi) => {
            ("usage.prompt_tokens", Some("usage.completion_tokens"), Some("usage.total_tokens"))
        }
        Operation::Chat(Dialect::Responses) => {
            ("usage.input_tokens", Some("usage.output_tokens"), Some("usage.total_tokens"))
        }
        Operation::Chat(Dialect::Anthropic) => {
            ("usage.input_tokens", Some("usage.output_tokens"), None)
        }
        Operation::Chat(Dialect::Cohere) => {
            ("usage.tokens.input_tokens", Some("usage.tokens.output_tokens"), None)
        }
        Operation::Embeddings(Dialect::Gemini) => ("usageMetadata.promptTokenCount", None, None),
        Operation::Embeddings(Dialect::Cohere) => ("meta.billed_units.input_tokens", None, None),
        Operation::Chat(Dialect::Gemini) | Operation::GeminiStream => (
            "usageMetadata.promptTokenCount",
            Some("usageMetadata.candidatesTokenCount"),
            Some("usageMetadata.totalTokenCount"),
        ),
        _ => ("usage.prompt_tokens", None, Some("usage.total_tokens")),
    };
    let below = |member: &str| format!("{around}{member}");
    IntegrationEndpointToken {
        received: Some(below(received)),
        sent: sent.map(below),
        total: total.map(below),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_says_how_it_is_asked() {
        for name in names().into_iter().chain(["hf_private_endpoint", "public_model"]) {
            let found = find(name).unwrap();
            assert_eq!(found.name.as_deref(), Some(name));
            let Some(endpoints) = found.endpoints else {
                assert!(catalogue().service(name).is_some(), "{name}");
                continue;
            };
            for (path, endpoint) in &endpoints {
                assert_eq!(endpoint.method.as_deref(), Some("POST"), "{name} {path}");
                let body = endpoint.body.as_deref().unwrap();
                assert!(serde_json::from_str::<serde_json::Value>(body).is_ok(), "{body}");
                assert!(endpoint.token.as_ref().unwrap().received.is_some());
            }
            let (_, first) = endpoints.first_key_value().unwrap();
            assert!(first.body.as_deref().unwrap().contains("messages"), "{name}");
        }
        assert!(find("none").is_none() && !is_known("none") && !is_known("hf_private_endpoint"));
    }
}
