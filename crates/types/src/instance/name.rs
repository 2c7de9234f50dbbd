//! Names of instances. A name says what the instance is for, so that facts, files and control
//! groups can be traced back to a row.

use crate::ids::{BuildId, ExecutionId, ResourceId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The name of an instance, never used by any other: 1 to 63 lower-case letters, digits and
/// hyphens. Files and control groups are named after it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InstanceName(String);

/// What an instance runs for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunsFor {
    /// A sandbox, and the number of its launch. The number rises each time the instance has to be
    /// created anew, so that facts of an old instance cannot be mistaken for those of the new one.
    Sandbox {
        id: ResourceId,
        launch: u32,
    },
    Task(AttemptId),
    Replica(ReplicaId),
    Build(BuildStepId),
}

/// One instance of a revision of an agent, a function or an application.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicaId {
    pub workload: ResourceId,
    pub revision: String,
    /// Rises with each replica of the workload, so that no two replicas ever share a name.
    pub number: u32,
}

/// One command of a build, which runs in an instance of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildStepId {
    pub build: BuildId,
    /// Number of the step within the build, from 1.
    pub step: u32,
}

/// One attempt at one task. Its text form is the name of the instance that runs it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    pub execution: ExecutionId,
    /// Index of the task in its execution, from 0.
    pub task: u32,
    /// Number of the attempt, from 1.
    pub number: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("`{0}` cannot name an instance: 1 to 63 lower-case letters, digits and hyphens")]
    Instance(String),
    #[error("`{0}` cannot name a volume: 1 to 63 lower-case letters, digits and hyphens")]
    Volume(String),
    #[error("`{0}` names no attempt")]
    Attempt(String),
}

const LENGTH_MAX: usize = 63;
const SANDBOX: &str = "sandbox-";
pub(super) const RESOURCE_ID: &str = "res_";
const TASK: &str = "task-";
const EXECUTION_ID: &str = "exe_";
const REPLICA: &str = "replica-";
const BUILD: &str = "build-";
const BUILD_ID: &str = "bld_";

