//! What everybody who works on workloads shares.

use super::alarm::Alarm;
use super::deployments::live::Deployments;
use super::locks::{Locks, Starting};
use crate::settings::Settings;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;
use tokio_util::task::TaskTracker;
use types::ids::ResourceId;

/// Workloads that are started, stopped or removed at once beside the requests of callers.
const AT_ONCE: usize = 16;

pub(crate) struct Shared {
    pub(super) locks: Locks,
    pub(super) starting: Starting,
    /// The newest revision of the feed that the edge knows all about.
    pub(super) published: tokio::sync::watch::Sender<i64>,
    pub(super) slots: Arc<tokio::sync::Semaphore>,
    pub(super) tasks: TaskTracker,
    pub(super) alarm: Alarm,
    pub(super) deployments: Deployments,
}

impl Shared {
    /// Waits until nobody else works on a resource.
    pub(crate) async fn lock(&self, id: &ResourceId) -> OwnedMutexGuard<()> {
        self.locks.take(id).await
    }

    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            locks: Locks::default(),
            starting: Starting::default(),
            published: tokio::sync::watch::Sender::new(-1),
            slots: Arc::new(tokio::sync::Semaphore::new(AT_ONCE)),
            tasks: TaskTracker::new(),
            alarm: Alarm::default(),
            deployments: Deployments::new(&settings.deployments),
        }
    }
}
