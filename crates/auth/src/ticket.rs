//! Long-lived connections: the credential they were opened with, and when it stops being valid.

use crate::registry_tokens::Bond;
use crate::{Auth, Denied, Member};
use admission::{Due, Verdict};
use std::fmt;
use types::Scope;
use types::ids::WorkspaceId;

/// The credential and rights with which a connection that may last was opened.
pub struct Ticket {
    shown: Shown,
    workspace: WorkspaceId,
    workspace_name: String,
    scopes: &'static [Scope],
}

enum Shown {
    /// An API key or an access token.
    Credential(String),
    /// A registry token. What it opened stays open as long as the credential behind it is valid:
    /// such tokens live for minutes, and large layers take longer.
    Bond(Bond),
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

impl Ticket {
    /// Makes a ticket for `member`, who showed `token` and used `scopes`.
    pub fn new(token: &str, member: &Member, scopes: &'static [Scope]) -> Self {
        Self::of(Shown::Credential(token.to_owned()), member, scopes)
    }

    /// Makes a ticket for `member`, who showed a registry token with this credential behind it.
    pub fn of_registry(bond: &Bond, member: &Member, scopes: &'static [Scope]) -> Self {
        Self::of(Shown::Bond(bond.clone()), member, scopes)
    }

    fn of(shown: Shown, member: &Member, scopes: &'static [Scope]) -> Self {
        Self {
            shown,
            workspace: member.workspace.clone(),
            workspace_name: member.workspace_name.clone(),
            scopes,
        }
    }
}

impl Auth {
    /// Checks that the ticket's credential and rights are still valid.
    pub async fn still_admits(&self, ticket: &Ticket) -> Result<(), Denied> {
        let identity = match &ticket.shown {
            Shown::Credential(token) => self.identify(token).await?,
            Shown::Bond(bond) => self.identify_bond(bond).await?,
        };
        identity.enter_again(&ticket.workspace, &ticket.workspace_name)?.may(ticket.scopes)
    }

    /// Waits until a ticket is no longer valid: its credential was revoked or expired, or its
    /// holder lost the right. Every connection that outlives its request must end with it.
    pub async fn outlived(&self, ticket: &Ticket) -> Denied {
        let look = || async {
            match self.still_admits(ticket).await {
                Ok(()) => Verdict::Good,
                Err(denied @ Denied::Store(_)) => Verdict::Unsure(denied),
                Err(denied) => Verdict::Refused(denied),
            }
        };
        self.recheck().until_refused(Due::Changes(vec![self.changes()]), look).await
    }
}
