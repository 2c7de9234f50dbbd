//! What every handler works with.

use crate::cursor::CursorKey;
use crate::domains::Lookup;
use crate::drive_key::DriveKey;
use crate::engine::Desk;
use crate::fleet::Fleet;
use crate::furnish::{as_admin, furnish};
use crate::limits::Limits;
use crate::settings::Settings;
use crate::streams::Streams;
use crate::usage;
use auth::{Auth, Identity};
use jobs::Queue;
use jobs::callbacks::Callbacks;
use std::sync::Arc;
use store::Store;
use store::identity::workspaces;
use types::World;

/// What [`App`] is made of.
pub struct Parts {
    pub store: Store,
    pub auth: Auth,
    pub world: World,
    pub settings: Settings,
    pub fleet: Fleet,
    /// What tasks print.
    pub logs: jobs::logs::Logs,
    pub dns: Arc<dyn Lookup>,
}

/// Cheap to clone; handlers get one each.
#[derive(Clone)]
pub struct App(Arc<Inner>);

pub struct Inner {
    pub store: Store,
    pub auth: Auth,
    pub world: World,
    pub settings: Settings,
    pub(crate) fleet: Fleet,
    pub(crate) logs: jobs::logs::Logs,
    pub(crate) dns: Arc<dyn Lookup>,
    pub(crate) queue: Queue,
    pub(crate) cursors: CursorKey,
    pub(crate) drive_key: DriveKey,
    pub(crate) limits: Limits,
    pub(crate) streams: Streams,
}

impl std::ops::Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl App {
    /// Prepares the API: loads the key that signs cursors and makes what each workspace must have.
    pub async fn new(parts: Parts) -> Result<Self, store::Error> {
        let Parts { store, auth, world, settings, fleet, logs, dns } = parts;
        let (cursors, drive_key) = (CursorKey::load(&store).await?, DriveKey::load(&store).await?);
        let bill = settings.bill.clone();
        store.write(move |tx| crate::bill::seed(tx, &bill)).await?;
        let limits = Limits::new(&settings, &world);
        let streams = Streams::new(settings.streams);
        let machine = fleet.machine().map(|machine| machine.name().to_owned()).unwrap_or_default();
        let lives = usage::TaskLives { machine };
        let queue = Queue::new(settings.jobs.clone(), vec![Arc::new(Callbacks), Arc::new(lives)]);
        let app = Self(Arc::new(Inner {
            store,
            auth,
            world,
            settings,
            fleet,
            logs,
            dns,
            queue,
            cursors,
            drive_key,
            limits,
            streams,
        }));
        app.furnish().await?;
        Ok(app)
    }

    /// Forgets executions that ended longer ago than they are kept. Says how many rows that were.
    pub async fn forget_executions(&self) -> Result<u64, store::Error> {
        self.queue.tidy(&self.store).await
    }

    /// Makes what every workspace has, where a crash or an older release left it out.
    async fn furnish(&self) -> Result<(), store::Error> {
        let app = self.clone();
        let work = move |tx: &mut store::Tx<'_>| {
            for workspace in workspaces::list(tx)? {
                let member = as_admin(&Arc::new(Identity::system()), &workspace);
                furnish(&Desk { app: app.clone(), member }, tx)?;
            }
            crate::fleet::adopt::adopt(&app, tx)
        };
        self.store.write(work).await.map_err(|error| match error {
            crate::Error::Store(error) => error,
            other => store::Error::Unusable(format!("workspaces cannot be prepared: {other}")),
        })
    }
}
