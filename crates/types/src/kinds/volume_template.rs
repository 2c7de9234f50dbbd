//! Volume templates: contents that new volumes start with, in versions.

use crate::parts::{Head, Metadata, limits};
use crate::{Kind, KindName, Stamp, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeTemplate {
    pub metadata: Metadata,
    pub spec: VolumeTemplateSpec,
    #[serde(skip_deserializing)]
    pub state: Option<VolumeTemplateState>,
    #[serde(skip_deserializing)]
    pub versions: Option<Vec<VolumeTemplateVersion>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeTemplateSpec {
    /// Megabytes of a volume that does not say its size.
    #[schemars(range(min = 1, max = limits::DISK_MB_MAX))]
    pub default_size: Option<i64>,
    #[schemars(length(max = limits::TEXT_MAX))]
    pub description: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TemplateStatus {
    Created,
    Ready,
    Error,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeTemplateState {
    #[schemars(extend("readOnly" = true))]
    pub last_version_uploaded_at: Option<Timestamp>,
    #[schemars(extend("readOnly" = true))]
    pub latest_version: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub status: Option<TemplateStatus>,
    #[schemars(extend("readOnly" = true))]
    pub version_count: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum VersionStatus {
    Created,
    Ready,
    Failed,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeTemplateVersion {
    pub name: Option<String>,
    pub template_name: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub bucket: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub content_size: Option<i64>,
    #[schemars(extend("readOnly" = true))]
    pub region: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub status: Option<VersionStatus>,
    #[schemars(extend("readOnly" = true))]
    pub version_id: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub workspace: Option<String>,
}

/// What the server knows of a template.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Oldest first.
    pub versions: Vec<VolumeTemplateVersion>,
    pub last_version_uploaded_at: Option<Timestamp>,
}

impl State {
    /// A template is ready as soon as one version is.
    fn template_status(&self) -> TemplateStatus {
        let has = |status| self.versions.iter().any(|version| version.status == Some(status));
        if has(VersionStatus::Ready) {
            TemplateStatus::Ready
        } else if has(VersionStatus::Failed) {
            TemplateStatus::Error
        } else {
            TemplateStatus::Created
        }
    }
}

impl Kind for VolumeTemplate {
    const NAME: KindName = KindName::VolumeTemplate;

    type State = State;

    head!();

    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        self.metadata.keep_external_id(old.map(|old| &old.metadata));
    }

    fn next_state(&self, old: Option<(&Self, &State)>, _now: Timestamp) -> State {
        old.map(|(_, state)| state.clone()).unwrap_or_default()
    }

    fn show(&mut self, stamp: &Stamp, state: &State, _now: Timestamp) {
        self.metadata.stamp(stamp);
        self.versions = Some(state.versions.clone());
        self.state = Some(VolumeTemplateState {
            last_version_uploaded_at: state.last_version_uploaded_at,
            latest_version: state.versions.last().and_then(|version| version.name.clone()),
            status: Some(state.template_status()),
            version_count: i64::try_from(state.versions.len()).ok(),
        });
    }
}
