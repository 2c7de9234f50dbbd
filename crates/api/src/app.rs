//! What every handler works with.

use crate::catalogue::Catalogue;
use crate::cursor::CursorKey;
use crate::engine::Desk;
use crate::limits::Limits;
use crate::routes::drives::DriveKey;
use crate::routes::workspaces::{as_admin, furnish};
use auth::{Auth, Identity};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use store::identity::workspaces;
use types::wire::Region;
use types::{KindName, World};

/// What the program decides about the API.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where callers reach this server, without a trailing slash.
    pub public_url: String,
    pub regions: Vec<Region>,
    pub catalogue: Catalogue,
    /// Bytes of a request body; more are refused.
    pub body_max: usize,
    /// Objects of a list without pages; a longer one is refused.
    pub bare_list_max: i64,
    /// Requests per second of one key, and how many may come at once.
    pub key_rate: Rate,
    /// The same of one workspace.
    pub workspace_rate: Rate,
    /// Objects of a kind in one workspace; a kind that is not listed is not limited.
    pub quotas: BTreeMap<KindName, i64>,
    /// Change streams that may be open at once.
    pub streams_max: usize,
    /// How long a follower of the change feed waits before it looks for writes of other servers.
    pub feed_poll: Duration,
}

#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub per_second: u32,
    pub burst: u32,
}

/// What [`App`] is made of.
pub struct Parts {
    pub store: Store,
    pub auth: Auth,
    pub world: World,
    pub settings: Settings,
}

/// Cheap to clone; handlers get one each.
#[derive(Clone)]
pub struct App(Arc<Inner>);

pub struct Inner {
    pub store: Store,
    pub auth: Auth,
    pub world: World,
    pub settings: Settings,
    pub(crate) cursors: CursorKey,
    pub(crate) drive_key: DriveKey,
    pub(crate) limits: Limits,
    pub(crate) streams: Arc<tokio::sync::Semaphore>,
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
        let Parts { store, auth, world, settings } = parts;
        let (cursors, drive_key) = (CursorKey::load(&store).await?, DriveKey::load(&store).await?);
        let limits = Limits::new(&settings, &world);
        let streams = Arc::new(tokio::sync::Semaphore::new(settings.streams_max));
        let app = Self(Arc::new(Inner { store, auth, world, settings, cursors, drive_key, limits, streams }));
        app.furnish().await?;
        Ok(app)
    }

    /// Makes what every workspace has, where a crash or an older release left it out.
    async fn furnish(&self) -> Result<(), store::Error> {
        let app = self.clone();
        let work = move |tx: &mut store::Tx<'_>| {
            for workspace in workspaces::list(tx)? {
                let member = as_admin(&Arc::new(Identity::system()), &workspace);
                furnish(&Desk { app: app.clone(), member }, tx)?;
            }
            Ok::<_, crate::Error>(())
        };
        self.store.write(work).await.map_err(|error| match error {
            crate::Error::Store(error) => error,
            other => store::Error::Unusable(format!("workspaces cannot be prepared: {other}")),
        })
    }
}
