//! Snapshots, and versions of volume templates, whose files are at an object service.
//!
//! ```text
//! PREFIX/MACHINE/WORKSPACE/SNAPSHOT/                   of this machine alone
//! PREFIX/templates/INSTALLATION/WORKSPACE/VERSION/     of all machines that share a database
//! ```
//!
//! Of snapshots the node decides what is moved, of templates the rows do; this module only does the
//! transfers.

use crate::{Inner, Interrupted, LocalMachine, refusals};
use admission::{Turn, Turns};
use control::machine::{Launch, LaunchFault};
use node::{
    Here, Owner, ReadStream, RemoteCopy, RemoteStore, SnapshotError, SnapshotName, WriteStream,
};
use objects::{Digest, Folder, Objects};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use types::{World, chain};

/// Separates templates from machines, whose names are shorter.
const TEMPLATES: &str = "templates";

/// Settings for snapshots at an object service.
#[derive(Debug, Clone)]
pub struct RemoteSettings {
    /// How many snapshots are being moved at once.
    pub transfers_max: usize,
    /// How many snapshots of one workspace are being moved at once.
    pub transfers_workspace_max: usize,
    /// How often to look for snapshots that can be moved away, and for leftovers to remove.
    pub tidy_every: Duration,
    /// How long a snapshot must have been unused before it is moved away.
    pub offload_after: Duration,
}

#[derive(Debug)]
struct Remote {
    objects: Objects,
    /// The runtime on which the service is asked. Streams are read and written on other threads,
    /// which may block.
    runtime: Handle,
}

impl Remote {
    fn folder(owner: &Owner, name: &str) -> io::Result<Folder> {
        let folder = Folder::new([owner.as_str(), name]);
        folder.ok_or_else(|| io::Error::other(format!("`{name}` cannot be the name of a key")))
    }
}

impl RemoteStore for Remote {
    fn put(&self, owner: &Owner, name: &str, write: WriteStream<'_>) -> io::Result<RemoteCopy> {
        let mut upload = self.objects.put(Self::folder(owner, name)?, self.runtime.clone());
        write(&mut upload)?;
        let stored = upload.finish().map_err(io::Error::other)?;
        Ok(RemoteCopy { digest: stored.digest.into(), size_bytes: stored.size_bytes })
    }

    fn get(&self, owner: &Owner, name: &str, digest: &str, read: ReadStream<'_>) -> io::Result<()> {
        let digest = Digest::try_from(digest.to_owned()).map_err(io::Error::other)?;
        let folder = Self::folder(owner, name)?;
        let download = self.objects.get(folder, &digest, self.runtime.clone());
        let mut download = self.runtime.block_on(download).map_err(io::Error::other)?;
        read(&mut download)
    }

    fn remove(&self, owner: &Owner, name: &str) -> io::Result<()> {
        let folder = Self::folder(owner, name)?;
        self.runtime.block_on(self.objects.remove(&folder)).map_err(io::Error::other)
    }

    fn list(&self) -> io::Result<Vec<(Owner, String)>> {
        let found = self.runtime.block_on(self.objects.folders()).map_err(io::Error::other)?;
        let known = found.iter().filter_map(|folder| {
            let mut names = folder.names();
            let owner = Owner::new(names.next()?).ok()?;
            Some((owner, names.next()?.to_owned()))
        });
        Ok(known.collect())
    }
}

impl From<Interrupted> for SnapshotError {
    fn from(interrupted: Interrupted) -> Self {
        Self::Machine(io::Error::other(interrupted))
    }
}

impl LocalMachine {
    /// Moves snapshots that nothing here needs to this service from now on, and shares the versions
    /// of volume templates of this installation there. It is used on the caller's runtime, and not
    /// before it is needed.
    pub fn use_objects(&self, objects: &Objects, installation: &str, settings: &RemoteSettings) {
        let remote = |objects| Arc::new(Remote { objects, runtime: Handle::current() });
        self.0.node.snapshots().use_remote(remote(objects.below(&self.0.name)));
        let templates = objects.below(TEMPLATES).below(installation);
        self.0.node.volumes().use_remote(remote(templates));
        let turns = Turns::new(settings.transfers_max, settings.transfers_workspace_max);
        // As above, only the first call counts.
        let _ = self.0.transfers.set(turns);
    }

    /// Waits for a turn to move something of a workspace. `None` if there is no service.
    pub(crate) async fn transfer_turn(&self, workspace: &str) -> Option<Turn> {
        match self.0.transfers.get() {
            Some(turns) => Some(turns.take(workspace).await),
            None => None,
        }
    }

    /// Regularly moves away snapshots that were not used for long, and removes what nobody needs
    /// any more.
    pub async fn tidy_objects(self, settings: RemoteSettings, world: World) {
        loop {
            tokio::time::sleep(settings.tidy_every).await;
            let (now_s, after) = (world.now().seconds(), settings.offload_after);
            let look = move |inner: &Inner| {
                inner.node.snapshots().sweep_remote()?;
                inner.node.snapshots().offload_idle(now_s, after)
            };
            if let Err(error) = self.on_node(look).await {
                let error = chain(&error);
                tracing::warn!(error, "the object service cannot be tidied now; it is tried again");
            }
        }
    }

    /// Moves the files of a snapshot to the service, if there is one.
    pub(crate) async fn offload_snapshot(
        &self,
        workspace: &str,
        name: SnapshotName,
    ) -> Result<(), SnapshotError> {
        let Some(turns) = self.0.transfers.get() else { return Ok(()) };
        let _turn = turns.take(workspace).await;
        self.on_node(move |inner| inner.node.snapshots().offload(&name)).await
    }

    /// Fetches the files of a snapshot that are not on this machine. They stay as long as the
    /// returned value is kept.
    pub(crate) async fn fetch_snapshot(
        &self,
        workspace: &str,
        name: SnapshotName,
    ) -> Result<Here, SnapshotError> {
        let is_here = self.0.node.snapshots().is_here(&name);
        let _turn = if is_here { None } else { self.transfer_turn(workspace).await };
        self.on_node(move |inner| inner.node.snapshots().fetch(&name)).await
    }

    /// Does the same for the snapshot that a launch starts from.
    pub(crate) async fn bring_snapshot(
        &self,
        launch: &Launch,
    ) -> Result<Option<Here>, LaunchFault> {
        let Some(id) = &launch.snapshot else { return Ok(None) };
        let broken = |error: &dyn std::error::Error| LaunchFault::Broken(chain(error));
        let name = SnapshotName::new(id.as_str()).map_err(|error| broken(&error))?;
        let fetched = self.fetch_snapshot(&launch.workspace, name).await;
        fetched
            .map(Some)
            .map_err(|error| refusals::of_snapshot(&error).unwrap_or_else(|| broken(&error)))
    }
}
