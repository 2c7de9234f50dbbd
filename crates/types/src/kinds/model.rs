//! Models: one provider's model behind the gateway.

use super::references_to;
use crate::parts::{
    CoreEvent, Flavor, Generation, Head, Lifecycle, Metadata, Needs, RevisionConfiguration, Status,
    limits,
};
use crate::{Kind, KindName, Problems, Reference, Stamp, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

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
    pub revision: Option<RevisionConfiguration>,
    pub runtime: Option<ModelRuntime>,
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

impl Kind for Model {
    const NAME: KindName = KindName::Model;
    const HAS_REVISIONS: bool = true;

    type State = Lifecycle;

    head!();
    enabled!();
    deployed!(Needs::Nothing);

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
        references
    }

    fn revision_mut(&mut self) -> Option<&mut RevisionConfiguration> {
        Some(self.spec.revision.get_or_insert_default())
    }
}

impl ModelSpec {
    fn generation(&self) -> Option<Generation> {
        self.runtime.as_ref()?.generation
    }
}
