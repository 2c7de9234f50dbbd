//! Images of the workspace registry: one per repository, with its tags. They are created by builds
//! and pushes.

use crate::ids::WorkspaceId;
use crate::parts::{CoreEvent, Head, Lifecycle, Status, limits};
use crate::wire::ImageShareTarget;
use crate::{Kind, KindName, ObjectMetadata, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    pub metadata: ImageMetadata,
    pub spec: ImageSpec,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageMetadata {
    #[schemars(length(max = limits::WORD_MAX), regex(pattern = limits::ONE_LINE))]
    pub name: Option<String>,
    #[schemars(length(max = 63), regex(pattern = limits::ONE_LINE))]
    pub display_name: Option<String>,
    /// Kind of workload that the image is for.
    #[schemars(length(max = limits::WORD_MAX))]
    pub resource_type: Option<String>,
    #[serde(skip_deserializing)]
    pub created_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub updated_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub last_deployed_at: Option<Timestamp>,
    /// The workspace that shares the image, if it came from another one.
    #[serde(skip_deserializing)]
    pub source_workspace: Option<String>,
    #[serde(skip_deserializing)]
    pub workspace: Option<String>,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSpec {
    /// Size in bytes.
    #[serde(skip_deserializing)]
    pub size: Option<i64>,
    #[serde(skip_deserializing)]
    pub tags: Option<Vec<ImageTag>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageTag {
    pub name: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub created_at: Option<Timestamp>,
    #[schemars(extend("readOnly" = true))]
    pub updated_at: Option<Timestamp>,
    /// Size in bytes.
    #[schemars(extend("readOnly" = true))]
    pub size: Option<i64>,
}

impl Head for ImageMetadata {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn set_name(&mut self, name: String) {
        self.name = Some(name);
    }

    fn display_name(&self) -> Option<&str> {
        self.display_name.as_deref()
    }
}

/// What the server knows about an image beside its wish.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    #[serde(default)]
    pub tags: Vec<ImageTag>,
    /// Manifest digest of each tag. Tags of earlier releases have none.
    #[serde(default)]
    pub digests: BTreeMap<String, String>,
    /// Bytes of all tags together, counting each image once.
    #[serde(default)]
    pub size: Option<i64>,
    #[serde(default)]
    pub last_deployed_at: Option<Timestamp>,
    #[serde(default)]
    pub source_workspace: Option<String>,
    #[serde(default)]
    pub source_workspace_id: Option<WorkspaceId>,
    /// Workspaces that may use the image, besides its own.
    #[serde(default)]
    pub shares: Vec<ImageShareTarget>,
}

impl Kind for Image {
    const NAME: KindName = KindName::Image;

    type State = State;

    head!();

    fn next_state(&self, old: Option<(&Self, &State)>, _now: Timestamp) -> State {
        old.map(|(_, state)| state.clone()).unwrap_or_default()
    }

    fn status(state: &State) -> Option<Status> {
        state.lifecycle.status()
    }

    fn show(&mut self, stamp: &ObjectMetadata, state: &State, _now: Timestamp) {
        let metadata = &mut self.metadata;
        metadata.created_at = Some(stamp.created_at);
        metadata.updated_at = Some(stamp.updated_at);
        metadata.workspace = Some(stamp.workspace.clone());
        metadata.last_deployed_at = state.last_deployed_at;
        metadata.source_workspace.clone_from(&state.source_workspace);
        metadata.events = Some(state.lifecycle.shown_events());
        metadata.status = state.lifecycle.shown_status();
        self.spec = ImageSpec { size: state.size, tags: Some(state.tags.clone()) };
    }
}
