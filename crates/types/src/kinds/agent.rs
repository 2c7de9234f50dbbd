//! Agents: programs that answer requests, deployed from code or an image.

use super::network::Network;
use super::references_to;
use crate::parts::{
    CoreEvent, Deployment, Env, Generation, Head, Metadata, Repository, RevisionConfiguration,
    Sensitive, SkipBuild, Status, Trigger, VolumeAttachment, fixed, keep, limits, visit_sensitive,
};
use crate::{Kind, KindName, ObjectMetadata, Problems, Reference, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Most volumes that one agent can mount.
const VOLUMES_MAX: usize = 16;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    pub metadata: Metadata,
    pub spec: AgentSpec,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpec {
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    /// Network access of the instances, as for sandboxes.
    pub network: Option<Network>,
    #[schemars(length(max = limits::LIST_MAX), inner(length(max = 49)))]
    pub policies: Option<Vec<String>>,
    /// True if the agent answers without a token.
    #[schemars(extend("default" = false))]
    pub public: Option<bool>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub region: Option<String>,
    pub repository: Option<Repository>,
    pub revision: Option<RevisionConfiguration>,
    pub runtime: Option<AgentRuntime>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub triggers: Option<Vec<Trigger>>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub volumes: Option<Vec<VolumeAttachment>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentRuntime {
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

impl Kind for Agent {
    const NAME: KindName = KindName::Agent;
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
        let spec = &self.spec;
        let none = AgentRuntime::default();
        let runtime = spec.runtime.as_ref().unwrap_or(&none);
        Env::check_all(runtime.envs.as_deref(), "spec.runtime.envs", problems);
        check_scale(runtime.min_scale, runtime.max_scale, problems);
        if let Some(network) = &self.spec.network {
            network.check_replicated(problems);
        }
        Trigger::check_all(spec.triggers.as_deref(), runtime.generation, problems);
        Trigger::check_addresses(
            spec.triggers.as_deref(),
            Self::NAME,
            &self.metadata.name,
            problems,
        );
        if let Some(volumes) = spec.volumes.as_deref().filter(|volumes| !volumes.is_empty()) {
            VolumeAttachment::check_all(volumes, VOLUMES_MAX, problems);
            problems.require(
                spec.region.is_some(),
                "spec.region",
                "is required with volumes: they stay in one region",
            );
            self.check_alone(problems);
        }
    }

    fn references(&self) -> Vec<Reference> {
        let mut references =
            references_to(KindName::Policy, self.spec.policies.as_ref(), "spec.policies");
        references.extend(VolumeAttachment::references(self.spec.volumes.as_deref()));
        references
    }
}

impl AgentSpec {
    fn generation(&self) -> Option<Generation> {
        self.runtime.as_ref()?.generation
    }
}

impl Agent {
    /// Returns true if the agent may have only one replica, because a volume it mounts allows one
    /// writer.
    pub fn is_alone(&self) -> bool {
        self.spec.volumes.iter().flatten().any(VolumeAttachment::is_persistent)
    }

    fn check_alone(&self, problems: &mut Problems) {
        if !self.is_alone() {
            return;
        }
        let runtime = self.spec.runtime.as_ref();
        let (min, max) = runtime.map_or((None, None), |it| (it.min_scale, it.max_scale));
        let one = |scale: Option<i64>| scale.is_none_or(|scale| scale <= 1);
        let message = "cannot be more than 1 with persistent volumes: they have one writer";
        problems.require(one(min), "spec.runtime.minScale", message);
        problems.require(one(max), "spec.runtime.maxScale", message);
        let canary = self.spec.revision.as_ref().and_then(|revision| revision.canary.as_deref());
        problems.require(
            canary.is_none_or(str::is_empty),
            "spec.revision.canary",
            "cannot be with persistent volumes: two revisions would write to them at once",
        );
    }
}

/// Checks that the least number of instances is not above the most.
pub(super) fn check_scale(min: Option<i64>, max: Option<i64>, problems: &mut Problems) {
    let fits = min.zip(max).is_none_or(|(min, max)| min <= max);
    problems.require(fits, "spec.runtime.minScale", "must not be greater than maxScale");
}
