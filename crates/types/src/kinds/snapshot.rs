//! Snapshots: the files of a sandbox as they were at one moment. One belongs to the workspace and
//! outlives its sandbox.

use super::sandbox::SandboxSpec;
use crate::ids::ResourceId;
use crate::parts::{Generation, Head, Port, Status, VolumeAttachment, limits};
use crate::{Kind, KindName, Naming, Stamp, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

const PREFIX: &str = "snap";

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SandboxSnapshot")]
pub struct Snapshot {
    #[serde(default)]
    #[schemars(length(max = 64), regex(pattern = limits::PATH_SEGMENT))]
    pub id: String,
    /// One of a name for each sandbox. Without one it is the id.
    #[schemars(length(max = 63), regex(pattern = limits::ONE_LINE))]
    pub name: Option<String>,
    #[serde(skip_deserializing)]
    pub created_at: Timestamp,
    #[serde(skip_deserializing)]
    pub created_by: Option<String>,
    #[serde(skip_deserializing)]
    pub sandbox_name: String,
    #[serde(skip_deserializing)]
    pub status: SnapshotStatus,
    /// Why it failed.
    #[serde(skip_deserializing)]
    pub message: Option<String>,
    /// What it takes of the disk, without what it shares with others.
    #[serde(skip_deserializing)]
    pub size_bytes: Option<u64>,
    #[serde(skip_deserializing)]
    pub source: Option<SnapshotSource>,
    #[serde(skip_deserializing)]
    pub spec: Option<SnapshotSpec>,
    #[serde(skip_deserializing)]
    pub workspace: String,
    /// What a fork is made of. It has secrets, and no answer shows it.
    #[serde(default)]
    #[schemars(skip)]
    pub origin: Option<Box<Origin>>,
    /// The sandbox, between [`Kind::show`] and what only other rows know of it.
    #[serde(skip)]
    pub taken_of: Option<ResourceId>,
}

/// The sandbox as it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    pub sandbox: String,
    pub id: ResourceId,
    pub spec: SandboxSpec,
}

/// What a snapshot was taken of.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SandboxSnapshotSource")]
pub struct SnapshotSource {
    /// Whether it is gone by now. The snapshot is as good as before.
    #[schemars(extend("readOnly" = true))]
    pub deleted: Option<bool>,
    pub kind: Option<SnapshotSourceKind>,
    #[schemars(length(max = 63))]
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "SandboxSnapshotSourceKind")]
pub enum SnapshotSourceKind {
    #[default]
    Sandbox,
}

/// What a fork of a snapshot runs with.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SandboxSnapshotSpec")]
pub struct SnapshotSpec {
    pub generation: Option<Generation>,
    pub image: Option<String>,
    pub memory: Option<i64>,
    pub ports: Option<Vec<Port>>,
    pub region: Option<String>,
    pub volumes: Option<Vec<VolumeAttachment>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotStatus {
    #[default]
    Pending,
    Ready,
    Failed,
}

impl Head for Snapshot {
    fn name(&self) -> &str {
        &self.id
    }

    fn set_name(&mut self, name: String) {
        self.id = name;
    }

    fn display_name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

/// What the server knows of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub status: SnapshotStatus,
    #[serde(default)]
    pub kept: Kept,
    /// The machine that has its files.
    #[serde(default)]
    pub machine: Option<String>,
    /// Why it failed.
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub size_bytes: u64,
    /// How often the meter was told of its size.
    #[serde(default)]
    pub metered: u64,
}

/// Why a snapshot is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// Somebody asked for it.
    #[default]
    Asked,
    /// A fork or an archive took it. No list shows it, and it goes with the last that begins with it.
    Needed,
    /// It was deleted, and goes with the last that begins with it.
    Deleted,
}

impl Snapshot {
    pub fn new(id: String, name: Option<String>, origin: Origin) -> Self {
        Self {
            id,
            name,
            created_at: Timestamp::default(),
            created_by: None,
            sandbox_name: String::new(),
            status: SnapshotStatus::default(),
            message: None,
            size_bytes: None,
            source: None,
            spec: None,
            workspace: String::new(),
            origin: Some(Box::new(origin)),
            taken_of: None,
        }
    }

    /// The id that callers know a row by.
    pub fn id_of(row: &ResourceId) -> String {
        format!("{PREFIX}_{}", stem(row.as_str()))
    }

    /// The row behind an id that callers know. Unknown ids find nothing.
    pub fn row_of(id: &str) -> ResourceId {
        ResourceId::known(format!("res_{}", stem(id)))
    }
}

fn stem(id: &str) -> &str {
    id.split_once('_').map_or(id, |(_, stem)| stem)
}

impl SnapshotSpec {
    fn of(spec: &SandboxSpec) -> Self {
        let runtime = spec.runtime.clone().unwrap_or_default();
        Self {
            generation: runtime.generation,
            image: runtime.image,
            memory: runtime.memory,
            ports: runtime.ports,
            region: spec.region.clone(),
            volumes: spec.volumes.clone(),
        }
    }
}

impl State {
    /// Statuses of the store's column that no list shows.
    pub const HIDDEN: [Status; 2] = [Status::Building, Status::Deleting];
    /// Those of snapshots that are being taken.
    pub const PENDING: [Status; 2] = [Status::Deploying, Status::Building];
}

impl Kind for Snapshot {
    const NAME: KindName = KindName::Snapshot;
    const NAMING: Naming = Naming::Server { prefix: PREFIX };
    const NAME_AT: &'static [&'static str] = &["id"];

    type State = State;

    fn head(&self) -> &dyn Head {
        self
    }

    fn head_mut(&mut self) -> &mut dyn Head {
        self
    }

    /// By this the store finds the snapshots of a sandbox.
    fn external_id(&self) -> Option<&str> {
        self.origin.as_ref().map(|origin| origin.id.as_str())
    }

    fn secrets(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
        if let Some(origin) = &mut self.origin {
            origin.spec.secrets(visit);
        }
    }

    fn next_state(&self, old: Option<(&Self, &State)>, _now: Timestamp) -> State {
        old.map(|(_, state)| state.clone()).unwrap_or_default()
    }

    /// For the store alone: what is shown says `status` in other words.
    fn status(state: &State) -> Option<Status> {
        Some(match (state.status, state.kept) {
            (SnapshotStatus::Pending, Kept::Asked) => Status::Deploying,
            (SnapshotStatus::Pending, Kept::Needed | Kept::Deleted) => Status::Building,
            (_, Kept::Needed | Kept::Deleted) => Status::Deleting,
            (SnapshotStatus::Ready, Kept::Asked) => Status::Deployed,
            (SnapshotStatus::Failed, Kept::Asked) => Status::Failed,
        })
    }

    fn show(&mut self, stamp: &Stamp, state: &State, _now: Timestamp) {
        self.created_at = stamp.created_at;
        self.created_by = Some(stamp.created_by.clone());
        self.status = state.status;
        self.message.clone_from(&state.message);
        self.size_bytes = (state.status == SnapshotStatus::Ready).then_some(state.size_bytes);
        self.workspace.clone_from(&stamp.workspace);
        if self.name.as_ref().is_none_or(String::is_empty) {
            self.name = Some(self.id.clone());
        }
        if let Some(origin) = self.origin.take() {
            let (kind, name) = (Some(SnapshotSourceKind::Sandbox), origin.sandbox.clone());
            self.source = Some(SnapshotSource { deleted: None, kind, name });
            self.spec = Some(SnapshotSpec::of(&origin.spec));
            self.sandbox_name = origin.sandbox;
            self.taken_of = Some(origin.id);
        }
    }
}
