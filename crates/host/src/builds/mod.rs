//! Builds images from sources that users upload.
//!
//! ```text
//! images::build   interprets a Dockerfile, and does every step that runs nothing
//! drive           one build from its sources to its image, step by step, on a thread of its own
//! step            a RUN: one piece of work in an instance, and what it wrote
//! supply          base images, and files for ADD
//! fetch           files from the internet
//! content         what volumes start with, which needs no instance
//! caches          folders that stay for the next RUN that asks for them
//! kept            how much of these and of finished steps stays
//! log             what users read meanwhile
//! ```
//!
//! A kill at any moment leaves the sources and the finished steps. The next start ends whatever was
//! running ([`clear_away`]), and unpacked files are removed with the store's scratch folder.

mod caches;
mod content;
mod drive;
mod end_steps;
mod fault;
mod fetch;
mod kept;
mod log;
mod settings;
mod shared;
mod sources;
mod step;
mod supply;

use futures_util::future::BoxFuture;
pub use settings::Settings;

use crate::LocalMachine;
use admission::{Locks, Turns};
use caches::Caches;
use control::machine::{BuildFault, BuildOrder, Builder, Built, FillOrder, Filled, MachineFault};
use drive::names_of;
pub(crate) use end_steps::clear_away;
use end_steps::end_steps;
use fetch::Fetcher;
use log::Log;
use shared::Shared;
use sources::Folder;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, mpsc, watch};
use types::World;
use types::ids::{BuildId, WorkspaceId};
use types::instance::Printed;

/// How long to wait for a cancelled build to end, before the caller has to try again later.
const END_MAX: Duration = Duration::from_secs(1);

/// Builds on this machine.
pub struct ImageBuilder {
    shared: Arc<Shared>,
    turns: Turns,
    /// Allows only one job at a time for each build: what a cancelled try still removes must not be
    /// what the next one has made.
    locks: Locks<BuildId>,
}

impl ImageBuilder {
    /// Opens the builder. Nobody else may use `settings.folder`, which is for sources and cache
    /// folders. Blocks for a moment.
    pub fn open(machine: LocalMachine, settings: Settings, world: World) -> io::Result<Self> {
        let root = settings.folder.clone();
        let settings = settings.within(machine.0.node.largest());
        let shared = Shared {
            folder: Folder::open(&root.join("sources"))?,
            caches: Caches::open(&root.join("caches"), settings.cache_mounts_max)?,
            fetcher: Fetcher::new(settings.inside.clone()).map_err(io::Error::other)?,
            machine,
            world,
            settings,
        };
        let turns =
            Turns::new(shared.settings.parallel_max, shared.settings.workspace_parallel_max);
        Ok(Self { shared: Arc::new(shared), turns, locks: Locks::default() })
    }
}

impl ImageBuilder {
    /// Waits until nobody works on a build: the thread of a cancelled build continues until its
    /// next step, and may still be writing an image.
    async fn at_rest(&self, build: &BuildId) -> Result<OwnedMutexGuard<()>, MachineFault> {
        let lock = tokio::time::timeout(END_MAX, self.locks.take(build)).await;
        lock.map_err(|_| MachineFault("it has not come to its end yet".to_owned()))
    }
}

/// Runs work to its end, even if the caller stops waiting for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BuildFault> + Send + 'static,
) -> Result<T, BuildFault> {
    let interrupted = |_| Err(BuildFault::Broken("the machine was interrupted".into()));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(interrupted)
}

