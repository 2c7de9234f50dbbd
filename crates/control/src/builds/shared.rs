//! What requests and the build loop of this server tell each other.

use super::settings::Settings;
use admission::{Limits, Pool};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;
use types::ids::{BuildId, WorkspaceId};

pub(crate) struct Shared {
    pub(super) uploads: Pool<WorkspaceId>,
    /// Wakes the loop when there may be something to do.
    pub(super) news: Notify,
    /// Builds whose sources may be written here at the moment, whatever their rows say, and by how
    /// many requests.
    arriving: Mutex<HashMap<BuildId, usize>>,
    /// The builds of this server, and whether somebody has seen them as building.
    seen: Mutex<HashMap<BuildId, bool>>,
}

impl Shared {
    pub(crate) fn new(settings: &Settings) -> Self {
        let limits = Limits { total: settings.uploads_max, share: settings.uploads_workspace_max };
        Self {
            uploads: Pool::new("uploads", limits),
            news: Notify::new(),
            arriving: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    /// Notes that somebody has seen a build. Builds of other servers are ignored; those show them
    /// themselves.
    pub(crate) fn saw(&self, build: &BuildId) {
        if let Some(seen) = self.seen.lock().get_mut(build)
            && !std::mem::replace(seen, true)
        {
            self.news.notify_one();
        }
    }

    pub(super) fn is_arriving(&self, build: &BuildId) -> bool {
        self.arriving.lock().contains_key(build)
    }

    pub(super) fn show(&self, build: &BuildId) {
        self.seen.lock().entry(build.clone()).or_default();
    }

    pub(super) fn was_seen(&self, build: &BuildId) -> bool {
        self.seen.lock().get(build).is_some_and(|seen| *seen)
    }

    /// Forgets the builds that are over.
    pub(super) fn show_only(&self, mut goes_on: impl FnMut(&BuildId) -> bool) {
        self.seen.lock().retain(|build, _| goes_on(build));
    }
}

/// Marks sources as being written. Until this is dropped, leftovers of the build are not removed.
pub(super) struct Arriving {
    builds: Arc<Shared>,
    build: BuildId,
}

impl Arriving {
    pub(super) fn begin(builds: &Arc<Shared>, build: &BuildId) -> Self {
        *builds.arriving.lock().entry(build.clone()).or_default() += 1;
        Self { builds: Arc::clone(builds), build: build.clone() }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut arriving = self.builds.arriving.lock();
        if let Some(requests) = arriving.get_mut(&self.build) {
            *requests -= 1;
            if *requests == 0 {
                arriving.remove(&self.build);
            }
        }
        drop(arriving);
        self.builds.news.notify_one();
    }
}
