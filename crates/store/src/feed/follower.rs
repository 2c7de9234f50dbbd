//! Waiting for changes.

use super::Change;
use crate::{Error, Store};
use std::time::Duration;
use tokio::sync::watch;
use types::ids::WorkspaceId;

/// Most changes read at once.
const AT_ONCE_MAX: u16 = 1000;
/// The same for followers of one workspace. There are many of them, and what one has read stays in
/// memory for as long as its caller does not read on.
const AT_ONCE_OF_WORKSPACE_MAX: u16 = 100;

/// Reads the feed from a revision on. Woken by commits of this process, and by a timer to notice
/// those of others.
pub struct Follower {
    store: Store,
    commits: watch::Receiver<i64>,
    workspace: Option<WorkspaceId>,
    after: i64,
    at_once: u16,
    poll_interval: Duration,
}

impl Store {
    /// Follows all changes after a revision.
    pub fn follow(&self, after: i64, poll_interval: Duration) -> Follower {
        Follower {
            store: self.clone(),
            commits: self.commits(),
            workspace: None,
            after,
            at_once: AT_ONCE_MAX,
            poll_interval,
        }
    }
}

impl Follower {
    /// Follows one workspace only.
    #[must_use]
    pub fn of(mut self, workspace: WorkspaceId) -> Self {
        self.workspace = Some(workspace);
        self.at_once = AT_ONCE_OF_WORKSPACE_MAX;
        self
    }

    /// Returns the position from which a later follower can continue.
    pub fn position(&self) -> i64 {
        self.after
    }

    /// Waits for changes; the result is never empty. May be dropped and called again without losing
    /// any.
    pub async fn next(&mut self) -> Result<Vec<Change>, Error> {
        loop {
            self.commits.mark_unchanged();
            let changes = self.read().await?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            // Either outcome means the same: look again.
            let _ = tokio::time::timeout(self.poll_interval, self.unread()).await;
        }
    }

    /// Waits for a commit after which this process has recorded a change that was not read yet. Most
    /// commits record none. One that did may be followed by others before its change can be read,
    /// if a transaction with a lower revision is still running.
    async fn unread(&mut self) {
        while self.commits.changed().await.is_ok() {
            if *self.commits.borrow() > self.after {
                return;
            }
        }
    }

    async fn read(&mut self) -> Result<Vec<Change>, Error> {
        let (recent, at_once) = (self.store.recent(), self.at_once);
        if let Some((changes, upto)) =
            recent.since(self.workspace.as_ref(), self.after, at_once.into())
        {
            self.after = upto;
            return Ok(changes);
        }
        let (workspace, after) = (self.workspace.clone(), self.after);
        let (changes, upto) = self
            .store
            .read(move |tx| super::read(tx, workspace.as_ref(), after, at_once.into()))
            .await?;
        self.after = upto;
        Ok(changes)
    }
}
