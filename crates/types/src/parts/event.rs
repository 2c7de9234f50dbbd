//! Events of a resource, and the status that follows from them.

use super::Building;
use crate::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The stage of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    Deleting,
    Terminated,
    Failed,
    Deactivated,
    Deactivating,
    Uploading,
    Building,
    Deploying,
    Deployed,
    Built,
    Archiving,
    Archived,
    Unarchiving,
}

impl Status {
    pub const ALL: [Self; 13] = [
        Self::Deleting,
        Self::Terminated,
        Self::Failed,
        Self::Deactivated,
        Self::Deactivating,
        Self::Uploading,
        Self::Building,
        Self::Deploying,
        Self::Deployed,
        Self::Built,
        Self::Archiving,
        Self::Archived,
        Self::Unarchiving,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Deleting => "DELETING",
            Self::Terminated => "TERMINATED",
            Self::Failed => "FAILED",
            Self::Deactivated => "DEACTIVATED",
            Self::Deactivating => "DEACTIVATING",
            Self::Uploading => "UPLOADING",
            Self::Building => "BUILDING",
            Self::Deploying => "DEPLOYING",
            Self::Deployed => "DEPLOYED",
            Self::Built => "BUILT",
            Self::Archiving => "ARCHIVING",
            Self::Archived => "ARCHIVED",
            Self::Unarchiving => "UNARCHIVING",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// One thing that happened to a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoreEvent {
    /// Type of the event, such as `deployment`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status of the resource from this event on.
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary_revision: Option<String>,
    pub time: Timestamp,
}

/// The state of kinds about which only their events are known. The status is that of the last
/// event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    #[serde(default)]
    pub events: Vec<CoreEvent>,
    /// The latest requested build, until its image or another wish takes its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub building: Option<Building>,
}

impl Lifecycle {
    /// Most events kept. Older ones are dropped, so that an object that is changed forever does not
    /// grow forever.
    pub const EVENTS_MAX: usize = 50;

    /// Returns the status of the deployment, or that of its build while nothing is deployed yet.
    pub fn status(&self) -> Option<Status> {
        let last = self.events.last().or_else(|| self.building.as_ref()?.events.last());
        last.map(|event| event.status)
    }

    /// Returns the message of the last event, or where to look if it has none.
    pub fn last_message(&self) -> &str {
        self.events.last().and_then(|event| event.message.as_deref()).unwrap_or("see its events")
    }

    /// Appends an event. Its time is later than all earlier ones, even if the clock was set back,
    /// because readers sort by time.
    pub fn record(
        &mut self,
        kind: &str,
        status: Status,
        message: impl Into<String>,
        time: Timestamp,
    ) {
        let time = self.events.last().map_or(time, |last| time.max(last.time.plus_ms(1)));
        let message = Some(message.into()).filter(|message| !message.is_empty());
        self.events.push(CoreEvent {
            kind: kind.into(),
            status,
            message,
            revision: None,
            canary_revision: None,
            time,
        });
        let excess = self.events.len().saturating_sub(Self::EVENTS_MAX);
        self.events.drain(..excess);
    }

    /// Appends an event like [`Lifecycle::record`], about one revision.
    pub fn record_of(
        &mut self,
        revision: Of<'_>,
        kind: &str,
        status: Status,
        message: impl Into<String>,
        time: Timestamp,
    ) {
        self.record(kind, status, message, time);
        let Some(last) = self.events.last_mut() else { return };
        match revision {
            Of::Revision(revision) => last.revision = Some(revision.to_owned()),
            Of::Canary(revision) => last.canary_revision = Some(revision.to_owned()),
        }
    }
}

/// The revision that an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of<'e> {
    Revision(&'e str),
    Canary(&'e str),
}
