//! What all parts that work on workloads share.

use super::alarm::Alarm;
use super::deployments::live::Deployments;
use super::locks::{InProgress, InProgressGuard, LiveForks, Telling};
use super::looks::Looks;
use crate::egress::told::Told;
use crate::settings::Settings;
use admission::{Locks, Turns};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use types::KindName;
use types::ids::{ResourceId, WorkspaceId};

/// Most workloads that are started, stopped or removed in the background at the same time, of all
/// workspaces and of one. Most of them wait for the machine or for the database, which have limits
/// of their own; these only keep one workspace's slow ones from being all that is worked on.
const AT_ONCE: usize = 32;
const WORKSPACE_AT_ONCE: usize = 8;

pub(crate) struct Shared {
    locks: Locks<ResourceId>,
    /// Names for which something is made on the machine before they have a row.
    new_names: Locks<(WorkspaceId, KindName, String)>,
    /// Sandboxes whose instance is started while their row is written. Their rows may say more than
    /// the machine knows yet.
    pub(super) starting: InProgress,
    pub(super) telling: Telling,
    /// The newest revision of the feed up to which the edge knows everything.
    pub(super) published: tokio::sync::watch::Sender<i64>,
    pub(super) slots: Turns,
    /// The same for sandboxes that callers create and wait for, so that they do not wait for what
    /// the background does.
    pub(super) creating: Turns,
    /// Separate slots for retries that the tenant's own instance may be causing, so that these
    /// cannot take the others' slots.
    pub(super) retry_slots: Turns,
    /// The rows that the background is about to look at.
    pub(super) pending: Looks,
    pub(crate) tasks: TaskTracker,
    pub(super) alarm: Alarm,
    pub(super) deployments: Deployments,
    /// The rules that instances of sandboxes were told.
    pub(super) told: Told,
    /// Snapshots that are being taken.
    pub(super) takes: InProgress,
    /// Sandboxes that are to sleep, and still have requests.
    pub(super) resting: InProgress,
    /// Sandboxes that are being archived.
    pub(super) archiving: InProgress,
    /// Sandboxes whose files are being fetched.
    pub(super) fetching: InProgress,
    /// The snapshot that forks of a sandbox took last.
    pub(crate) live: LiveForks,
}

impl Shared {
    /// Marks a snapshot as being taken until the guard is dropped.
    pub(crate) fn taking(&self, id: &ResourceId) -> InProgressGuard<'_> {
        self.takes.begin(id)
    }

    /// Returns a token that is cancelled when this run of the program ends.
    pub(crate) fn ending(&self) -> CancellationToken {
        self.deployments.ending.clone()
    }

    /// Waits until nobody else works on a resource.
    pub(crate) async fn lock(&self, id: &ResourceId) -> OwnedMutexGuard<()> {
        self.locks.take(id).await
    }

    /// Waits until no other request to this server makes something for a new resource of this name.
    pub(crate) async fn lock_name(
        &self,
        workspace: &WorkspaceId,
        kind: KindName,
        name: &str,
    ) -> OwnedMutexGuard<()> {
        self.new_names.take(&(workspace.clone(), kind, name.to_owned())).await
    }

    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            locks: Locks::default(),
            new_names: Locks::default(),
            starting: InProgress::default(),
            telling: Telling::default(),
            published: tokio::sync::watch::Sender::new(-1),
            slots: Turns::new(AT_ONCE, WORKSPACE_AT_ONCE),
            creating: Turns::new(AT_ONCE, WORKSPACE_AT_ONCE),
            retry_slots: Turns::new(AT_ONCE, WORKSPACE_AT_ONCE),
            pending: Looks::default(),
            tasks: TaskTracker::new(),
            alarm: Alarm::default(),
            deployments: Deployments::new(&settings.deployments),
            told: Told::default(),
            takes: InProgress::default(),
            resting: InProgress::default(),
            archiving: InProgress::default(),
            fetching: InProgress::default(),
            live: LiveForks::default(),
        }
    }
}
