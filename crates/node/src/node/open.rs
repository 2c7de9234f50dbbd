//! Opens a node: the order of the steps, and what each of them finds of an earlier node.

use super::machine_limits::{lift_file_limit, lift_terminal_limit};
use super::{Node, Registry, ended};
use crate::adopt;
use crate::body;
use crate::body_kind::BodyKind;
use crate::capacity::Capacity;
use crate::cgroup::Groups;
use crate::drives::Drives;
use crate::error::{Doing, OpenError};
use crate::facts::Journal;
use crate::fixed_settings;
use crate::instance::Instance;
use crate::launch::rules;
use crate::launch::starter::Starter;
use crate::net::{self, Home, Rules};
use crate::network_pool::NetworkPool;
use crate::oci::Bundles;
use crate::own_group;
use crate::pool::Pool;
use crate::process;
use crate::records::Records;
use crate::scratch::Scratches;
use crate::settings::{Egress, Settings};
use crate::shared::{Shared, Stores};
use crate::shares::Shares;
use crate::sign::Sign;
use crate::snapshots::Snapshots;
use crate::volumes::Volumes;
use crate::watch::Watch;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};
use types::World;

const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

impl Node {
    /// Takes charge of the instances of an earlier node with this name and folder, and removes what
    /// it left half made.
    ///
    /// The calling thread's network namespace is taken as the machine's.
    pub fn open(settings: Settings, world: World) -> Result<Self, OpenError> {
        std::fs::create_dir_all(&settings.folder).doing("make the folder of the node")?;
        body::check_machine(&settings.backend)
            .doing("find the program that starts instances (runc)")?;
        let lock = lock(&settings)?;
        // Before anything is made that would stay.
        require_own_subnet(&settings)?;
        let (stores, capacity) = open_stores(&settings, world)?;
        let stores = Arc::new(stores);
        own_group::leave_root(Path::new(CONTROL_GROUPS))
            .doing("leave the root of the control groups")?;
        let groups = Groups::open(&settings.name, BodyKind::of(&settings.backend), &capacity)
            .doing("prepare control groups")?;
        let home = Arc::new(Home::open(&settings).doing("open the machine's network")?);
        let boot = process::boot().doing("learn when the machine was started")?;
        let found =
            adopt::find(&stores, &groups, &boot).doing("find the instances of an earlier node")?;
        fixed_settings::settle(&settings, &found)?;
        stores.snapshots.collect();
        // Until now the earlier node's rules were in place, which know all instances that are
        // alive.
        let firewall = write_rules(&settings, &capacity, &found)?;

        let registry = Arc::new(Mutex::new(Registry::default()));
        let watched = Arc::clone(&registry);
        let watch = Watch::start(move |slot| ended(&watched, slot)).doing("watch processes")?;
        let running = found.iter().filter(|instance| instance.body.process().is_some());
        let taken = running.map(|instance| instance.slot).collect();
        let null = open_null()?;
        lift_file_limit();
        lift_terminal_limit(&settings.limits);
        let open_files = open_files_max(&settings);
        let starter =
            Arc::new(Starter::new(settings.first.clone(), rules::of(&settings, open_files)));
        let networks = NetworkPool::open(Arc::clone(&home), Arc::clone(&starter), &settings, taken)
            .doing("prepare the pool of networks")?;
        let drive_mb = AtomicU32::new(capacity.drive_mb);
        let shared =
            Shared { settings, stores, groups, home, starter, null, boot, open_files, drive_mb };
        let tunnels = crate::tunnel::pool(&shared.settings.limits);
        let node =
            Self { shared, networks, watch, registry, rules: firewall, tunnels, _lock: lock };
        for instance in found {
            node.admit(Arc::new(instance)).doing("watch an instance")?;
        }
        node.shared.stores.snapshots.clear_leftovers();
        Ok(node)
    }
}