impl Builder for ImageBuilder {
    fn take_sources<'a>(
        &'a self,
        build: &'a BuildId,
        bytes: mpsc::Receiver<io::Result<bytes::Bytes>>,
        bytes_max: u64,
    ) -> BoxFuture<'a, Result<u64, BuildFault>> {
        let max = bytes_max.min(self.shared.settings.sources_bytes_max);
        Box::pin(self.shared.folder.take(build, bytes, max))
    }

    fn build<'a>(
        &'a self,
        order: &'a BuildOrder,
        printed: mpsc::Sender<Printed>,
    ) -> BoxFuture<'a, Result<Built, BuildFault>> {
        Box::pin(async move {
            let turn = self.turns.take(order.workspace.as_str()).await;
            let lock = self.locks.take(&order.build).await;
            // When the caller stops waiting, the build stops.
            let (waits, stopped) = watch::channel(());
            let (shared, order) = (Arc::clone(&self.shared), order.clone());
            let log =
                Log::new(printed, self.shared.world.clone(), self.shared.settings.log_bytes_max);
            let runtime = tokio::runtime::Handle::current();
            let built = blocking(move || {
                // Kept until it has really ended, even if nobody waits for it any more.
                let _until_its_end = (turn, lock);
                kept::note(&shared, &order.workspace)?;
                let workspace = order.workspace.clone();
                let built = drive::Job::new(Arc::clone(&shared), order, log, runtime, stopped);
                let built = built.build();
                kept::note(&shared, &workspace)?;
                kept::make_room(&shared);
                built
            });
            let built = built.await;
            drop(waits);
            built
        })
    }

    fn fill<'a>(&'a self, order: &'a FillOrder) -> BoxFuture<'a, Result<Filled, BuildFault>> {
        Box::pin(async move {
            let turn = self.turns.take(order.workspace.as_str()).await;
            let lock = self.locks.take(&order.build).await;
            let (shared, unpacked) = (Arc::clone(&self.shared), order.clone());
            let filled = blocking(move || {
                let _until_its_end = turn;
                Ok((content::fill(&shared, &unpacked)?, lock))
            });
            let (bytes, lock) = filled.await?;
            // Nobody begins with it before the service has it, which may be all that is left of it
            // if this machine is lost.
            let turn = self.shared.machine.transfer_turn(order.workspace.as_str()).await;
            let (shared, order) = (Arc::clone(&self.shared), order.clone());
            let put = blocking(move || {
                let _until_its_end = (turn, lock);
                content::put_copy(&shared, &order)
            });
            Ok(Filled { bytes, copy: put.await? })
        })
    }

    fn release<'a>(
        &'a self,
        build: &'a BuildId,
        workspace: &'a WorkspaceId,
        repository: &'a str,
    ) -> BoxFuture<'a, Result<(), MachineFault>> {
        Box::pin(async move {
            let lock = self.at_rest(build).await?;
            let names = names_of(build, workspace, repository);
            let images = self.shared.machine.0.images.clone();
            let released = tokio::task::spawn_blocking(move || {
                let _until_they_are_gone = lock;
                images.remove_all_of(&names)
            });
            let released = released.await.map_err(|error| MachineFault(error.to_string()))?;
            released.map(drop).map_err(|error| MachineFault(types::chain(&error)))
        })
    }

    fn forget<'a>(&'a self, build: &'a BuildId) -> BoxFuture<'a, Result<(), MachineFault>> {
        Box::pin(async move {
            let (shared, id) = (Arc::clone(&self.shared), build.clone());
            let ended =
                tokio::task::spawn_blocking(move || end_steps(&shared.machine.0.node, &id)).await;
            ended.unwrap_or_else(|error| Err(MachineFault(error.to_string())))?;
            let lock = self.at_rest(build).await?;
            let (shared, build) = (Arc::clone(&self.shared), build.clone());
            let forgotten = tokio::task::spawn_blocking(move || {
                let _until_it_is_gone = lock;
                end_steps(&shared.machine.0.node, &build)?;
                shared.folder.forget(&build).map_err(|error| MachineFault(error.to_string()))
            });
            forgotten.await.unwrap_or_else(|error| Err(MachineFault(error.to_string())))
        })
    }

    fn keeps_for(&self) -> BoxFuture<'_, Result<Vec<WorkspaceId>, MachineFault>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let found = tokio::task::spawn_blocking(move || shared.caches.workspaces()).await;
            let found = found.map_err(|error| MachineFault(error.to_string()))?;
            let found = found.map_err(|error| MachineFault(error.to_string()))?;
            Ok(found.into_iter().map(WorkspaceId::known).collect())
        })
    }

    fn forget_workspace<'a>(
        &'a self,
        workspace: &'a WorkspaceId,
    ) -> BoxFuture<'a, Result<(), MachineFault>> {
        let (shared, workspace) = (Arc::clone(&self.shared), workspace.clone());
        Box::pin(async move {
            let forgotten = tokio::task::spawn_blocking(move || kept::forget(&shared, &workspace));
            let forgotten = forgotten.await.map_err(|error| MachineFault(error.to_string()))?;
            forgotten.map_err(|error| MachineFault(types::chain(&error)))
        })
    }
}
