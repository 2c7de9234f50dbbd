//! What a change of the wish does to the status of a deployment.

use super::{Lifecycle, Status};
use crate::Timestamp;

/// What has to act before a resource serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// The record is all there is to it.
    Nothing,
    /// A machine runs it.
    Machine,
}

/// The event type of everything that deploys.
const DEPLOYMENT: &str = "deployment";

impl Lifecycle {
    /// The lifecycle after a resource was made or changed so that it has to be deployed anew.
    pub fn deploy(&self, enabled: bool, needs: Needs, now: Timestamp) -> Self {
        let (status, message) = match (enabled, needs) {
            (false, _) => (Status::Deactivated, "disabled by its spec"),
            (true, Needs::Nothing) => (Status::Deployed, "in effect"),
            (true, Needs::Machine) => {
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
