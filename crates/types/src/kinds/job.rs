//! Jobs: batches of tasks that run in parallel, and runners for a code host's workflows.

use super::network::Network;
use super::references_to;
use crate::parts::{
    CoreEvent, Env, Generation, Head, Lifecycle, Metadata, Needs, Port, RevisionConfiguration,
    Sensitive, SkipBuild, Status, Trigger, check_ephemeral_count, check_mounts, fixed, keep,
    limits, names, visit_sensitive,
};
use crate::{Kind, KindName, ObjectMetadata, Problems, Reference, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeSet;

/// Default share of a microVM's memory that holds its disk, in percent.
const DISK_PERCENT_DEFAULT: i64 = 50;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    pub metadata: Metadata,
    pub spec: JobSpec,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// If false, no new execution can be started.
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    pub github_runner: Option<GithubRunnerConfig>,
    /// Network access of the instances, as for sandboxes.
    pub network: Option<Network>,
    #[schemars(length(max = limits::LIST_MAX), inner(length(max = 49)))]
    pub policies: Option<Vec<String>>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub region: Option<String>,
    pub revision: Option<RevisionConfiguration>,
    pub runtime: Option<JobRuntime>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub triggers: Option<Vec<Trigger>>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub volumes: Option<Vec<JobVolume>>,
}

/// Settings of a runner for GitHub workflows. A list that is not empty turns the job into a runner.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GithubRunnerConfig {
    /// Repositories whose workflows it runs, each as `owner/repo`.
    #[schemars(length(max = limits::LIST_MAX), inner(length(max = limits::WORD_MAX)))]
    pub repositories: Option<Vec<String>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobRuntime {
    /// Share of the memory that holds the disk, in percent. MicroVMs only.
    #[schemars(range(min = 10, max = 95))]
    pub disk_percent: Option<i64>,
    #[schemars(length(max = limits::ENVS_MAX))]
    pub envs: Option<Vec<Env>>,
    pub generation: Option<Generation>,
    #[schemars(length(max = limits::URL_MAX))]
    pub image: Option<String>,
    #[schemars(range(min = 0, max = limits::RETRIES_MAX))]
    pub max_retries: Option<i64>,
    /// Most tasks of one execution that run at once.
    #[schemars(range(min = 1, max = limits::CONCURRENCY_MAX))]
    pub max_concurrent_tasks: Option<i64>,
    /// Memory in megabytes. The number of CPU cores is this divided by 2048.
    #[schemars(range(min = limits::MEMORY_MB_MIN, max = limits::MEMORY_MB_MAX))]
    pub memory: Option<i64>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub ports: Option<Vec<Port>>,
    /// Seconds after which a task is stopped.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobVolumeType {
    Ephemeral,
}

/// A volume that is created when an execution starts and removed when it ends.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobVolume {
    #[schemars(length(min = 1, max = 49), regex(pattern = limits::ONE_LINE))]
    pub name: String,
    #[schemars(length(min = 1, max = limits::PATH_MAX))]
    pub mount_path: String,
    #[serde(rename = "type")]
    pub kind: JobVolumeType,
    #[schemars(range(min = 1, max = limits::DISK_MB_MAX))]
    pub size_mb: i64,
    pub read_only: Option<bool>,
}

impl Kind for Job {
    const NAME: KindName = KindName::Job;
    const HAS_REVISIONS: bool = true;

    type State = Lifecycle;

    head!();
    placed!();
    enabled!();
    deployed!(Needs::Machine);
    triggered!();
    runtime!();

    fn check(&self, problems: &mut Problems) {
        let spec = &self.spec;
        let none = JobRuntime::default();
        let runtime = spec.runtime.as_ref().unwrap_or(&none);
        Env::check_all(runtime.envs.as_deref(), "spec.runtime.envs", problems);
        Port::check_all(runtime.ports.as_deref(), problems);
        Trigger::check_all(spec.triggers.as_deref(), runtime.generation, problems);
        Trigger::check_addresses(
            spec.triggers.as_deref(),
            Self::NAME,
            &self.metadata.name,
            problems,
        );
        let on_memory = runtime.disk_percent.is_none()
            || runtime.generation.unwrap_or_default() == Generation::Mk3;
        problems.require(
            on_memory,
            "spec.runtime.diskPercent",
            "is only possible for microVMs (generation mk3)",
        );
        if let Some(network) = &spec.network {
            network.check_replicated(problems);
        }
        JobVolume::check_all(spec.volumes.as_deref().unwrap_or_default(), problems);
        let repositories =
            spec.github_runner.as_ref().and_then(|runner| runner.repositories.as_deref());
        for (index, repository) in repositories.unwrap_or_default().iter().enumerate() {
            let field = format!("spec.githubRunner.repositories[{index}]");
            problems.require(
                names::is_repository(repository),
                field,
                "must have the form `owner/repo`",
            );
        }
    }

    fn complete(&mut self, old: Option<&Self>, world: &World) {
        complete_runtime!(self, old, world);
        let runtime = self.spec.runtime.get_or_insert_default();
        runtime.max_retries.get_or_insert(0);
        if runtime.generation.unwrap_or_default() == Generation::Mk3 {
            runtime.disk_percent.get_or_insert(DISK_PERCENT_DEFAULT);
        }
    }

    fn references(&self) -> Vec<Reference> {
        references_to(KindName::Policy, self.spec.policies.as_ref(), "spec.policies")
    }

    revised!();
}

impl JobSpec {
    fn generation(&self) -> Option<Generation> {
        self.runtime.as_ref()?.generation
    }
}

impl JobVolume {
    fn check_all(volumes: &[Self], problems: &mut Problems) {
        let mut names = BTreeSet::new();
        for (index, volume) in volumes.iter().enumerate() {
            problems.require(
                names.insert(&volume.name),
                format!("spec.volumes[{index}].name"),
                "is used twice",
            );
        }
        check_mounts(volumes.iter().map(|volume| Some(volume.mount_path.as_str())), problems);
        check_ephemeral_count(volumes.len(), problems);
    }
}
