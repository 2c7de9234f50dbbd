//! Lists of models, read from a provider's answer.
//!
//! Every provider's list is different. What is missing stays empty, and unknown members are
//! skipped.

use crate::dialect::Unreadable;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use types::Timestamp;
use types::kinds::model::ModelType;

/// More models than any provider has. The rest is left out.
const MODELS_MAX: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedModel {
    /// The name to use in requests.
    pub id: String,
    /// The name for people, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub owner: String,
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<i64>,
    /// The most tokens that it reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_length: Option<u64>,
    /// The most tokens that it writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_length: Option<u64>,
    /// As far as the provider says.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub capabilities: BTreeSet<Capability>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Capability {
    Chat,
    Completion,
    Embeddings,
    Rerank,
    Tools,
    Images,
    Audio,
    Reasoning,
    StructuredOutput,
}

/// Reads a list of models, or a single model.
pub fn read_models(kind: ModelType, body: &[u8]) -> Result<Vec<ListedModel>, Unreadable> {
    let body: Value =
        serde_json::from_slice(body).map_err(|_| Unreadable("it is not JSON".to_owned()))?;
    let none = || Unreadable("it is no list of models".to_owned());
    let entries = entries(&body).ok_or_else(none)?;
    let owner = owner_of(kind);
    let read = |entry| read_model(entry, &owner);
    let found: Vec<_> = entries.iter().filter_map(read).take(MODELS_MAX).collect();
    if found.is_empty() && !entries.is_empty() { Err(none()) } else { Ok(found) }
}

/// Returns the provider's name in the API.
fn owner_of(kind: ModelType) -> String {
    match serde_json::to_value(kind) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

fn entries(body: &Value) -> Option<&[Value]> {
    const LISTS: [&str; 5] = ["data", "models", "publisherModels", "items", "value"];
    let list = LISTS.iter().find_map(|name| body.get(name)?.as_array()).or(body.as_array());
    match list {
        Some(list) => Some(list),
        // Google leaves out an empty list.
        None if body.as_object().is_some_and(|map| map.is_empty()) => Some(&[]),
        None => id_of(body).map(|_| std::slice::from_ref(body)),
    }
}

fn id_of(entry: &Value) -> Option<&str> {
    let text = |name: &str| entry.get(name)?.as_str().filter(|text| !text.is_empty());
    let id = text("id").or(text("modelId")).or(text("model_name")).or(text("name"))?;
    let last = id.rsplit_once("/models/").map_or(id, |(_, last)| last);
    Some(last.strip_prefix("models/").unwrap_or(last))
}

fn read_model(entry: &Value, owner: &str) -> Option<ListedModel> {
    let id = id_of(entry)?.to_owned();
    let text = |name: &str| entry.get(name)?.as_str().filter(|text| !text.is_empty());
    let names = ["displayName", "display_name", "friendly_name", "name"];
    let name = names.iter().find_map(|name| text(name)).filter(|name| !name.ends_with(&id));
    let owners = ["owned_by", "publisher", "model_provider_name", "author"];
    let owner = owners.iter().find_map(|name| text(name)).unwrap_or(owner);
    Some(ListedModel {
        name: name.map(str::to_owned),
        owner: owner.to_owned(),
        created: created(entry),
        context_length: context_length(entry),
        output_length: number(
            entry,
            &["outputTokenLimit", "max_completion_tokens", "max_output_tokens", "max_tokens"],
        ),
        capabilities: capabilities(entry),
        id,
    })
}

fn number(entry: &Value, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| entry.get(name)?.as_u64()).filter(|number| *number > 0)
}

fn created(entry: &Value) -> Option<i64> {
    let value = ["created", "created_at", "createdAt"].iter().find_map(|name| entry.get(name))?;
    let of_text = |text: &str| text.parse::<Timestamp>().ok().map(Timestamp::seconds);
    value.as_i64().or_else(|| of_text(value.as_str()?)).filter(|created| *created > 0)
}

fn context_length(entry: &Value) -> Option<u64> {
    const NAMES: [&str; 7] = [
        "context_length",
        "context_window",
        "max_context_length",
        "inputTokenLimit",
        "max_input_tokens",
        "max_model_len",
        "max_prompt_length",
    ];
    // If several servers serve it, the longest counts.
    let of_servers = || {
        let servers = entry.get("providers")?.as_array()?;
        servers.iter().filter_map(|server| number(server, &NAMES)).max()
    };
    number(entry, &NAMES).or_else(|| number(entry.get("limits")?, &NAMES)).or_else(of_servers)
}

