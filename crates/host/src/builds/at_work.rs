//! Which builds have a thread at work: it goes on for a moment after the last one who waited for it
//! has gone away.

use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;
use types::ids::BuildId;

#[derive(Clone, Default)]
pub(super) struct AtWork(Arc<watch::Sender<HashMap<BuildId, usize>>>);

/// As long as this lives, the build is at work.
pub(super) struct Working {
    all: AtWork,
    build: BuildId,
}

impl AtWork {
    pub(super) fn begin(&self, build: &BuildId) -> Working {
        self.0.send_modify(|all| *all.entry(build.clone()).or_default() += 1);
        Working { all: self.clone(), build: build.clone() }
    }

    /// Waits until a build is not at work any more.
    pub(super) async fn end(&self, build: &BuildId) {
        // Never fails: the sender is ours.
        let _ = self.0.subscribe().wait_for(|all| !all.contains_key(build)).await;
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.all.0.send_modify(|all| {
            if let Some(threads) = all.get_mut(&self.build) {
                *threads -= 1;
                if *threads == 0 {
                    all.remove(&self.build);
                }
            }
        });
    }
}
