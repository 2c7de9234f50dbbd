//! Snapshots: what a sandbox was at one moment.

use crate::parts::{Head, limits};
use crate::{Kind, KindName, Naming, Stamp, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SandboxSnapshot")]
pub struct Snapshot {
    #[serde(default)]
    #[schemars(length(max = 64), regex(pattern = limits::PATH_SEGMENT))]
    pub id: String,
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
    #[serde(skip_deserializing)]
    pub workspace: String,
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
}

impl Kind for Snapshot {
    const NAME: KindName = KindName::Snapshot;
    const NAMING: Naming = Naming::Server { prefix: "snap" };
    const NAME_AT: &'static [&'static str] = &["id"];

    type State = State;

    fn head(&self) -> &dyn Head {
        self
    }

    fn head_mut(&mut self) -> &mut dyn Head {
        self
    }

    fn next_state(&self, old: Option<(&Self, &State)>, _now: Timestamp) -> State {
        old.map(|(_, state)| state.clone()).unwrap_or_default()
    }

    fn show(&mut self, stamp: &Stamp, state: &State, _now: Timestamp) {
        self.created_at = stamp.created_at;
        self.created_by = Some(stamp.created_by.clone());
        self.sandbox_name = stamp.parents.first().cloned().unwrap_or_default();
        self.status = state.status;
        self.workspace.clone_from(&stamp.workspace);
    }
}