fn capabilities(entry: &Value) -> BTreeSet<Capability> {
    let mut words = Vec::new();
    // Words in lists, or alone.
    for name in [
        "supportedGenerationMethods",
        "supportedActions",
        "endpoints",
        "features",
        "capabilities",
        "supported_parameters",
        "supported_features",
        "input_modalities",
        "supported_input_modalities",
        "pipeline_tag",
        "model_type",
        "task",
    ] {
        collect(&entry[name], &mut words);
    }
    collect(&entry["architecture"]["input_modalities"], &mut words);
    collect(&entry["model"]["task"], &mut words);
    if let Some(servers) = entry["providers"].as_array() {
        let has = |name: &str| servers.iter().any(|server| server[name] == true);
        words.extend(has("supports_tools").then_some("tools"));
        words.extend(has("supports_structured_output").then_some("structured_outputs"));
    }
    words.into_iter().flat_map(capability).copied().collect()
}

/// Collects words, including the names of members that are true or say that they are supported.
fn collect<'v>(value: &'v Value, words: &mut Vec<&'v str>) {
    match value {
        Value::String(word) => words.push(word),
        Value::Array(list) => words.extend(list.iter().filter_map(Value::as_str)),
        Value::Object(map) => {
            let is_true = |value: &Value| {
                *value == true || value == "true" || value.get("supported") == Some(&true.into())
            };
            words.extend(map.iter().filter(|(_, value)| is_true(value)).map(|(name, _)| &**name));
        }
        _ => {}
    }
}

