//! Connections, transactions and the threads they run on.

mod access;
mod horizon;
mod postgres;
mod settings;
mod sqlite;
mod threads;
mod tx;
mod work;

pub use postgres::{DatabaseServer, Replication, database_servers, replication};
pub use settings::{Settings, Target};
pub(crate) use tx::Named;
pub use tx::Tx;

use crate::feed::Recent;
use crate::seal::rotation;
use crate::{Error, KeyFile};
use access::Access;
use std::sync::Arc;
use threads::Shared;
use tokio::sync::{oneshot, watch};
use types::World;
use work::{Job, Work};

/// The store. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    engine: Arc<Engine>,
    shared: Shared,
    readers: usize,
}

enum Engine {
    Sqlite(sqlite::Engine),
    Postgres(postgres::Engine),
}

impl Store {
    /// Opens the database, brings its schema up to date and starts the threads.
    pub async fn open(settings: Settings, world: World) -> Result<Self, Error> {
        // The blocking client of PostgreSQL refuses to run on a thread that serves futures.
        let opened =
            tokio::task::spawn_blocking(move || Self::open_blocking(&settings, world)).await;
        opened.map_err(|error| {
            Error::Unusable(format!("opening the database ended early: {error}"))
        })?
    }

    fn open_blocking(settings: &Settings, world: World) -> Result<Self, Error> {
        let shared = Shared {
            keyring: KeyFile::open(&settings.key_file, &world)?,
            world,
            recent: Arc::new(Recent::new(settings.recent_changes_max)),
            committed: watch::Sender::new(0),
            horizon: Arc::default(),
        };
        let engine = match &settings.target {
            Target::Sqlite { file } => {
                Engine::Sqlite(sqlite::Engine::open(file, settings, &shared)?)
            }
            Target::Postgres { url } => {
                Engine::Postgres(postgres::Engine::open(url, settings, &shared)?)
            }
        };
        let readers = settings.connections.max(1);
        let store = Self { engine: Arc::new(engine), shared, readers };
        if store.shared.keyring.is_new() {
            store.create_keys()?;
        }
        Ok(store)
    }

    /// Creates the key file, unless its keys are only missing: the database has secrets that a new
    /// key could not open.
    fn create_keys(&self) -> Result<(), Error> {
        let (job, done) = Job::new(work::of(rotation::used_keys));
        self.engine.submit(Access::Read, job)?;
        let mut done = returned(done.blocking_recv())?;
        let used = work::result::<Vec<String>, Error>(&mut *done)?;
        let path = &self.shared.keyring.path().display();
        match used.first() {
            None => self.shared.keyring.create(),
            Some(key) => Err(Error::Unusable(format!(
                "there is no key file {path} (store.key_file), but the database has secrets that are sealed with the key \
                 `{key}`: copy the key file of the server that made it here"
            ))),
        }
    }

    pub fn world(&self) -> &World {
        &self.shared.world
    }

    /// The keys that seal secrets.
    pub fn keyring(&self) -> KeyFile {
        self.shared.keyring.clone()
    }

    /// How many transactions can read at the same time.
    pub const fn readers(&self) -> usize {
        self.readers
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.shared.recent
    }

    /// Runs `work` in a transaction and returns once it is durable. An error of `work` undoes all
    /// of it. `work` may run more than once if the database asks for a repetition.
    pub fn write<T, E>(
        &self,
        work: impl FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.run(Access::Write, work)
    }

    /// Runs `work` on one consistent view of the database.
    pub fn read<T, E>(
        &self,
        work: impl FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.run(Access::Read, work)
    }

    async fn run<T, E>(
        &self,
        access: Access,
        work: impl FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let mut done = self.engine.run(access, work::of(work)).await?;
        work::result(&mut *done)
    }

    /// Returns a receiver that is notified after each commit of this process. Its value is the
    /// newest revision that one of them recorded in the change feed.
    pub fn commits(&self) -> watch::Receiver<i64> {
        self.shared.committed.subscribe()
    }
}

impl Engine {
    fn submit(&self, access: Access, job: Job) -> Result<(), Error> {
        match self {
            Self::Sqlite(engine) => engine.submit(access, job),
            Self::Postgres(engine) => engine.submit(access, job),
        }
    }

    /// Has a thread do the work, and returns it with its result.
    async fn run(&self, access: Access, work: Box<dyn Work>) -> Result<Box<dyn Work>, Error> {
        let (job, done) = Job::new(work);
        self.submit(access, job)?;
        returned(done.await)
    }
}

fn returned(
    done: Result<Box<dyn Work>, oneshot::error::RecvError>,
) -> Result<Box<dyn Work>, Error> {
    done.map_err(|_| Error::Unusable("the database thread has ended".into()))
}
