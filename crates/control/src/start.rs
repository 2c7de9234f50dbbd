//! Builds the control plane and starts its background work.

use crate::context::{Context, as_admin};
use crate::control::{Control, Inner};
use crate::cursor::CursorKey;
use crate::domains::Lookup;
use crate::drive_key::DriveKey;
use crate::machine::{Builder, Edge, Machine};
use crate::servers::{self, Servers};
use crate::settings::Settings;
use crate::workload_identity::key::IdentityKey;
use crate::workloads::shared::Shared;
use crate::{
    Error, billing, builds, models, repositories, usage, workloads, workspace_defaults,
    workspace_removal,
};
use auth::{Auth, Denied, Identity};
use jobs::Queue;
use jobs::callbacks::Callbacks;
use parking_lot::Mutex;
use std::sync::Arc;
use store::identity::workspaces;
use store::{Store, Tx};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::World;

/// The parts that [`Control`] is built from.
pub struct Parts {
    pub store: Store,
    pub auth: Auth,
    pub world: World,
    pub settings: Settings,
    /// Runs instances. A server without a machine leaves workloads to other servers.
    pub machine: Option<Arc<dyn Machine>>,
    /// Routes requests to instances.
    pub edge: Option<Arc<dyn Edge>>,
    /// Builds images on this server's machine.
    pub builder: Option<Arc<dyn Builder>>,
    /// The output of tasks.
    pub logs: jobs::logs::Logs,
    pub dns: Arc<dyn Lookup>,
}

impl Control {
    /// Loads the keys that all servers of one database share, and creates what every workspace must
    /// have.
    pub async fn new(parts: Parts) -> Result<Self, store::Error> {
        let Parts { store, auth, world, settings, machine, edge, builder, logs, dns } = parts;
        let (cursors, drive_key) = (CursorKey::load(&store).await?, DriveKey::load(&store).await?);
        let identities = IdentityKey::load(&store).await?;
        let name = machine.as_ref().map(|machine| machine.name().to_owned());
        let (own, here) = (settings.clone(), name.clone());
        let prepare = move |tx: &mut Tx<'_>| {
            here.as_deref().map_or(Ok(()), |machine| servers::announce(tx, machine, &own))?;
            billing::seed(tx, &own.bill)
        };
        store.write(prepare).await?;
        let servers = Servers::default();
        servers.look(&store).await?;
        let lives = usage::TaskLives { machine: name };
        let queue = Queue::new(settings.jobs.clone(), vec![Arc::new(Callbacks), Arc::new(lives)]);
        let control = Self(Arc::new(Inner {
            store,
            auth,
            world,
            cursors,
            drive_key,
            identities,
            dns,
            queue,
            logs,
            machine,
            edge,
            builds: Arc::new(builds::shared::Shared::new(&settings.builds)),
            models: models::Shared::new(&settings.models),
            servers,
            workloads: Shared::new(&settings),
            settings,
            builder,
            removals: Notify::new(),
            deleted_workspaces: Mutex::default(),
        }));
        control.seed().await?;
        Ok(control)
    }

    /// Deletes executions that ended longer ago than the retention period. Returns the number of
    /// rows.
    pub async fn forget_executions(&self) -> Result<u64, store::Error> {
        self.queue.tidy(&self.store).await
    }

    /// Creates what every workspace must have where a crash or an older release left it out.
    async fn seed(&self) -> Result<(), store::Error> {
        let control = self.clone();
        let work = move |tx: &mut Tx<'_>| {
            for workspace in workspaces::list(tx)? {
                let member = as_admin(&Arc::new(Identity::system()), &workspace);
                let context = Context { control: control.clone(), member };
                match workspace_defaults::create_missing(&context, tx) {
                    // Another server has deleted it since it was listed.
                    Err(Error::Denied(Denied::NotMember { .. })) => {}
                    made => made?,
                }
            }
            workloads::adopt::adopt(&control, tx)
        };
        self.store.write(work).await.map_err(|error| match error {
            Error::Store(error) => error,
            other => store::Error::Unusable(format!("workspaces cannot be prepared: {other}")),
        })
    }
}

/// Starts the background work of a server, which runs until `ending`: workloads follow their rows,
/// images are built, budgets are watched. The handle completes once workloads and builds in
/// progress have ended.
pub fn start(control: &Control, ending: &CancellationToken) -> JoinHandle<()> {
    tokio::spawn(billing::run(control.clone(), ending.clone()));
    tokio::spawn(repositories::run(control.clone(), ending.clone()));
    tokio::spawn(servers::run(control.clone(), ending.clone()));
    tokio::spawn(workspace_removal::run(control.clone(), ending.clone()));
    let (of, end) = (control.clone(), ending.clone());
    tokio::spawn(async move {
        tokio::join!(workloads::run(of.clone(), end.clone()), builds::run(of, end));
    })
}
