//! What a change of the wish does to the status of a deployment.

use super::{Lifecycle, Status};
use crate::Timestamp;
use crate::ids::ServiceAccountId;
use serde::{Deserialize, Serialize};

/// What the server knows of an agent, an MCP server or an application.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// What serves. Another revision takes its place once that is ready.
    #[serde(default)]
    pub serving: Option<Served>,
    /// The canary, once it was ready.
    #[serde(default)]
    pub canary: Option<String>,
    /// Revisions of this wish that did not become ready. They are not tried again.
    #[serde(default)]
    pub failed: Vec<String>,
    /// The machine that runs it.
    #[serde(default)]
    pub machine: Option<String>,
    /// Numbers of replicas up to this one were given out.
    #[serde(default)]
    pub numbers: u32,
    /// Who it is when it calls this server.
    #[serde(default)]
    pub identity: Option<ServiceAccountId>,
    /// In front of the server's own name, behind `app-`, for the kind that answers at hosts.
    #[serde(default)]
    pub label: Option<String>,
}

/// A revision that serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    pub revision: String,
    /// On which its program listens.
    pub port: u16,
}

impl Deployment {
    /// The state of one that was just made, or that was `changed` by a write. One that has failed is
    /// tried again by any write.
    pub fn next(old: Option<(&Self, bool)>, enabled: bool, now: Timestamp) -> Self {
        let mut next = old.map(|(state, _)| state.clone()).unwrap_or_default();
        let has_failed = next.lifecycle.status() == Some(Status::Failed);
        let changed = old.is_none_or(|(_, changed)| changed);
        let is_tried_again = has_failed && enabled;
        if !changed && !is_tried_again {
            return next;
        }
        let needs = if next.machine.is_some() { Needs::Replicas } else { Needs::Machine };
        next.failed.clear();
        next.lifecycle = next.lifecycle.deploy(enabled, needs, now);
        next
    }

    /// The revision that serves.
    pub fn serves(&self) -> Option<&str> {
        self.serving.as_ref().map(|served| served.revision.as_str())
    }

    pub fn has_failed(&self, revision: &str) -> bool {
        self.failed.iter().any(|failed| failed == revision)
    }
}

/// What has to act before a resource serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// The record is all there is to it.
    Nothing,
    /// A machine runs it.
    Machine,
    /// As [`Needs::Machine`], and what runs of it has to end before it is out of service.
    Replicas,
}

/// The event type of everything that deploys.
const DEPLOYMENT: &str = "deployment";

impl Lifecycle {
    /// The lifecycle after a resource was made or changed so that it has to be deployed anew.
    pub fn deploy(&self, enabled: bool, needs: Needs, now: Timestamp) -> Self {
        let (status, message) = match (enabled, needs) {
            (false, Needs::Replicas) => (Status::Deactivating, "disabled by its spec"),
            (false, _) => (Status::Deactivated, "disabled by its spec"),
            (true, Needs::Nothing) => (Status::Deployed, "in effect"),
            (true, Needs::Machine | Needs::Replicas) => {
                (Status::Deploying, "accepted; no machine has taken it up yet")
            }
        };
        let mut next = self.clone();
        next.end_build();
        next.record(DEPLOYMENT, status, message, now);
        next
    }

    /// [`Lifecycle::deploy`] if it is new or changed, otherwise what it was.
    pub fn next(
        old: Option<&Self>,
        changed: bool,
        enabled: bool,
        needs: Needs,
        now: Timestamp,
    ) -> Self {
        match old {
            Some(old) if !changed => old.clone(),
            Some(old) => old.deploy(enabled, needs, now),
            None => Self::default().deploy(enabled, needs, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_ms(1_776_300_000_000);

    fn status(state: &Deployment) -> Option<Status> {
        state.lifecycle.status()
    }

    #[test]
    fn what_has_replicas_is_out_of_service_only_when_they_have_ended() {
        let new = Deployment::next(None, false, NOW);
        assert_eq!(status(&new), Some(Status::Deactivated), "nothing of it has ever run");
        let placed = Deployment { machine: Some("here".into()), ..new };
        let on = Deployment::next(Some((&placed, true)), true, NOW);
        assert_eq!(status(&on), Some(Status::Deploying));
        let off = Deployment::next(Some((&on, true)), false, NOW);
        assert_eq!(status(&off), Some(Status::Deactivating));
    }

    #[test]
    fn a_write_tries_again_what_has_failed() {
        let mut failed = Deployment { failed: vec!["a".into()], ..Deployment::default() };
        failed.lifecycle.record("deployment", Status::Failed, "no such image", NOW);
        let again = Deployment::next(Some((&failed, false)), true, NOW);
        assert_eq!((status(&again), again.failed.len()), (Some(Status::Deploying), 0));
        assert_eq!(Deployment::next(Some((&again, false)), true, NOW), again, "nothing is new");
        assert_eq!(Deployment::next(Some((&failed, false)), false, NOW), failed);
    }

    #[test]
    fn rows_of_earlier_releases_are_read() {
        let row = r#"{"events": [], "node_generation": null}"#;
        assert_eq!(serde_json::from_str::<Deployment>(row).unwrap(), Deployment::default());
    }
}