/// Checks whether a text can name an instance or a volume.
pub(super) fn fits(text: &str) -> bool {
    (1..=LENGTH_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
}

impl InstanceName {
    pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
        let text = text.into();
        if fits(&text) { Ok(Self(text)) } else { Err(BadName::Instance(text)) }
    }

    pub fn of_sandbox(id: &ResourceId, launch: u32) -> Self {
        Self::of_id(format!("{SANDBOX}{}-{launch}", stem(id)))
    }

    /// Returns the name that earlier releases gave a sandbox's instance, without its kind. Such
    /// instances keep running under this name, and their usage is counted under it.
    pub fn of_sandbox_without_kind(id: &ResourceId, launch: u32) -> Self {
        Self::of_id(format!("{}-{launch}", stem(id)))
    }

    pub fn of_task(attempt: &AttemptId) -> Self {
        Self::of_id(attempt.to_string())
    }

    pub fn of_replica(replica: &ReplicaId) -> Self {
        let ReplicaId { workload, revision, number } = replica;
        Self::of_id(format!("{REPLICA}{}-{revision}-{number}", stem(workload)))
    }

    pub fn of_build_step(step: &BuildStepId) -> Self {
        let stem = step.build.as_str().trim_start_matches(BUILD_ID);
        Self::of_id(format!("{BUILD}{stem}-{}", step.step))
    }

    #[expect(clippy::expect_used, reason = "ids are made by the server, of letters that fit")]
    fn of_id(text: String) -> Self {
        Self::new(text).expect("ids fit into names of instances")
    }

    /// Returns what the instance runs for, or `None` for a name that this server does not give.
    pub fn runs_for(&self) -> Option<RunsFor> {
        if self.0.starts_with(TASK) {
            return self.0.parse().ok().map(RunsFor::Task);
        }
        if let Some(named) = self.0.strip_prefix(REPLICA) {
            return replica(named).map(RunsFor::Replica);
        }
        if let Some(named) = self.0.strip_prefix(BUILD) {
            return build_step(named).map(RunsFor::Build);
        }
        let named = self.0.strip_prefix(SANDBOX).unwrap_or(&self.0);
        let (stem, launch) = named.split_once('-')?;
        let id = ResourceId::known(format!("{RESOURCE_ID}{stem}"));
        Some(RunsFor::Sandbox { id, launch: launch.parse().ok()? })
    }

    /// Returns the number of the launch if this is an instance of the sandbox.
    pub fn launch_of(&self, sandbox: &ResourceId) -> Option<u32> {
        let named = self.0.strip_prefix(SANDBOX).unwrap_or(&self.0);
        named.strip_prefix(stem(sandbox))?.strip_prefix('-')?.parse().ok()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn replica(named: &str) -> Option<ReplicaId> {
    let (rest, number) = named.rsplit_once('-')?;
    let (stem, revision) = rest.split_once('-').filter(|(_, revision)| !revision.is_empty())?;
    let workload = ResourceId::known(format!("{RESOURCE_ID}{stem}"));
    Some(ReplicaId { workload, revision: revision.to_owned(), number: number.parse().ok()? })
}

fn build_step(named: &str) -> Option<BuildStepId> {
    let (stem, step) = named.split_once('-')?;
    let build = BuildId::known(format!("{BUILD_ID}{stem}"));
    Some(BuildStepId { build, step: step.parse().ok()? })
}

pub(super) fn stem(id: &ResourceId) -> &str {
    id.as_str().trim_start_matches(RESOURCE_ID)
}

impl TryFrom<String> for InstanceName {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        Self::new(text)
    }
}

impl From<InstanceName> for String {
    fn from(name: InstanceName) -> Self {
        name.0
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stem = self.execution.as_str().trim_start_matches(EXECUTION_ID);
        write!(f, "{TASK}{stem}-{}-{}", self.task, self.number)
    }
}

impl FromStr for AttemptId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let parsed = text.strip_prefix(TASK).and_then(|rest| {
            let (rest, number) = rest.rsplit_once('-')?;
            let (stem, task) = rest.rsplit_once('-')?;
            let execution = ExecutionId::known(format!("{EXECUTION_ID}{stem}"));
            Some(Self { execution, task: task.parse().ok()?, number: number.parse().ok()? })
        });
        parsed.ok_or_else(|| BadName::Attempt(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_is_one_plain_file_name(text in ".{0,70}") {
            if let Ok(name) = InstanceName::new(text) {
                let path = std::path::Path::new(name.as_str());
                prop_assert_eq!(path.components().count(), 1);
                prop_assert!(path.file_name().is_some() && !name.as_str().starts_with('.'));
            }
        }
    }

    #[test]
    fn a_name_says_what_the_instance_runs_for() {
        let id = ResourceId::known("res_ab3k9");
        let sandbox = RunsFor::Sandbox { id: id.clone(), launch: 12 };
        let name = InstanceName::of_sandbox(&id, 12);
        assert_eq!(name.as_str(), "sandbox-ab3k9-12");
        assert_eq!(name.runs_for(), Some(sandbox));
        assert_eq!(name.launch_of(&id), Some(12));
        for other in ["res_ab3k", "res_ab3k90", "res_b3k9"] {
            assert_eq!(name.launch_of(&ResourceId::known(other)), None, "{other}");
        }

        let task = AttemptId { execution: ExecutionId::known("exe_ab3k9"), task: 17, number: 2 };
        let name = InstanceName::of_task(&task);
        assert_eq!(name.as_str(), "task-ab3k9-17-2");
        assert_eq!(name.runs_for(), Some(RunsFor::Task(task)));

        for strange in ["nothing", "some-thing", "sandbox-ab3k9", "sandbox-a-b-1", "task-ab3k9-1"] {
            assert_eq!(InstanceName::new(strange).unwrap().runs_for(), None, "{strange}");
        }
    }

    #[test]
    fn replicas_and_builds_are_found_again_by_their_names() {
        let (workload, revision) = (ResourceId::known("res_ab3k9"), "x7".to_owned());
        let replica = ReplicaId { workload, revision, number: 3 };
        let name = InstanceName::of_replica(&replica);
        assert_eq!(name.as_str(), "replica-ab3k9-x7-3");
        assert_eq!(name.runs_for(), Some(RunsFor::Replica(replica)));
        let step = BuildStepId { build: BuildId::known("bld_ab3k9"), step: 2 };
        let name = InstanceName::of_build_step(&step);
        assert_eq!(name.as_str(), "build-ab3k9-2");
        assert_eq!(name.runs_for(), Some(RunsFor::Build(step)));
        for strange in
            ["replica-ab3k9-3", "replica-ab3k9--3", "replica-a-b-c", "build-ab3k9", "build-a-b"]
        {
            assert_eq!(InstanceName::new(strange).unwrap().runs_for(), None, "{strange}");
        }
    }

    #[test]
    fn a_name_of_earlier_releases_still_says_whose_it_is() {
        let id = ResourceId::known("res_ab3k9");
        let old = InstanceName::new("ab3k9-3").unwrap();
        assert_eq!(InstanceName::of_sandbox_without_kind(&id, 3), old);
        assert_eq!(old.launch_of(&id), Some(3));
        assert_eq!(old.runs_for(), Some(RunsFor::Sandbox { id, launch: 3 }));
    }

    #[test]
    fn an_attempt_is_found_again_by_the_name_of_its_instance() {
        let id = AttemptId { execution: ExecutionId::known("exe_ab3k9"), task: 17, number: 2 };
        assert_eq!(id.to_string(), "task-ab3k9-17-2");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "ab3k9-1", "task-", "task-ab3k9-1", "task-ab3k9-x-1"] {
            assert!(bad.parse::<AttemptId>().is_err(), "{bad}");
        }
    }
}
