//! Models: one provider's model behind the gateway.

use super::references_to;
use crate::parts::{
    CoreEvent, Flavor, Generation, Head, Lifecycle, Metadata, Needs, RevisionConfiguration, Status,
    limits, names,
};
use crate::{Kind, KindName, Problems, Reference, Stamp, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeSet;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    pub metadata: Metadata,
    pub spec: ModelSpec,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelSpec {
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub flavors: Option<Vec<Flavor>>,
    /// The first gives the credentials.
    #[schemars(length(max = limits::LIST_MAX), inner(length(max = 49)))]
    pub integration_connections: Option<Vec<String>>,
    #[schemars(length(max = limits::LIST_MAX), inner(length(max = 49)))]
    pub policies: Option<Vec<String>>,
    /// What is written to its log of each request. Absent: nothing.
    pub request_log: Option<ModelRequestLog>,
    pub revision: Option<RevisionConfiguration>,
    /// How requests are spread over models, and what happens when one fails.
    pub routing: Option<ModelRouting>,
    pub runtime: Option<ModelRuntime>,
    /// Answers that are given again to the same request. Absent: none.
    pub cache: Option<ModelCache>,
    /// What looks at requests and answers, in this order.
    #[schemars(length(max = limits::MODEL_HOOKS_MAX))]
    pub hooks: Option<Vec<ModelHook>>,
    /// Whether to use the connection's test credentials.
    pub sandbox: Option<bool>,
}

/// Who serves a model, and so which dialect is spoken.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ModelType {
    #[serde(rename = "hf_private_endpoint")]
    HfPrivateEndpoint,
    #[serde(rename = "hf_public_endpoint")]
    HfPublicEndpoint,
    Huggingface,
    #[serde(rename = "public_model")]
    PublicModel,
    Mcp,
    Openai,
    Anthropic,
    Gemini,
    Mistral,
    Deepseek,
    Cohere,
    Cerebras,
    Xai,
    Vertexai,
    #[serde(rename = "azure-openai-service")]
    AzureOpenaiService,
    #[serde(rename = "azure-ai-inference")]
    AzureAiInference,
    #[serde(rename = "azure-marketplace")]
    AzureMarketplace,
    Groq,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelRuntime {
    #[schemars(length(max = limits::WORD_MAX), regex(pattern = limits::ONE_LINE))]
    pub endpoint_name: Option<String>,
    pub generation: Option<Generation>,
    #[schemars(length(max = limits::WORD_MAX), regex(pattern = limits::ONE_LINE))]
    pub model: Option<String>,
    #[schemars(length(max = limits::WORD_MAX), regex(pattern = limits::ONE_LINE))]
    pub organization: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<ModelType>,
}

/// Where requests go. A model with `targets` has no provider of its own: it stands for these.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelRouting {
    /// Models of the workspace that share the requests.
    #[schemars(length(max = limits::MODEL_TARGETS_MAX))]
    pub targets: Option<Vec<ModelTarget>>,
    /// Models of the workspace that are asked, in this order, when the one before failed.
    #[schemars(length(max = limits::MODEL_TARGETS_MAX))]
    pub fallbacks: Option<Vec<ModelFallback>>,
    /// Whether a conversation stays with the model that answered it first, as long as that one can.
    pub sticky: Option<bool>,
    /// How often one model is asked again, where that can help. Default: 1.
    #[schemars(range(min = 0, max = limits::MODEL_RETRIES_MAX))]
    pub retries: Option<i64>,
    /// How long a model may take to the first byte of its answer, in milliseconds.
    #[schemars(range(min = 1, max = limits::MODEL_TIMEOUT_MS_MAX))]
    pub first_token_timeout_ms: Option<i64>,
    /// How long it may be silent in the middle of one.
    #[schemars(range(min = 1, max = limits::MODEL_TIMEOUT_MS_MAX))]
    pub token_timeout_ms: Option<i64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelTarget {
    #[schemars(length(min = 1, max = 49))]
    pub model: String,
    /// Its share of the requests, beside those of the others. Default: 1.
    #[schemars(range(min = 0, max = limits::SCALE_MAX))]
    pub weight: Option<i64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelFallback {
    #[schemars(length(min = 1, max = 49))]
    pub model: String,
    /// After which failures. Absent: all but those that are the caller's fault.
    #[schemars(length(max = limits::LIST_MAX))]
    pub on: Option<Vec<ModelFailure>>,
}

/// How a provider fails.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum ModelFailure {
    /// It cannot be reached, or ends the connection.
    Unreachable,
    /// It says nothing for too long.
    Timeout,
    /// 429.
    RateLimit,
    /// 500 and above.
    ServerError,
    /// The connection's credentials are refused.
    Credentials,
    /// The request is longer than the model takes.
    ContextLength,
    /// The provider refuses what is asked for.
    ContentFilter,
    /// Any other 4xx.
    BadRequest,
}

/// Answers to requests that are equal in every byte that counts are kept.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelCache {
    /// How long one is given again, in seconds.
    #[schemars(range(min = 1, max = limits::MODEL_CACHE_S_MAX))]
    pub ttl: i64,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelRequestLog {
    pub enabled: Option<bool>,
    /// Whether what was asked and answered is in it, and not only who, when and how much.
    pub bodies: Option<bool>,
    /// Regular expressions. What they find in bodies is replaced by `***`.
    #[schemars(length(max = limits::LIST_MAX), inner(length(max = limits::PATH_MAX)))]
    pub redact: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ModelHookTime {
    /// On the request, before any provider sees it.
    Before,
    /// On the whole answer. Answers of streams are looked at as text that was sent already.
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ModelHookAction {
    /// The request is refused.
    Block,
    /// What was found is replaced by `***`.
    Mask,
}

/// Either a pattern that is looked for here, or an address that is asked.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelHook {
    pub when: ModelHookTime,
    /// A regular expression.
    #[schemars(length(max = limits::PATH_MAX))]
    pub pattern: Option<String>,
    /// What happens where the pattern is found. Default: block.
    pub action: Option<ModelHookAction>,
    /// It is sent the body by `POST`: 200 lets it pass, with another body if it answers one; 4xx blocks.
    #[schemars(length(max = limits::URL_MAX))]
    pub webhook: Option<String>,
    /// Whether the request goes on when the address does not answer. Default: it does not.
    pub optional: Option<bool>,
}

impl Kind for Model {
    const NAME: KindName = KindName::Model;
    const HAS_REVISIONS: bool = true;

    type State = Lifecycle;

    head!();
    enabled!();
    deployed!(Needs::Nothing);

    fn check(&self, problems: &mut Problems) {
        let spec = &self.spec;
        let share = spec.revision.as_ref().and_then(|revision| revision.canary_percent);
        let rule = "models have no canaries: share requests with `spec.routing.targets`";
        problems.require(share.unwrap_or(0) == 0, "spec.revision.canaryPercent", rule);
        spec.check_provider(problems);
        self.check_routing(problems);
        for (index, hook) in spec.hooks.iter().flatten().enumerate() {
            hook.check(&format!("spec.hooks[{index}]"), problems);
        }
    }

    fn check_change(&self, old: &Self, problems: &mut Problems) {
        Generation::check_change(self.spec.generation(), old.spec.generation(), problems);
    }

    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        self.metadata.keep_external_id(old.map(|old| &old.metadata));
        self.spec.enabled.get_or_insert(true);
        if let Some(generation) = old.and_then(|old| old.spec.generation()) {
            self.spec.runtime.get_or_insert_default().generation.get_or_insert(generation);
        }
    }

    fn references(&self) -> Vec<Reference> {
        let spec = &self.spec;
        let mut references =
            references_to(KindName::Policy, spec.policies.as_ref(), "spec.policies");
        let connections = spec.integration_connections.as_ref();
        references.extend(references_to(
            KindName::IntegrationConnection,
            connections,
            "spec.integrationConnections",
        ));
        references.extend(spec.routing.iter().flat_map(ModelRouting::references));
        references
    }

    fn revision_mut(&mut self) -> Option<&mut RevisionConfiguration> {
        Some(self.spec.revision.get_or_insert_default())
    }
}

impl Model {
    fn check_routing(&self, problems: &mut Problems) {
        let Some(routing) = &self.spec.routing else { return };
        let targets = routing.targets.as_deref().unwrap_or_default();
        let weights: i64 = targets.iter().map(|target| target.weight.unwrap_or(1)).sum();
        let rule = "need at least one with a weight above 0";
        problems.require(targets.is_empty() || weights > 0, "spec.routing.targets", rule);
        let mut seen = BTreeSet::new();
        for Reference { name, field, .. } in routing.references() {
            let rule = "must not be the model itself";
            problems.require(name != self.name(), field.as_str(), rule);
            let list = field.split('[').next().unwrap_or_default().to_owned();
            problems.require(seen.insert((list, name)), field, "is there already");
        }
    }
}

impl ModelRouting {
    /// The models that it names.
    fn references(&self) -> Vec<Reference> {
        let targets =
            self.targets.iter().flatten().enumerate().map(|(index, target)| {
                (format!("spec.routing.targets[{index}].model"), &target.model)
            });
        let fallbacks = self.fallbacks.iter().flatten().enumerate().map(|(index, fallback)| {
            (format!("spec.routing.fallbacks[{index}].model"), &fallback.model)
        });
        let reference = |(field, name): (_, &String)| Reference {
            kind: KindName::Model,
            name: name.clone(),
            field,
        };
        targets.chain(fallbacks).map(reference).collect()
    }
}

impl ModelHook {
    fn check(&self, at: &str, problems: &mut Problems) {
        match (&self.pattern, &self.webhook) {
            (Some(_), None) => {
                let rule = "is for webhooks";
                problems.require(self.optional.is_none(), format!("{at}.optional"), rule);
            }
            (None, Some(webhook)) => {
                let rule = "must be an http or https address";
                problems.require(names::is_web_address(webhook), format!("{at}.webhook"), rule);
                let rule = "is for patterns: a webhook decides by what it answers";
                problems.require(self.action.is_none(), format!("{at}.action"), rule);
            }
            (None, None) | (Some(_), Some(_)) => {
                problems.add(at, "needs either a `pattern` or a `webhook`")
            }
        }
    }
}

impl ModelSpec {
    /// Whether it only leads to other models.
    pub fn is_virtual(&self) -> bool {
        let targets = self.routing.as_ref().and_then(|routing| routing.targets.as_ref());
        targets.is_some_and(|targets| !targets.is_empty())
    }

    /// A model with targets has no provider of its own.
    fn check_provider(&self, problems: &mut Problems) {
        if !self.is_virtual() {
            return;
        }
        let rule = "must be left out where `spec.routing.targets` says who answers";
        let connections = self.integration_connections.as_deref().unwrap_or_default();
        problems.require(connections.is_empty(), "spec.integrationConnections", rule);
        let kind = self.runtime.as_ref().and_then(|runtime| runtime.kind);
        problems.require(kind.is_none(), "spec.runtime.type", rule);
    }

    fn generation(&self) -> Option<Generation> {
        self.runtime.as_ref()?.generation
    }
}
