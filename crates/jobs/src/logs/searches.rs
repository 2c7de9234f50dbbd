//! Searches in logs: each reads up to 64 MiB of text, so they run apart from what serves
//! connections, and each workspace has a share of them.

use super::find::{Found, Question, find};
use admission::Turns;
use std::sync::Arc;
use store::{Error, Store};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

/// Searches that go on at once, of all workspaces and of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchLimits {
    pub total: usize,
    pub workspace: usize,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self { total: 4, workspace: 2 }
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Searches {
    store: Store,
    turns: Arc<Turns>,
}

impl Searches {
    pub fn new(store: Store, limits: SearchLimits) -> Self {
        Self { store, turns: Arc::new(Turns::new(limits.total, limits.workspace)) }
    }

    /// Waits for the workspace's turn, and searches.
    pub async fn find(&self, question: Question) -> Result<Found, Error> {
        let turn = self.turns.take(question.workspace.as_str()).await;
        let (store, runtime) = (self.store.clone(), Handle::current());
        let searched = spawn_blocking(move || {
            // A search goes on when its caller has gone.
            let _turn = turn;
            runtime.block_on(find(&store, &question))
        });
        let interrupted = |_| Error::Unusable("a search in logs was interrupted".to_owned());
        searched.await.map_err(interrupted)?
    }

    #[cfg(test)]
    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }
}
