//! The node: everything that callers can ask for.

mod create;
mod disk;
mod drives;
mod machine_limits;
mod open;
mod tunnels;

use crate::adopt::said_again;
use crate::cgroup::Usage;
use crate::error::{CreateError, Doing, Error, On, SnapshotError};
use crate::instance::{Instance, View};
use crate::names::Owner;
use crate::net::Rules;
use crate::network_pool::NetworkPool;
use crate::records::Record;
use crate::settings::{Firewall, Level};
use crate::shared::Shared;
use crate::shares::Largest;
use crate::snapshots::{CHAIN_MAX, Files, Hold, Layer, NewSnapshot, Snapshots, Source, Taken};
use crate::tunnel::Tunnels;
use crate::volumes::Volumes;
use crate::watch::Watch;
use crate::written::Written;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use types::instance::{Exit, Fact, Happened, InstanceName, Resize, Stamp, boot_number};

/// How long the node waits for starts before it leaves.
const START_TIMEOUT: Duration = Duration::from_secs(5);
const START_PAUSE: Duration = Duration::from_millis(1);

/// All instances of one machine under one node name. Its calls block, most of them for a few
/// milliseconds; any number of threads may make them.
pub struct Node {
    pub(crate) shared: Shared,
    pub(crate) networks: NetworkPool,
    pub(crate) watch: Watch,
    registry: Arc<Mutex<Registry>>,
    pub(crate) rules: Option<Rules>,
    pub(crate) tunnels: Tunnels,
    _lock: File,
}

/// The existing instances. One that is still being made only has its name reserved.
#[derive(Default)]
pub(crate) struct Registry {
    starting: HashSet<InstanceName>,
    by_id: HashMap<InstanceName, Arc<Instance>>,
    by_slot: HashMap<u32, Arc<Instance>>,
}

impl Node {
    /// Returns the size of the largest instance that can ever be made here.
    pub fn largest(&self) -> Largest {
        self.shared.stores.shares.largest()
    }

    /// Checks whether there is room now for the next size of an instance. Keeps nothing for it.
    pub fn require_room(&self, owner: &Owner, resize: &Resize) -> Result<(), CreateError> {
        let Resize { memory_mb, memory_before_mb, disk } = resize;
        let more_mb = memory_mb.saturating_sub(*memory_before_mb);
        self.shared.stores.shares.require_memory(owner, *memory_mb, more_mb)?;
        if let Some((volume, size_mb)) = disk {
            self.volumes().require_room(owner, volume, *size_mb)?;
        }
        Ok(())
    }

    /// Freezes all processes of an instance. Connections to it queue meanwhile.
    pub fn pause(&self, id: &InstanceName) -> Result<(), Error> {
        self.find(id)?.pause()
    }

    pub fn resume(&self, id: &InstanceName) -> Result<(), Error> {
        self.find(id)?.resume()
    }

    /// Asks the first process to end, and kills it after `grace`. The instance's files and networks
    /// stay until it is destroyed.
    pub fn stop(&self, id: &InstanceName, grace: Duration) -> Result<Exit, Error> {
        self.find(id)?.stop(grace)
    }

    /// Waits at most `timeout` for the end of the first process.
    pub fn wait(&self, id: &InstanceName, timeout: Duration) -> Result<Option<Exit>, Error> {
        Ok(self.find(id)?.wait(timeout))
    }

    /// Ends an instance and removes everything that was its own.
    pub fn destroy(&self, id: &InstanceName) -> Result<(), Error> {
        let instance = self.find(id)?;
        instance.end()?;
        instance.body.destroy().on(id)?;
        let none = Firewall::default();
        instance.without_way_past(Level::Closed, || {
            instance.clear_firewall(|old| self.change_firewall(instance.slot, old, &none))
        })?;
        let Some(instance) = self.registry.lock().remove(id) else {
            return Err(Error::Missing(id.clone()));
        };
        let stores = &self.shared.stores;
        stores.journal.record(stores.world.now(), id, Happened::Destroyed);
        let removed = stores.records.remove(id);
        // Given back even if the record stays: nobody can ask again for the end of an instance that
        // is not listed any more. The next node finds out that it has ended.
        if instance.body.process().is_some() {
            self.networks.give_back(instance.slot);
        }
        instance.let_go();
        removed.doing("remove the record of").on(id)
    }

