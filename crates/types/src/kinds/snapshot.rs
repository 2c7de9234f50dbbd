//! Snapshots: the files of a sandbox as they were at one moment. A snapshot belongs to the
//! workspace and outlives its sandbox.

use super::sandbox::SandboxSpec;
use crate::ids::ResourceId;
use crate::parts::{Generation, Head, Port, Status, VolumeAttachment, limits};
use crate::{Kind, KindName, Naming, ObjectMetadata, Timestamp};
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
    /// Display name, unique within the sandbox. Defaults to the id.
    #[schemars(length(max = 63), regex(pattern = limits::FREE_SEGMENT))]
    pub name: Option<String>,
    #[serde(skip_deserializing)]
    pub created_at: Timestamp,
    #[serde(skip_deserializing)]
    pub created_by: Option<String>,
    #[serde(skip_deserializing)]
    pub sandbox_name: String,
    #[serde(skip_deserializing)]
    pub status: SnapshotStatus,
    /// Reason for a failure.
    #[serde(skip_deserializing)]
    pub message: Option<String>,
    /// Bytes on disk, not counting what is shared with other snapshots.
    #[serde(skip_deserializing)]
    pub size_bytes: Option<u64>,
    #[serde(skip_deserializing)]
    pub source: Option<SnapshotSource>,
    #[serde(skip_deserializing)]
    pub spec: Option<SnapshotSpec>,
    #[serde(skip_deserializing)]
    pub workspace: String,
    /// What a fork is made from. Holds secrets, and no answer shows it.
    #[serde(default)]
    #[schemars(skip)]
    pub origin: Option<Box<Origin>>,
    /// The sandbox's row, kept by [`Kind::show`] for callers that add what only other rows know
    /// about it.
    #[serde(skip)]
    pub taken_of: Option<ResourceId>,
}

/// The sandbox as it was when the snapshot was taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    pub sandbox: String,
    pub id: ResourceId,
    pub spec: SandboxSpec,
}

/// The resource that a snapshot was taken of.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SandboxSnapshotSource")]
pub struct SnapshotSource {
    /// True if the source has been deleted since. This does not affect the snapshot.
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

/// Settings that a fork of the snapshot runs with.
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

/// What the server knows about a snapshot beside its wish.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub status: SnapshotStatus,
    #[serde(default)]
    pub kept: Kept,
    /// The machine that has its files.
    #[serde(default)]
    pub machine: Option<String>,
    /// Reason for a failure.
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub size_bytes: u64,
    /// Number of times the meter was told its size.
    #[serde(default)]
    pub metered: u64,
}

/// Why a snapshot is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// A user asked for it.
    #[default]
    Asked,
    /// A fork or an archive took it. No list shows it, and it is removed once nothing starts from
    /// it any more.
    Needed,
    /// A user deleted it; it is removed once nothing starts from it any more.
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

    /// Returns the public id of a row.
    pub fn id_of(row: &ResourceId) -> String {
        format!("{PREFIX}_{}", stem(row.as_str()))
    }

    /// Returns the row for a public id. Unknown ids find nothing.
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
    /// Values of the store's status column that no list shows.
    pub const HIDDEN: [Status; 2] = [Status::Building, Status::Deleting];
    /// Values of the store's status column for snapshots that are being taken.
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

    /// Returns the sandbox's id, by which the store finds the snapshots of a sandbox.
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

    /// Returns the value of the store's status column; the shown `status` has words of its own.
    fn status(state: &State) -> Option<Status> {
        Some(match (state.status, state.kept) {
            (SnapshotStatus::Pending, Kept::Asked) => Status::Deploying,
            (SnapshotStatus::Pending, Kept::Needed | Kept::Deleted) => Status::Building,
            (_, Kept::Needed | Kept::Deleted) => Status::Deleting,
            (SnapshotStatus::Ready, Kept::Asked) => Status::Deployed,
            (SnapshotStatus::Failed, Kept::Asked) => Status::Failed,
        })
    }

    fn show(&mut self, stamp: &ObjectMetadata, state: &State, _now: Timestamp) {
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
