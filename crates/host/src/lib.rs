//! This machine as seen by `control` and `gateway`: combines images, the guest and the node.
//!
//! ```text
//! control::machine::Machine  ◀── MachineControl ──▶ gateway (who is on standby)
//! gateway::Machine     ◀── LocalMachine ─┬──▶ node    instances
//!                                        ├──▶ images  what they are made of
//!                                        └──  guest   their first program
//! ```
//!
//! Nothing here decides what should run; it only knows how to run it. Calls of the node block for
//! some milliseconds at most, and are made on threads that may block.

mod bases;
mod below;
mod builds;
mod data;
mod disks;
mod drives;
mod egress;
mod guest;
mod instances;
mod key;
mod launching;
mod leases;
mod machine_control;
mod pulled;
mod refusals;
mod registries;
mod registry;
mod remote;
mod settings;
mod snapshots;
mod trust;
mod tunnel_lookups;
mod tunnels;
mod volumes;
mod way_out;
mod work;

pub use builds::{ImageBuilder, Settings as BuildSettings};
pub use machine_control::MachineControl;
pub use registry::{LocalRegistry, RegistrySettings};
pub use remote::RemoteSettings;
pub use settings::{OpenError, Settings};
pub use way_out::Surroundings;

use admission::Turns;
use bases::Bases;
use disks::Disks;
use images::{Puller, Store};
use key::Key;
use leases::Leases;
use node::{InstanceName, Node, Program};
use parking_lot::Mutex;
use pulled::Pulled;
use registries::Registries;
use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::thread;
use tokio::task::spawn_blocking;
use types::World;
use way_out::WayOut;

/// A machine that runs instances. Cheap to clone.
#[derive(Clone)]
pub struct LocalMachine(Arc<Inner>);

struct Inner {
    name: String,
    node: Node,
    images: Store,
    leases: Leases,
    /// The images that snapshots lie over.
    bases: Bases,
    /// The images that disks of sandboxes lie over.
    disks: Disks,
    puller: Puller,
    pulled: Arc<Pulled>,
    registries: Registries,
    registry: LocalRegistry,
    guest: Program,
    key: Key,
    pids_max: u32,
    start_millicores: u32,
    /// Whether what instances write can be kept in memory.
    layers_fit_memory: bool,
    way_out: WayOut,
    /// Whether instances can have volumes.
    keeps_volumes: bool,
    /// The percentage of what is divided that one workspace may have.
    share_percent: u32,
    /// Limits how many snapshots are taken at once; further ones wait.
    taking: Turns,
    /// Host names of tunnel endpoints that are being looked up, counted by instance.
    tunnel_lookups: admission::Pool<InstanceName>,
    /// Limits how many snapshots and volumes are moved to or from the object service at once. Unset
    /// if there is no such service.
    transfers: OnceLock<Turns>,
    /// Instances whose image starts a program by itself, from their launch until somebody watches
    /// it.
    starting: Mutex<HashSet<InstanceName>>,
}

impl LocalMachine {
    /// Takes charge of the instances that run here. Blocks.
    pub fn open(settings: Settings, images: Store, world: World) -> Result<Self, OpenError> {
        let guest = settings.node.first.clone();
        let registries = Registries::new(settings.registries_inside);
        let http = registries.client().map_err(OpenError::Http)?;
        let folder = settings.node.folder.clone();
        let share_percent = settings.node.limits.share_percent;
        let disk_mb = node::divided(settings.pulled_mb, share_percent);
        let pulled = Pulled::open(&folder.join("pulled"), disk_mb, settings.image_mb_max)
            .map_err(OpenError::Pulled)?;
        let registry = LocalRegistry::open(images.clone(), settings.registry, world.clone())
            .map_err(OpenError::Registry)?;
        let pulled = Arc::new(pulled);
        registry.frees(&pulled);
        let taking = Turns::from(node::divided(settings.takes_max as u64, share_percent));
        let keeps_volumes = settings.node.backend == node::Backend::Direct;
        // At the same time: either reads a file for each instance.
        let (leases, node) = thread::scope(|scope| {
            let leases = scope.spawn(|| Leases::open(&folder, &images));
            let node = Node::open(settings.node, world.clone());
            (leases.join().unwrap_or_else(|panic| resume_unwind(panic)), node)
        });
        let (leases, node) = (leases.map_err(OpenError::Leases)?, node?);
        builds::clear_away(&node)?;
        let layers_fit_memory = node::layers_fit_memory().map_err(OpenError::Memory)?;
        if !layers_fit_memory {
            tracing::warn!(
                "what instances write is on the disk, because this kernel's tmpfs has no user attributes (Linux 6.6 has)"
            );
        }
        let key = Key::open(&folder, &world).map_err(OpenError::Key)?;
        let instances = node.list().into_iter().map(|view| view.id).collect();
        leases.keep_only(&instances).map_err(OpenError::Leases)?;
        let bases = Bases::default();
        bases.follow(node.snapshots(), &images);
        let disks =
            Disks::open(folder.join("disks"), node.volumes(), &images).map_err(OpenError::Disks)?;
        Ok(Self(Arc::new(Inner {
            name: settings.name,
            node,
            images,
            leases,
            bases,
            disks,
            puller: Puller::new(http, images::RetryPolicy::default()),
            pulled,
            registries,
            registry,
            guest,
            key,
            pids_max: settings.pids_max,
            start_millicores: settings.start_millicores,
            layers_fit_memory,
            way_out: WayOut::default(),
            keeps_volumes,
            share_percent,
            taking,
            tunnel_lookups: tunnel_lookups::lookups(),
            transfers: OnceLock::new(),
            starting: Mutex::default(),
        })))
    }

    /// Removes images that no name and no instance needs any more. Blocks. If the command line is
    /// working with images, this is left for the next time.
    pub fn tidy(&self) {
        self.0.bases.follow(self.0.node.snapshots(), &self.0.images);
        match self.0.images.collect() {
            Ok(freed) => {
                tracing::debug!(?freed, "images were tidied");
                // Images that were removed no longer count for anybody, and those that only a
                // workspace still has do.
                self.0.pulled.keep_only(|image| self.0.images.has(image));
            }
            Err(error) => tracing::debug!(%error, "images could not be tidied now"),
        }
    }

    /// Looks at the disk again: shares grow with what is free now, and never shrink. `pulled_mb` and
    /// `pushed_mb` are for images that workspaces pull and push. Instances whose disk had stopped
    /// while there was no room are ended, to be started anew. Blocks.
    pub fn look_at_disk(&self, pulled_mb: u64, pushed_mb: u64) -> std::io::Result<()> {
        self.0.pulled.raise(node::divided(pulled_mb, self.0.share_percent));
        self.0.registry.raise(pushed_mb);
        self.0.node.look_at_disk()?;
        self.0.node.end_stopped()
    }

    /// Removes what the machine was set up with for instances, if there are none. Blocks.
    pub fn leave(&self) -> std::io::Result<()> {
        self.0.node.leave()
    }

    /// Runs something that blocks for a moment.
    async fn on_node<T, E>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Interrupted> + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        spawn_blocking(move || work(&inner)).await.unwrap_or_else(|_| Err(Interrupted.into()))
    }
}

/// The program is ending, or a thread panicked.
#[derive(Debug, thiserror::Error)]
#[error("the machine was interrupted")]
struct Interrupted;
