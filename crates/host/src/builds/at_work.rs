//! Which builds have a thread at work: it goes on for a moment after the last one who waited for it
//! has gone away.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use types::ids::BuildId;

#[derive(Clone, Default)]
pub(super) struct AtWork(Arc<Mutex<HashMap<BuildId, usize>>>);

/// As long as this lives, the build is at work.
pub(super) struct Working {
    all: AtWork,
    build: BuildId,
}

impl AtWork {
    pub(super) fn begin(&self, build: &BuildId) -> Working {
        *self.0.lock().entry(build.clone()).or_default() += 1;
        Working { all: self.clone(), build: build.clone() }
    }

    pub(super) fn is_at(&self, build: &BuildId) -> bool {
        self.0.lock().contains_key(build)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(threads) = all.get_mut(&self.build) {
            *threads -= 1;
            if *threads == 0 {
                all.remove(&self.build);
            }
        }
    }
}
