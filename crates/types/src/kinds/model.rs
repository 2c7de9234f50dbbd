//! Models: one provider's model behind the gateway.

use super::references_to;
use crate::parts::{
    CoreEvent, Flavor, Generation, Head, Lifecycle, Metadata, Needs, RevisionConfiguration, Status,
    limits, names,
};
use crate::{Kind, KindName, ObjectMetadata, Problems, Reference, Timestamp, World};
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
    /// Names of connections; the first supplies the credentials.
    #[schemars(length(max = limits::LIST_MAX), inner(length(max = 49)))]
    pub integration_connections: Option<Vec<String>>,
    #[schemars(length(max = limits::LIST_MAX), inner(length(max = 49)))]
    pub policies: Option<Vec<String>>,
    /// What the model's log records of each request. Nothing if absent.
    pub request_log: Option<ModelRequestLog>,
    pub revision: Option<RevisionConfiguration>,
    /// How requests are distributed over models, and what happens when one fails.
    pub routing: Option<ModelRouting>,
    pub runtime: Option<ModelRuntime>,
    /// Reuse of answers for identical requests. Off if absent.
    pub cache: Option<ModelCache>,
    /// Checks of requests and answers, run in this order.
    #[schemars(length(max = limits::MODEL_HOOKS_MAX))]
    pub hooks: Option<Vec<ModelHook>>,
    /// True to use the connection's test credentials.
    pub sandbox: Option<bool>,
}

/// The provider of a model, which also decides the API dialect.
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

/// Where requests go. A model with `targets` has no provider of its own: the targets answer for it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelRouting {
    /// Models of the workspace that the requests are split over.
    #[schemars(length(max = limits::MODEL_TARGETS_MAX))]
    pub targets: Option<Vec<ModelTarget>>,
    /// Models of the workspace to ask, in this order, when the one before has failed.
    #[schemars(length(max = limits::MODEL_TARGETS_MAX))]
    pub fallbacks: Option<Vec<ModelFallback>>,
    /// True if a conversation stays with the model that first answered it, as long as that model
    /// can.
    pub sticky: Option<bool>,
    /// How many times one model is asked again, where that can help. Default: 1.
    #[schemars(range(min = 0, max = limits::MODEL_RETRIES_MAX))]
    pub retries: Option<i64>,
    /// Longest wait for the first byte of an answer, in milliseconds.
    #[schemars(range(min = 1, max = limits::MODEL_TIMEOUT_MS_MAX))]
    pub first_token_timeout_ms: Option<i64>,
    /// Longest silence in the middle of an answer, in milliseconds.
    #[schemars(range(min = 1, max = limits::MODEL_TIMEOUT_MS_MAX))]
    pub token_timeout_ms: Option<i64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelTarget {
    #[schemars(length(min = 1, max = 49))]
    pub model: String,
    /// Share of the requests, relative to the other targets. Default: 1.
    #[schemars(range(min = 0, max = limits::SCALE_MAX))]
    pub weight: Option<i64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelFallback {
    #[schemars(length(min = 1, max = 49))]
    pub model: String,
    /// Failures after which this model is asked. If absent: all except those that are the caller's
    /// fault.
    #[schemars(length(max = limits::LIST_MAX))]
    pub on: Option<Vec<ModelFailure>>,
}

/// A way in which a request to a provider fails.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum ModelFailure {
    /// The provider cannot be reached, or closes the connection.
    Unreachable,
    /// The provider is silent for too long.
    Timeout,
    /// The provider answers 429.
    RateLimit,
    /// The provider answers 500 or above.
    ServerError,
    /// The provider refuses the connection's credentials.
    Credentials,
    /// The request is longer than the model accepts.
    ContextLength,
    /// The provider refuses the content of the request.
    ContentFilter,
    /// The provider answers any other 4xx.
    BadRequest,
}

/// Keeps answers and reuses them for requests that are equal in every byte that matters.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelCache {
    /// How long an answer is reused, in seconds.
    #[schemars(range(min = 1, max = limits::MODEL_CACHE_S_MAX))]
    pub ttl: i64,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelRequestLog {
    pub enabled: Option<bool>,
    /// True to record what was asked and answered, not only who asked, when and how much.
    pub bodies: Option<bool>,
    /// Regular expressions; what they match in bodies is replaced by `***`.
    #[schemars(length(max = limits::LIST_MAX), inner(length(max = limits::PATH_MAX)))]
    pub redact: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ModelHookTime {
    /// On the request, before any provider sees it.
    Before,
    /// On the answer. A streamed answer is checked as it passes, after parts of it were sent.
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ModelHookAction {
    /// Refuse the request.
    Block,
    /// Replace what was found by `***`.
    Mask,
}

/// A check of requests or answers: either a pattern to search for, or an address to ask.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelHook {
    pub when: ModelHookTime,
    /// A regular expression.
    #[schemars(length(max = limits::PATH_MAX))]
    pub pattern: Option<String>,
    /// What to do where the pattern matches. Default: block.
    pub action: Option<ModelHookAction>,
    /// Address to which the body is sent by `POST`. A 200 lets it pass, replaced by the answer's
    /// body if there is one; a 4xx blocks it.
    #[schemars(length(max = limits::URL_MAX))]
    pub webhook: Option<String>,
    /// True if the request goes on when the address does not answer. Default: false.
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

    revised!();
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
    /// Returns the models that it names.
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
    /// Returns true if the model only forwards to other models.
    pub fn is_virtual(&self) -> bool {
        let targets = self.routing.as_ref().and_then(|routing| routing.targets.as_ref());
        targets.is_some_and(|targets| !targets.is_empty())
    }

    /// Checks that a model with targets has no provider of its own.
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
