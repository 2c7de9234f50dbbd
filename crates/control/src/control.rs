//! The handle of the control plane: what rules, background work and the API share.

use crate::builds::shared as builds;
use crate::cursor::CursorKey;
use crate::domains::Lookup;
use crate::drive_key::DriveKey;
use crate::drive_store::DriveStore;
use crate::machine::{Builder, Edge, Machine};
use crate::models;
use crate::servers::Servers;
use crate::settings::Settings;
use crate::snapshot_store::SnapshotStore;
use crate::volume_store::VolumeStore;
use crate::workload_identity::key::IdentityKey;
use crate::workloads::shared::Shared;
use auth::Auth;
use jobs::Queue;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::Store;
use tokio::sync::Notify;
use types::World;
use types::edge::{RequestStats, RouteChange, Window};
use types::ids::{ResourceId, WorkspaceId};

/// Cheap to clone.
#[derive(Clone)]
pub struct Control(pub(crate) Arc<Inner>);

pub struct Inner {
    pub store: Store,
    pub auth: Auth,
    pub world: World,
    pub settings: Settings,
    pub cursors: CursorKey,
    pub drive_key: DriveKey,
    pub(crate) identities: IdentityKey,
    pub dns: Arc<dyn Lookup>,
    pub queue: Queue,
    /// The output of tasks.
    pub(crate) logs: jobs::logs::Logs,
    pub(crate) machine: Option<Arc<dyn Machine>>,
    pub(crate) edge: Option<Arc<dyn Edge>>,
    pub(crate) builder: Option<Arc<dyn Builder>>,
    pub(crate) builds: Arc<builds::Shared>,
    pub(crate) workloads: Shared,
    pub(crate) models: models::Shared,
    pub(crate) servers: Servers,
    /// Wakes [`crate::workspace_removal::run`].
    pub(crate) removals: Notify,
    /// Workspaces that were deleted, by any server, and whose images may still be on this machine.
    pub(crate) deleted_workspaces: Mutex<BTreeSet<WorkspaceId>>,
}

impl std::ops::Deref for Control {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Inner {
    /// The machine that this server runs instances on. Without one, workloads are left to other
    /// servers.
    pub fn machine(&self) -> Option<&Arc<dyn Machine>> {
        self.machine.as_ref()
    }

    /// What keeps volumes on this server's machine, and the machine's name.
    pub(crate) fn volume_store(&self) -> Option<(Arc<dyn VolumeStore>, String)> {
        self.on_machine(|machine| machine.volumes())
    }

    /// What keeps drives on this server's machine, and the machine's name.
    pub(crate) fn drive_store(&self) -> Option<(Arc<dyn DriveStore>, String)> {
        self.on_machine(|machine| machine.drives())
    }

    /// What takes and keeps snapshots on this server's machine, and the machine's name.
    pub(crate) fn snapshot_store(&self) -> Option<(Arc<dyn SnapshotStore>, String)> {
        self.on_machine(|machine| machine.snapshots())
    }

    fn on_machine<S>(&self, part: impl FnOnce(&dyn Machine) -> Option<S>) -> Option<(S, String)> {
        let machine = self.machine()?;
        Some((part(machine.as_ref())?, machine.name().to_owned()))
    }

    /// Statistics of the requests to a workload, as far as this server's edge knows them.
    pub fn requests_of(
        &self,
        workload: &ResourceId,
        window: Option<Window>,
    ) -> Option<RequestStats> {
        self.edge.as_ref()?.requests_of(workload, window)
    }

    /// Tells the edge about a changed route, if this server has an edge.
    pub(crate) fn publish(&self, change: RouteChange) {
        if let Some(edge) = &self.edge {
            edge.publish(change);
        }
    }
}
