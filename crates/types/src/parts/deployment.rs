//! The effect of a change of the wish on the status of a deployment.

use super::{Lifecycle, Status};
use crate::Timestamp;
use crate::ids::ServiceAccountId;
use serde::{Deserialize, Serialize};

/// What the server knows about an agent, an MCP server or an application beside its wish.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// The revision that serves. Another one replaces it once that is ready.
    #[serde(default)]
    pub serving: Option<Served>,
    /// The canary revision, once it was ready.
    #[serde(default)]
    pub canary: Option<String>,
    /// Revisions of this wish that failed to become ready. They are not tried again.
    #[serde(default)]
    pub failed: Vec<String>,
    /// The machine that runs it.
    #[serde(default)]
    pub machine: Option<String>,
    /// Highest replica number given out so far.
    #[serde(default)]
    pub numbers: u32,
    /// Service account with which its instances call this server.
    #[serde(default)]
    pub identity: Option<ServiceAccountId>,
    /// Label of its host, between `app-` and the server's own name, for kinds that answer at hosts.
    #[serde(default)]
    pub label: Option<String>,
}

/// The revision that serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    pub revision: String,
    /// Port on which its program listens.
    pub port: u16,
}

impl Deployment {
    /// Returns the state after a write that created the resource or, if `changed`, changed its
    /// wish. Any write retries one that has failed.
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

    /// Returns the revision that serves.
    pub fn serves(&self) -> Option<&str> {
        self.serving.as_ref().map(|served| served.revision.as_str())
    }

    pub fn has_failed(&self, revision: &str) -> bool {
        self.failed.iter().any(|failed| failed == revision)
    }
}

/// What must act before a resource serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: the resource is only a record.
    Nothing,
    /// A machine must run it.
    Machine,
    /// Like [`Needs::Machine`], and its running replicas must end before it is out of service.
    Replicas,
}

/// Type of all events about deployments.
const DEPLOYMENT: &str = "deployment";

impl Lifecycle {
    /// Returns the lifecycle after the resource was created, or changed so that it must be deployed
    /// again.
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

    /// Returns [`Lifecycle::deploy`] for a new or changed resource, otherwise the old lifecycle.
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
