//! Functions: MCP servers, deployed from code or an image, or taken from the hub through their
//! connection.

use super::agent::check_scale;
use super::network::Network;
use super::references_to;
use crate::parts::{
    CoreEvent, Deployment, Env, Generation, Head, Metadata, Port, RevisionConfiguration, Sensitive,
    SkipBuild, Status, Trigger, fixed, keep, limits, visit_sensitive,
};
use crate::{Kind, KindName, ObjectMetadata, Problems, Reference, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Function {
    pub metadata: Metadata,
    pub spec: FunctionSpec,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FunctionSpec {
    /// The only value is `mcp`.
    #[serde(rename = "type")]
    #[schemars(length(max = limits::WORD_MAX))]
    pub kind: Option<String>,
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    #[schemars(length(max = limits::LIST_MAX), inner(length(max = 49)))]
    pub integration_connections: Option<Vec<String>>,
    /// Network access of the instances, as for sandboxes.
    pub network: Option<Network>,
    #[schemars(length(max = limits::LIST_MAX), inner(length(max = 49)))]
    pub policies: Option<Vec<String>>,
    /// True if the function answers without a token.
    #[schemars(extend("default" = false))]
    pub public: Option<bool>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub region: Option<String>,
    pub revision: Option<RevisionConfiguration>,
    pub runtime: Option<FunctionRuntime>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub triggers: Option<Vec<Trigger>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    Websocket,
    HttpStream,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FunctionRuntime {
    /// The only value is `mcp`.
    #[serde(rename = "type")]
    #[schemars(length(max = limits::WORD_MAX))]
    pub kind: Option<String>,
    #[schemars(length(max = limits::ENVS_MAX))]
    pub envs: Option<Vec<Env>>,
    pub generation: Option<Generation>,
    #[schemars(length(max = limits::URL_MAX))]
    pub image: Option<String>,
    /// Memory in megabytes. The number of CPU cores is this divided by 2048.
    #[schemars(range(min = limits::MEMORY_MB_MIN, max = limits::MEMORY_MB_MAX))]
    pub memory: Option<i64>,
    /// Number of instances that are kept running.
    #[schemars(range(min = 0, max = limits::SCALE_MAX))]
    pub min_scale: Option<i64>,
    #[schemars(range(min = 0, max = limits::SCALE_MAX))]
    pub max_scale: Option<i64>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub ports: Option<Vec<Port>>,
    pub transport: Option<Transport>,
    /// Most seconds that one request may take, including its wait for an instance.
    #[schemars(range(min = 1, max = limits::YEAR_S))]
    pub timeout: Option<i64>,
    /// Size in megabytes of a disk for written files. Without it they are kept in memory.
    #[schemars(range(min = 1, max = limits::DISK_MB_MAX))]
    pub storage_mb: Option<i64>,
    /// Credentials of an outside registry: the text of a Docker configuration file.
    #[schemars(length(max = limits::ENV_VALUE_MAX))]
    pub docker_config: Option<Sensitive<String>>,
    pub skip_build: Option<SkipBuild>,
}

impl Kind for Function {
    const NAME: KindName = KindName::Function;
    const HAS_REVISIONS: bool = true;

    head!();
    placed!();
    enabled!();
    deployment!();
    triggered!();
    timed!();
    replicated!();
    runtime!();

    fn check(&self, problems: &mut Problems) {
        let none = FunctionRuntime::default();
        let runtime = self.spec.runtime.as_ref().unwrap_or(&none);
        Env::check_all(runtime.envs.as_deref(), "spec.runtime.envs", problems);
        Port::check_all(runtime.ports.as_deref(), problems);
        check_scale(runtime.min_scale, runtime.max_scale, problems);
        if let Some(network) = &self.spec.network {
            network.check_replicated(problems);
        }
        Trigger::check_all(self.spec.triggers.as_deref(), runtime.generation, problems);
        Trigger::check_addresses(
            self.spec.triggers.as_deref(),
            Self::NAME,
            &self.metadata.name,
            problems,
        );
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
}

impl Function {
    /// Returns the connections that say which server of the hub runs, if the function has no image
    /// of its own.
    pub fn hub_connections(&self) -> Option<&[String]> {
        let image = self.spec.runtime.as_ref().and_then(|runtime| runtime.image.as_deref());
        let connections = self.spec.integration_connections.as_deref();
        connections.filter(|all| !all.is_empty() && image.unwrap_or_default().is_empty())
    }
}

impl FunctionSpec {
    fn generation(&self) -> Option<Generation> {
        self.runtime.as_ref()?.generation
    }
}