    pub fn inspect(&self, id: &InstanceName) -> Result<View, Error> {
        Ok(self.view(&*self.find(id)?))
    }

    /// Returns all instances, sorted by name.
    pub fn list(&self) -> Vec<View> {
        self.list_where(|_| true)
    }

    /// Returns the instances with certain names, sorted by name. Others cost next to nothing.
    pub fn list_where(&self, wanted: impl Fn(&InstanceName) -> bool) -> Vec<View> {
        let instances: Vec<_> = {
            let registry = self.registry.lock();
            registry.by_id.values().filter(|instance| wanted(&instance.id)).cloned().collect()
        };
        let mut views: Vec<_> = instances.iter().map(|instance| self.view(instance)).collect();
        views.sort_by(|one, other| one.id.cmp(&other.id));
        views
    }

    /// Gives an instance more or less processor time than it was created with.
    pub fn limit_cpu(&self, id: &InstanceName, millicores: u32) -> Result<(), Error> {
        self.find(id)?.body.limit_cpu(millicores).on(id)
    }

    pub fn usage(&self, id: &InstanceName) -> Result<Usage, Error> {
        self.find(id)?.usage()
    }

    /// Returns true if the kernel has killed a process of the instance because it ran out of
    /// memory.
    pub fn ran_out_of_memory(&self, id: &InstanceName) -> Result<bool, Error> {
        let kills = self.find(id)?.body.oom_kills().on(id)?;
        Ok(kills > 0)
    }

    /// Returns the end of what the first process printed.
    pub fn console(&self, id: &InstanceName) -> Result<Vec<u8>, Error> {
        self.find(id)?.body.console().on(id)
    }

    /// Returns what an instance has written so far. `None` if its spec did not ask for that, or if
    /// it was adopted since. Once the instance is destroyed, this no longer changes.
    pub fn written(&self, id: &InstanceName) -> Result<Option<Written>, Error> {
        let instance = self.find(id)?;
        let written = instance.body.written().map(Written::copy).transpose();
        written.doing("keep what was written in").on(id)
    }

    /// Returns the file systems that outlive instances.
    pub fn volumes(&self) -> &Volumes {
        &self.shared.stores.volumes
    }

    /// Returns the snapshots of what instances had written.
    pub fn snapshots(&self) -> &Arc<Snapshots> {
        &self.shared.stores.snapshots
    }