fn capability(word: &str) -> &'static [Capability] {
    use Capability::{
        Audio, Chat, Completion, Embeddings, Images, Reasoning, Rerank, StructuredOutput, Tools,
    };
    match word {
        "generateContent" | "chat" | "completion_chat" | "chat_completion" | "chat-completion"
        | "chat-completions" | "conversational" | "text-generation" => &[Chat],
        "image-text-to-text" => &[Chat, Images],
        "completion" | "generate" | "generateText" | "text-completion" => &[Completion],
        "embedContent"
        | "embed"
        | "embeddings"
        | "embedding"
        | "feature-extraction"
        | "sentence-similarity"
        | "embedText" => &[Embeddings],
        "rerank" => &[Rerank],
        "tools" | "function_calling" | "tool_calling" | "tool-calling" | "tool_use" => &[Tools],
        "vision" | "image" | "image_input" | "images" => &[Images],
        "audio" | "audio_input" => &[Audio],
        "reasoning" | "thinking" => &[Reasoning],
        "structured_outputs" | "structured_output" | "json_schema" => &[StructuredOutput],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(kind: ModelType, body: Value) -> Vec<ListedModel> {
        read_models(kind, body.to_string().as_bytes()).unwrap()
    }

    fn one(kind: ModelType, body: Value) -> ListedModel {
        let found = read(kind, body);
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap()
    }

    fn model(id: &str, owner: &str) -> ListedModel {
        ListedModel { id: id.to_owned(), owner: owner.to_owned(), ..ListedModel::default() }
    }

    #[test]
    fn every_providers_list_is_read() {
        use Capability::*;
        let can = |list: &[Capability]| list.iter().copied().collect::<BTreeSet<_>>();
        let name = |name: &str| Some(name.to_owned());
        let openai = json!({"object": "list", "data": [
            {"id": "gpt-5", "object": "model", "created": 1754587413, "owned_by": "system"}]});
        let wanted = ListedModel { created: Some(1_754_587_413), ..model("gpt-5", "system") };
        assert_eq!(one(ModelType::Openai, openai), wanted);

        let anthropic = json!({"data": [{
            "type": "model", "id": "claude-sonnet-4-5", "display_name": "Claude Sonnet 4.5",
            "created_at": "2025-09-29T00:00:00Z", "max_input_tokens": 200000, "max_tokens": 64000,
            "capabilities": {"image_input": {"supported": true}, "thinking": {"supported": false}},
        }], "has_more": false});
        let wanted = ListedModel {
            name: name("Claude Sonnet 4.5"),
            created: Some(1_759_104_000),
            context_length: Some(200_000),
            output_length: Some(64_000),
            capabilities: can(&[Images]),
            ..model("claude-sonnet-4-5", "anthropic")
        };
        assert_eq!(one(ModelType::Anthropic, anthropic), wanted);

        let gemini = json!({"models": [{
            "name": "models/gemini-2.5-pro", "displayName": "Gemini 2.5 Pro", "version": "2.5",
            "inputTokenLimit": 1048576, "outputTokenLimit": 65536,
            "supportedGenerationMethods": ["generateContent", "countTokens"], "thinking": true,
        }]});
        let wanted = ListedModel {
            name: name("Gemini 2.5 Pro"),
            context_length: Some(1_048_576),
            output_length: Some(65_536),
            capabilities: can(&[Chat]),
            ..model("gemini-2.5-pro", "gemini")
        };
        assert_eq!(one(ModelType::Gemini, gemini), wanted);

        let vertex = json!({"publisherModels": [
            {"name": "publishers/google/models/gemini-2.5-flash", "versionId": "1"}]});
        assert_eq!(one(ModelType::Vertexai, vertex), model("gemini-2.5-flash", "vertexai"));

        let cohere = json!({"models": [{
            "name": "command-a-03-2025", "endpoints": ["chat"], "context_length": 288000.0,
            "features": ["tools", "structured_outputs"],
        }]});
        let wanted = ListedModel {
            capabilities: can(&[Chat, Tools, StructuredOutput]),
            ..model("command-a-03-2025", "cohere")
        };
        assert_eq!(one(ModelType::Cohere, cohere), wanted);

        let mistral = json!({"data": [{
            "id": "mistral-large-latest", "name": "mistral-large-2411", "owned_by": "mistralai",
            "max_context_length": 131072,
            "capabilities": {"completion_chat": true, "function_calling": true, "vision": false},
        }]});
        let wanted = ListedModel {
            name: name("mistral-large-2411"),
            context_length: Some(131_072),
            capabilities: can(&[Chat, Tools]),
            ..model("mistral-large-latest", "mistralai")
        };
        assert_eq!(one(ModelType::Mistral, mistral), wanted);

        let groq = json!({"data": [{
            "id": "openai/gpt-oss-120b", "owned_by": "OpenAI", "active": true,
            "context_window": 131072, "max_completion_tokens": 65536}]});
        let wanted = ListedModel {
            context_length: Some(131_072),
            output_length: Some(65_536),
            ..model("openai/gpt-oss-120b", "OpenAI")
        };
        assert_eq!(one(ModelType::Groq, groq), wanted);

        let router = json!({"object": "list", "data": [{
            "id": "zai-org/GLM-4.6", "owned_by": "zai-org",
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "providers": [
                {"provider": "a", "context_length": 4096, "supports_tools": true},
                {"provider": "b", "context_length": 8192},
            ],
        }]});
        let wanted = ListedModel {
            context_length: Some(8192),
            capabilities: can(&[Tools]),
            ..model("zai-org/GLM-4.6", "zai-org")
        };
        assert_eq!(one(ModelType::Huggingface, router), wanted);

        let hub = json!([{"id": "Qwen/Qwen3-VL", "pipeline_tag": "image-text-to-text"}]);
        let wanted = ListedModel {
            capabilities: can(&[Chat, Images]),
            ..model("Qwen/Qwen3-VL", "hf_public_endpoint")
        };
        assert_eq!(one(ModelType::HfPublicEndpoint, hub), wanted);

        let endpoints = json!({"items": [
            {"name": "mine", "model": {"repository": "a/b", "task": "text-generation"}}]});
        let wanted =
            ListedModel { capabilities: can(&[Chat]), ..model("mine", "hf_private_endpoint") };
        assert_eq!(one(ModelType::HfPrivateEndpoint, endpoints), wanted);

        let info = json!({"model_name": "Phi-4", "model_type": "chat-completion",
            "model_provider_name": "Microsoft"});
        let wanted = ListedModel { capabilities: can(&[Chat]), ..model("Phi-4", "Microsoft") };
        assert_eq!(one(ModelType::AzureAiInference, info), wanted);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for body in ["", "null", "7", r#"{"error": {"message": "no"}}"#, r#"{"data": [{}]}"#] {
            assert!(read_models(ModelType::Openai, body.as_bytes()).is_err(), "{body}");
        }
        for body in ["{}", "[]", r#"{"data": []}"#] {
            assert_eq!(read_models(ModelType::Gemini, body.as_bytes()).unwrap(), [], "{body}");
        }
    }
}