/// Opens what the node keeps in its folder. Also returns the machine's capacity, which some of it
/// needs.
fn open_stores(settings: &Settings, world: World) -> Result<(Stores, Capacity), OpenError> {
    let folder = &settings.folder;
    let journal = Journal::open(folder, settings.limits.facts_kept, world.clone())
        .doing("open the journal")?;
    let records = Records::open(folder).doing("open the records of instances")?;
    let bundles = Bundles::open(folder).doing("open the bundles of instances")?;
    let scratches = Scratches::open(folder).doing("open the folder of what is limited in size")?;
    let sign = Sign::open(folder).doing("open the sign of life")?;
    let capacity = Capacity::of(&settings.limits, folder).doing("learn what this machine has")?;
    let shares = Shares::new(&capacity);
    let pool = Pool::open(folder, capacity.volume_mb.total)
        .doing("mount the file system of what is cloned")?;
    let volumes = Volumes::open(folder, capacity.volume_mb, &pool)
        .doing("find the volumes of an earlier node")?;
    let volumes = Arc::new(volumes);
    let snapshots =
        Snapshots::open(folder, &volumes).doing("find the snapshots of an earlier node")?;
    let drives = Drives::default();
    let stores = Stores {
        journal,
        records,
        bundles,
        scratches,
        volumes,
        snapshots,
        drives,
        shares,
        sign,
        world,
    };
    Ok((stores, capacity))
}

fn require_own_subnet(settings: &Settings) -> Result<(), OpenError> {
    let subnet = settings.subnet;
    if matches!(settings.egress, Egress::Nothing) {
        return Ok(());
    }
    if let Some(table) = Rules::conflicting_table(settings).doing("read the firewall's tables")? {
        return Err(OpenError::SubnetTaken { subnet, table });
    }
    let overlaps = net::overlaps(subnet).doing("read the machine's routes")?;
    let Some(reached) = overlaps.within.into_iter().next() else { return Ok(()) };
    if !has_instances(&settings.folder).doing("read the records of instances")? {
        return Err(OpenError::SubnetInUse { subnet, reached });
    }
    // Instances that have such addresses need this node, and refusing mends nothing.
    tracing::error!(
        network = %reached.network, interface = reached.interface, %subnet,
        "this machine is cut off from a network whose addresses instances have: set `node.subnet` to a range that nothing here uses, when none runs"
    );
    Ok(())
}

/// Returns true if instances of an earlier node are alive.
fn has_instances(folder: &Path) -> io::Result<bool> {
    let (records, boot) = (Records::open(folder)?, process::boot()?);
    let is_alive = |id| records.of(&id).is_ok_and(|record| record.is_alive(&boot));
    Ok(records.list()?.into_iter().any(is_alive))
}

/// Replaces the firewall rules of an earlier node by this node's, for the instances that were found.
fn write_rules(
    settings: &Settings,
    capacity: &Capacity,
    found: &[Instance],
) -> Result<Option<Rules>, OpenError> {
    let address = |instance: &Instance| settings.subnet.address(instance.slot);
    let firewalls: Vec<_> =
        found.iter().filter_map(|one| Some((address(one), one.firewall()?))).collect();
    let rules = Rules::write(settings, capacity.memory_mb.total, &firewalls);
    Ok(rules.doing("write the firewall rules")?)
}

fn open_null() -> Result<OwnedFd, OpenError> {
    let null = File::options().read(true).write(true).open("/dev/null");
    Ok(null.doing("open /dev/null")?.into())
}

/// Returns how many files a process of an instance may open. This process cannot allow more than it
/// may open itself.
fn open_files_max(settings: &Settings) -> u64 {
    let wanted = settings.limits.open_files;
    getrlimit(Resource::Nofile).maximum.map_or(wanted, |most| wanted.min(most))
}

/// How long a killed node may still hold the lock. An instance that it was starting keeps its
/// descriptors until exec.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Locks the node's folder, because two nodes in one folder would fight over its instances.
fn lock(settings: &Settings) -> Result<File, OpenError> {
    let file = File::create(settings.folder.join("lock")).doing("open the lock of the node")?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse),
            locked => {
                locked.doing("lock the folder of the node")?;
                return Ok(file);
            }
        }
    }
}