    /// Takes a snapshot, unless it exists already. It is complete and on disk when this returns.
    pub fn snapshot(&self, new: &NewSnapshot) -> Result<Taken, SnapshotError> {
        let stores = &self.shared.stores;
        if let Some(taken) = stores.snapshots.taken(&new.name) {
            return Ok(taken);
        }
        let gone = |_| SnapshotError::Gone(new.instance.clone());
        let instance = self.find(&new.instance).map_err(gone)?;
        let record = stores.records.of(&new.instance).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => gone(Error::Missing(new.instance.clone())),
            _ => error.into(),
        })?;
        let hold = record.snapshot.as_ref().and_then(|name| stores.snapshots.hold_again(name));
        // Nothing can lie over a full chain, so everything that lies over the image is taken.
        let full = hold.as_ref().filter(|hold| hold.is_full());
        let source = match self.layer(&instance, &record, full.is_some())? {
            Some(source) => source,
            None => self.whole(&instance, &record, hold.as_ref())?,
        };
        let is_over = full.is_none() || matches!(source, Source::Disk(_));
        let parent = record.snapshot.as_ref().filter(|_| is_over);
        let still = |work: &mut dyn FnMut() -> Result<(), SnapshotError>| instance.hold(work);
        stores.snapshots.take(new, &source, parent, still)
    }

    /// Returns what an instance writes into. `None` if it cannot be reached, or would not be enough.
    fn layer(
        &self,
        instance: &Instance,
        record: &Record,
        is_chain_full: bool,
    ) -> Result<Option<Source>, SnapshotError> {
        let volumes = &self.shared.stores.volumes;
        if let Some(volume) = &record.kept {
            // A clone makes no chain longer.
            if let Some(disk) = volumes.clone_source(volume)? {
                return Ok(Some(Source::Disk(disk)));
            }
            if !is_chain_full {
                return Ok(Some(Source::Files(Files::Layer(volumes.look_into(volume)?))));
            }
        }
        let layer = instance.body.layer().filter(|_| !is_chain_full);
        let layer = layer.map(Written::copy).transpose()?;
        Ok(layer.map(|layer| Source::Files(Files::Layer(layer))))
    }

    /// Returns all that an instance sees, to be compared with what the snapshot will lie over: what
    /// it began with or, if that is a full chain, its image.
    fn whole(
        &self,
        instance: &Instance,
        record: &Record,
        hold: Option<&Hold>,
    ) -> Result<Source, SnapshotError> {
        let out_of_reach = |why| SnapshotError::OutOfReach { id: instance.id.clone(), why };
        let full = hold.filter(|hold| hold.is_full());
        let ended = || match full {
            Some(_) => SnapshotError::TooLong { most: CHAIN_MAX },
            None => out_of_reach("it ended, and was started by an earlier run of the server"),
        };
        let process = instance.body.process().ok_or_else(ended)?;
        if record.layers.is_empty() {
            return Err(out_of_reach("it was started by an earlier release"));
        }
        let under = hold.filter(|_| full.is_none());
        let under = under.map(Hold::layers).transpose()?.unwrap_or_default();
        let image = record.layers.iter().rev().cloned().map(Layer::Folder);
        let layers: Vec<_> = under.into_iter().chain(image).collect();
        let more_bytes = full.map_or(0, Hold::size_bytes);
        let empty = self.shared.stores.snapshots.empty()?;
        let source = Files::whole(process.pid, &layers, &empty, more_bytes)?;
        // What was opened belongs to the right process only if that is still alive now.
        if process.has_ended()? { Err(ended()) } else { Ok(Source::Files(source)) }
    }

    /// Connects to a port of an instance, on its loopback interface. There is no other way to reach
    /// a port of an instance.
    pub fn dial(
        &self,
        id: &InstanceName,
        port: u16,
        timeout: Duration,
    ) -> Result<TcpStream, Error> {
        let socket = self.socket(id)?;
        crate::net::connect(socket, port, timeout).doing("connect to").on(id)
    }

    /// Returns a non-blocking TCP socket in the network of an instance, for the caller to connect.
    pub fn socket(&self, id: &InstanceName) -> Result<OwnedFd, Error> {
        let instance = self.find(id)?;
        let Some(process) = instance.body.process() else {
            return Err(Error::Missing(id.clone()));
        };
        process.socket(&self.shared.home).on(id)
    }

    /// Records that the node is alive, and returns the time of that. Whatever ends while no node
    /// runs is reported as having ended at the last such sign of life.
    pub fn give_sign(&self) -> Stamp {
        let uptime_ms = self.shared.stores.world.uptime_ms();
        if let Err(error) = self.shared.stores.sign.give(&self.shared.boot, uptime_ms) {
            tracing::error!(%error, "a sign of life cannot be written; what ends unseen will seem to have ended earlier");
        }
        Stamp { boot: boot_number(&self.shared.boot), uptime_ms }
    }

    /// Returns the oldest facts that nobody has taken note of, at most `limit`, and waits up to
    /// `timeout` for the first. The same facts are returned again until [`Node::forget`] is called.
    /// A node that adopts an earlier node's instances reports again whether each is paused or
    /// running.
    pub fn facts(&self, limit: usize, timeout: Duration) -> Vec<Fact> {
        self.shared.stores.journal.oldest(limit, timeout)
    }

    /// Reports again what has become of instances, for somebody who may have lost facts after they
    /// were dropped here: whether each is paused, runs, has ended, or does not exist.
    pub fn say_again(&self, ids: &[InstanceName]) {
        let stores = &self.shared.stores;
        let gone = |id: &InstanceName| (stores.world.now(), id.clone(), Happened::Destroyed);
        let said = ids.iter().filter_map(|id| match self.find(id) {
            Ok(instance) => said_again(id, instance.state()),
            Err(_) => (!self.is_starting(id)).then(|| gone(id)),
        });
        stores.journal.record_all(said.collect::<Vec<_>>());
    }

    /// Drops all facts up to the one with this number.
    pub fn forget(&self, through: u64) -> io::Result<()> {
        self.shared.stores.journal.forget(through)
    }

    /// Removes what the node itself put on the machine: control groups and firewall rules. Meant
    /// for when the node will not be opened again; fails while there is an instance.
    pub fn leave(&self) -> io::Result<()> {
        // What is being started has a control group, and is an instance or nothing in a moment.
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.registry.lock().starting.is_empty() && Instant::now() < deadline {
            thread::sleep(START_PAUSE);
        }
        self.shared.groups.remove()?;
        self.rules.as_ref().map_or(Ok(()), Rules::remove)
    }

    /// Adds an instance to the registry and watches its process.
    pub(crate) fn admit(&self, instance: Arc<Instance>) -> io::Result<()> {
        self.registry.lock().insert(&instance);
        match instance.body.process() {
            Some(process) => self.watch.add(&process.pidfd, u64::from(instance.slot)),
            None => Ok(()),
        }
    }

    pub(crate) fn dismiss(&self, id: &InstanceName) {
        self.registry.lock().remove(id);
    }

    pub(crate) fn find(&self, id: &InstanceName) -> Result<Arc<Instance>, Error> {
        self.registry.lock().by_id.get(id).cloned().ok_or_else(|| Error::Missing(id.clone()))
    }

    fn is_starting(&self, id: &InstanceName) -> bool {
        let registry = self.registry.lock();
        // It may have become one since it was looked for.
        registry.starting.contains(id) || registry.by_id.contains_key(id)
    }

    fn view(&self, instance: &Instance) -> View {
        View {
            id: instance.id.clone(),
            state: instance.state(),
            pid: instance.body.process().map(|process| process.pid),
            memory_mb: instance.memory_mb,
            address: self.shared.settings.subnet.address(instance.slot),
            owner: instance.owner.clone(),
        }
    }
}

impl Registry {
    fn reserve(&mut self, id: &InstanceName) -> Result<(), CreateError> {
        if self.by_id.contains_key(id) || self.starting.contains(id) {
            return Err(CreateError::Exists(id.clone()));
        }
        self.starting.insert(id.clone());
        Ok(())
    }

    fn insert(&mut self, instance: &Arc<Instance>) {
        self.by_id.insert(instance.id.clone(), Arc::clone(instance));
        if instance.body.process().is_some() {
            self.by_slot.insert(instance.slot, Arc::clone(instance));
        }
    }

    fn remove(&mut self, id: &InstanceName) -> Option<Arc<Instance>> {
        let instance = self.by_id.remove(id)?;
        if instance.body.process().is_some() {
            self.by_slot.remove(&instance.slot);
        }
        Some(instance)
    }
}

fn ended(registry: &Mutex<Registry>, slot: u64) {
    let instance =
        u32::try_from(slot).ok().and_then(|slot| registry.lock().by_slot.get(&slot).cloned());
    if let Some(instance) = instance {
        instance.ended();
    }
}
