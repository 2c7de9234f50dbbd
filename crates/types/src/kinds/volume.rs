//! Volumes: disks that outlive the sandbox they are attached to.

use crate::parts::{CoreEvent, Head, Lifecycle, Metadata, Needs, Status, fixed, keep, limits};
use crate::{Kind, KindName, ObjectMetadata, Problems, Reference, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

const SIZE_MB_DEFAULT: i64 = 1024;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    pub metadata: Metadata,
    pub spec: VolumeSpec,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    #[serde(skip_deserializing)]
    pub state: Option<VolumeState>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
    #[serde(skip_deserializing)]
    pub terminated_at: Option<Timestamp>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSpec {
    #[schemars(length(max = limits::WORD_MAX))]
    pub region: Option<String>,
    /// Size in megabytes. It can only grow.
    #[schemars(range(min = 1, max = limits::DISK_MB_MAX))]
    pub size: Option<i64>,
    /// Initial contents: a volume template and its version, as `name:version` or `name:latest`.
    #[schemars(length(max = limits::WORD_MAX))]
    pub template: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeState {
    /// The resource it is attached to, such as `sandbox:name`.
    #[schemars(extend("readOnly" = true))]
    pub attached_to: Option<String>,
}

/// What the server knows about a volume beside its wish.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    #[serde(default)]
    pub attached_to: Option<String>,
    #[serde(default)]
    pub terminated_at: Option<Timestamp>,
    /// The machine that keeps its files, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Number of times the meter was told its size.
    #[serde(default)]
    pub metered: u64,
}

impl Kind for Volume {
    const NAME: KindName = KindName::Volume;

    type State = State;

    head!();
    ready_at_once!();
    placed!();

    fn check_change(&self, old: &Self, problems: &mut Problems) {
        let (new, old) = (&self.spec, &old.spec);
        fixed(&new.region, &old.region, "spec.region", problems);
        fixed(&new.template, &old.template, "spec.template", problems);
        problems.require(new.size >= old.size, "spec.size", "cannot be made smaller");
    }

    /// Fills in defaults. A volume with a template gets the template's size, which is not known
    /// here.
    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        self.metadata.keep_external_id(old.map(|old| &old.metadata));
        let (spec, old) = (&mut self.spec, old.map(|old| &old.spec));
        keep(&mut spec.region, old.map(|old| &old.region));
        keep(&mut spec.template, old.map(|old| &old.template));
        keep(&mut spec.size, old.map(|old| &old.size));
        if spec.template.is_none() {
            spec.size.get_or_insert(SIZE_MB_DEFAULT);
        }
    }

    fn references(&self) -> Vec<Reference> {
        let template = self.spec.template.as_deref().filter(|template| !template.is_empty());
        let reference = |template: &str| {
            let name = template.split(':').next().unwrap_or_default().to_owned();
            Reference { kind: KindName::VolumeTemplate, name, field: "spec.template".into() }
        };
        template.map(reference).into_iter().collect()
    }

    fn lighten(&mut self) {
        self.events = None;
    }

    fn show(&mut self, stamp: &ObjectMetadata, state: &State, _now: Timestamp) {
        self.metadata.stamp(stamp);
        self.events = Some(state.lifecycle.events.clone());
        self.status = state.lifecycle.status();
        self.state = Some(VolumeState { attached_to: state.attached_to.clone() });
        self.terminated_at = state.terminated_at;
    }
}
