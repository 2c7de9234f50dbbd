//! Volume templates: initial contents of new volumes, in versions.

use crate::parts::{Head, Metadata, limits};
use crate::{Kind, KindName, ObjectMetadata, Timestamp, World};
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
    /// Size in megabytes of a volume that does not state its own.
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
    /// Reason why the contents could not be used.
    #[schemars(extend("readOnly" = true))]
    pub reason: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub region: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub status: Option<VersionStatus>,
    #[schemars(extend("readOnly" = true))]
    pub version_id: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub workspace: Option<String>,
}

/// What the server knows about a template beside its wish.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Versions, oldest first.
    pub versions: Vec<Version>,
    pub last_version_uploaded_at: Option<Timestamp>,
    /// The version whose content has not arrived yet or is being unpacked.
    pub awaited: Option<Awaited>,
    /// Number of times content was awaited; each time gets its own number.
    pub numbers: u64,
    /// The highest version name that is a number, including removed versions.
    pub counted: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Version {
    pub name: String,
    pub content: Content,
}

/// The contents that a version gives to volumes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Content {
    #[serde(rename_all = "camelCase")]
    Ready {
        number: u64,
        /// Bytes of its files.
        bytes: i64,
        /// Megabytes of a volume that can hold them.
        size_mb: u32,
        /// The machine on which they were unpacked.
        machine: String,
        /// Digest of their copy at an object service. Without one, only that machine has them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        copy: Option<String>,
    },
    Failed {
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    pub version: String,
    pub number: u64,
}

impl Version {
    pub const fn is_ready(&self) -> bool {
        matches!(self.content, Content::Ready { .. })
    }

    fn shown(&self, of: &str, workspace: &str) -> VolumeTemplateVersion {
        let mut shown = bare(&self.name, of, workspace);
        match &self.content {
            Content::Ready { number, bytes, .. } => {
                shown.status = Some(VersionStatus::Ready);
                shown.version_id = Some(number.to_string());
                shown.content_size = Some(*bytes);
            }
            Content::Failed { reason } => {
                shown.status = Some(VersionStatus::Failed);
                shown.reason = Some(reason.clone());
            }
        }
        shown
    }
}

fn bare(name: &str, of: &str, workspace: &str) -> VolumeTemplateVersion {
    VolumeTemplateVersion {
        name: Some(name.to_owned()),
        template_name: Some(of.to_owned()),
        workspace: Some(workspace.to_owned()),
        ..VolumeTemplateVersion::default()
    }
}

impl State {
    pub fn latest(&self) -> Option<&Version> {
        self.versions.iter().rev().find(|version| version.is_ready())
    }

    /// Returns the status. A template is ready as soon as one version is.
    fn status(&self) -> TemplateStatus {
        if self.latest().is_some() {
            TemplateStatus::Ready
        } else if self.versions.is_empty() {
            TemplateStatus::Created
        } else {
            TemplateStatus::Error
        }
    }

    fn shown(&self, of: &str, workspace: &str) -> Vec<VolumeTemplateVersion> {
        // An upload takes the place of one of the same name that failed, so a client that waits for
        // it must not find the old failure.
        let is_tried_again = |version: &Version| {
            let awaited = self.awaited.as_ref().map(|awaited| &awaited.version);
            !version.is_ready() && awaited == Some(&version.name)
        };
        let kept = self.versions.iter().filter(|version| !is_tried_again(version));
        let kept = kept.map(|version| version.shown(of, workspace));
        let awaited = self.awaited.iter().map(|awaited| VolumeTemplateVersion {
            status: Some(VersionStatus::Created),
            ..bare(&awaited.version, of, workspace)
        });
        kept.chain(awaited).collect()
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

    fn show(&mut self, stamp: &ObjectMetadata, state: &State, _now: Timestamp) {
        self.metadata.stamp(stamp);
        let versions = state.shown(&self.metadata.name, &stamp.workspace);
        self.state = Some(VolumeTemplateState {
            last_version_uploaded_at: state.last_version_uploaded_at,
            latest_version: state.latest().map(|version| version.name.clone()),
            status: Some(state.status()),
            version_count: i64::try_from(versions.len()).ok(),
        });
        self.versions = Some(versions);
    }
}
