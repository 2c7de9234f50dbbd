//! Drives: file systems that many workloads share and mount while they run.

use crate::parts::{
    CoreEvent, Head, Labels, Lifecycle, Metadata, Needs, Status, fixed, keep, limits, names,
};
use crate::{Kind, KindName, ObjectMetadata, Problems, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drive {
    pub metadata: Metadata,
    pub spec: DriveSpec,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    #[serde(skip_deserializing)]
    pub state: Option<DriveState>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriveSpec {
    /// Permission rules; the first that matches applies. Without any, the whole workspace may use
    /// the drive.
    #[schemars(length(max = limits::DRIVE_PERMISSIONS_MAX))]
    pub permissions: Option<Vec<DrivePermission>>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub region: Option<String>,
    /// Size in gigabytes. Published clients send it, but a drive grows as it is filled.
    #[schemars(range(min = 0, max = limits::DISK_MB_MAX))]
    pub size: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriveMode {
    Read,
    #[default]
    ReadWrite,
}

/// Lets workloads that have all of these labels use a part of the drive.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrivePermission {
    #[schemars(schema_with = "limits::labels")]
    pub labels: Option<Labels>,
    pub mode: Option<DriveMode>,
    /// Path within the drive, by default `/`.
    #[schemars(length(max = limits::PATH_MAX))]
    pub path: Option<String>,
}

/// Addresses at which the drive is reached.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriveState {
    #[schemars(extend("readOnly" = true))]
    pub s3_url: Option<String>,
}

/// What the server knows about a drive beside its wish.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// The machine that keeps its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

impl Kind for Drive {
    const NAME: KindName = KindName::Drive;

    type State = State;

    head!();
    placed!();

    fn check(&self, problems: &mut Problems) {
        for (index, permission) in self.spec.permissions.iter().flatten().enumerate() {
            let path = permission.path.as_deref().filter(|path| !path.is_empty());
            let field = format!("spec.permissions[{index}].path");
            problems.require(path.is_none_or(names::is_absolute_path), field, names::ABSOLUTE_PATH);
        }
    }

    fn check_change(&self, old: &Self, problems: &mut Problems) {
        fixed(&self.spec.region, &old.spec.region, "spec.region", problems);
    }

    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        self.metadata.keep_external_id(old.map(|old| &old.metadata));
        keep(&mut self.spec.region, old.map(|old| &old.spec.region));
        for permission in self.spec.permissions.iter_mut().flatten() {
            permission.mode.get_or_insert_default();
            permission.path =
                permission.path.take().filter(|path| !path.is_empty()).or_else(|| Some("/".into()));
        }
    }

    fn next_state(&self, old: Option<(&Self, &State)>, now: Timestamp) -> State {
        let state = old.map(|(_, state)| state.clone());
        let lifecycle = Lifecycle::next(
            state.as_ref().map(|state| &state.lifecycle),
            false,
            true,
            Needs::Nothing,
            now,
        );
        State { lifecycle, ..state.unwrap_or_default() }
    }

    fn status(state: &State) -> Option<Status> {
        state.lifecycle.status()
    }

    fn lighten(&mut self) {
        self.events = None;
    }

    fn show(&mut self, stamp: &ObjectMetadata, state: &State, _now: Timestamp) {
        self.metadata.stamp(stamp);
        self.events = Some(state.lifecycle.events.clone());
        self.status = state.lifecycle.status();
        // Its URL is that of its bucket.
        self.state = Some(DriveState { s3_url: self.metadata.url.take() });
    }
}
