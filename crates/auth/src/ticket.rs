//! Connections that last: with what they were opened, and when that is no longer good.

use crate::{Auth, Denied, Member};
use admission::{Due, Verdict};
use std::fmt;
use types::Scope;
use types::ids::WorkspaceId;

/// What somebody showed to open a connection that may last.
pub struct Ticket {
    token: String,
    workspace: WorkspaceId,
    workspace_name: String,
    scopes: &'static [Scope],
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

impl Ticket {
    /// For `member`, who showed `token` and used `scopes`.
    pub fn new(token: &str, member: &Member, scopes: &'static [Scope]) -> Self {
        Self {
            token: token.to_owned(),
            workspace: member.workspace.clone(),
            workspace_name: member.workspace_name.clone(),
            scopes,
        }
    }
}

impl Auth {
    /// Whether a ticket would be given now.
    pub async fn still_admits(&self, ticket: &Ticket) -> Result<(), Denied> {
        let identity = self.identify(&ticket.token).await?;
        let member = self.enter(&identity, Some(&ticket.workspace_name))?;
        // Another workspace may have got the name.
        if member.workspace != ticket.workspace {
            return Err(Denied::NotMember { workspace: ticket.workspace_name.clone() });
        }
        member.may(ticket.scopes)
    }

    /// Waits until a ticket is no longer good: revoked, expired, or its holder without the right.
    /// Every connection that outlives its request must end with it.
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
