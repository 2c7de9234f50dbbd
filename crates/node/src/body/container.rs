//! A container that the node starts itself.

use super::process::Process;
use crate::beginning::{Beginning, files};
use crate::cgroup::Group;
use crate::disk;
use crate::error::{Attempt, CreateError, Doing};
use crate::launch::{self, Fds, Launch, Started, Words, copy, keep};
use crate::mounts::Made;
use crate::network_pool::Slot;
use crate::shared::Shared;
use crate::spec::{Spec, Writable, sealed};
use crate::sys;
use crate::written::Written;
use rustix::fd::{AsFd, OwnedFd};
use std::io;

#[derive(Debug)]
pub(crate) struct Container {
    pub(super) group: Group,
    pub(super) process: Option<Process>,
    /// The layer that it writes into. `None` for an adopted instance, and for one whose layer
    /// stays: as long as it is open, the next instance could not mount it.
    pub(super) layer: Option<Written>,
    /// Whether the caller may have that layer.
    pub(super) hands_over: bool,
}

/// What is to be started.
pub(crate) struct Wanted<'w> {
    pub(crate) spec: &'w Spec,
    pub(crate) beginning: &'w Beginning,
}

impl Container {
    pub(super) fn start(
        shared: &Shared,
        wanted: &Wanted<'_>,
        slot: Slot,
        group: Group,
    ) -> Result<Self, CreateError> {
        let spec = wanted.spec;
        let disk = writable(shared, wanted, &slot)?;
        if spec.extras.is_offline {
            shared.home.cut(&slot.network).doing("take its network away")?;
        }
        let layer = layer_of(spec, &disk, &slot)?;
        let started = start(shared, wanted, &slot, &group, disk)?;
        let hands_over = spec.extras.hands_over;
        Ok(Self { layer, hands_over, ..Self::started(started, slot, group) })
    }

    pub(super) fn started(started: Started, slot: Slot, group: Group) -> Self {
        let process = Process {
            pid: started.pid.as_raw_nonzero().get(),
            pidfd: started.pidfd,
            network: slot.network,
            console: Some(slot.console),
        };
        Self { group, process: Some(process), layer: None, hands_over: false }
    }

    pub(super) fn destroy(&self) -> Result<(), Attempt> {
        self.group.remove().doing("remove the control groups of")
    }
}

pub(super) fn layer_of(
    spec: &Spec,
    disk: &OwnedFd,
    slot: &Slot,
) -> Result<Option<Written>, CreateError> {
    let is_kept = matches!(spec.writable, Writable::Kept { .. });
    let wanted = !is_kept || spec.extras.hands_over;
    let mount = wanted.then(|| copy(disk)).transpose().doing("keep what it will write")?;
    Ok(mount.map(|mount| Written { mount, root: slot.root }))
}

fn start(
    shared: &Shared,
    wanted: &Wanted<'_>,
    slot: &Slot,
    group: &Group,
    disk: OwnedFd,
) -> Result<Started, CreateError> {
    let spec = wanted.spec;
    let made = |scratch| shared.stores.scratches.make(scratch, slot.root);
    let scratch = spec.scratch.iter().map(made).collect::<io::Result<Vec<_>>>();
    let scratch = scratch.doing("make its folders of limited size")?;
    let mut fds =
        descriptors(shared, wanted, slot, group, disk).doing("prepare what it inherits")?;
    fds.scratch = scratch
        .into_iter()
        .map(keep)
        .collect::<Result<_, _>>()
        .doing("prepare what it inherits")?;
    let mounts = mounts(shared, spec, slot)?;
    let places: Vec<_> = mounts.iter().map(|(path, made)| (*path, made.sort)).collect();
    fds.mounts = mounts
        .into_iter()
        .map(|(_, made)| keep(made.mount))
        .collect::<Result<_, _>>()
        .doing("prepare what it inherits")?;
    let folders: Vec<_> = spec.scratch.iter().map(|scratch| scratch.path.as_str()).collect();
    let words = Words {
        arguments: &spec.first.arguments,
        environment: &spec.first.environment,
        hostname: &spec.hostname,
        workdir: &spec.workdir,
        folders: &folders,
        places: &places,
        user: spec.user,
        open_files: shared.open_files,
        shared_memory_mb: shared.settings.limits.shared_memory_mb,
        terminals: shared.settings.limits.terminals,
    };
    Ok(launch::start(&Launch::new(fds, words, &shared.filter))?)
}

/// Makes the mounts of volumes, drives and the like, with their paths.
fn mounts<'s>(
    shared: &Shared,
    spec: &'s Spec,
    slot: &Slot,
) -> Result<Vec<(&'s str, Made)>, CreateError> {
    let mut mounts = Vec::new();
    for mount in &spec.extras.mounts {
        match mount.make(&shared.stores, slot) {
            Ok(made) => mounts.push((mount.path.as_str(), made)),
            Err(error) if mount.may_be_missing() => {
                tracing::warn!(%error, instance = %spec.id, place = mount.path, "it starts without a drive");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(mounts)
}

pub(super) fn writable(
    shared: &Shared,
    wanted: &Wanted<'_>,
    slot: &Slot,
) -> Result<OwnedFd, CreateError> {
    let (spec, beginning, stores) = (wanted.spec, wanted.beginning, &shared.stores);
    let made = match &spec.writable {
        Writable::Memory { mb } => disk::make_layer(*mb, slot.root, &files(shared, spec)),
        Writable::Disk { mb } => stores.scratches.make_layer(*mb, slot.root, &files(shared, spec)),
        Writable::Kept { .. } => {
            let disk = kept(beginning, slot);
            return Ok(disk.doing("give its disk the owners that it sees")?);
        }
    };
    let layer = made.doing("make its writable layer")?;
    let named = beginning.identify(shared, spec, layer.as_fd(), slot.root);
    named.doing("give it a name of its own")?;
    Ok(layer)
}

fn kept(beginning: &Beginning, slot: &Slot) -> io::Result<OwnedFd> {
    let disk = beginning.disk.as_ref().ok_or(io::ErrorKind::NotFound)?;
    sys::share_owners(disk.as_fd(), slot.users.as_fd())?;
    Ok(rustix::io::fcntl_dupfd_cloexec(disk, 0)?)
}

/// What is made for one instance only, however it is started. All descriptors have high numbers,
/// see [`keep`].
pub(super) struct Parts {
    /// Topmost first.
    pub(super) layers: Vec<OwnedFd>,
    pub(super) listener: Option<OwnedFd>,
    pub(super) config: Option<OwnedFd>,
}

pub(super) fn parts(shared: &Shared, wanted: &Wanted<'_>, slot: &Slot) -> io::Result<Parts> {
    let spec = wanted.spec;
    let users = slot.users.as_fd();
    let under = wanted.beginning.layers.iter().map(|layer| layer.view(users));
    let own = spec.layers.iter().rev().map(|folder| disk::view_layer(folder, users));
    let listener =
        spec.first.listen.map(|port| shared.home.listener(&slot.network, port)).transpose()?;
    let config = spec.first.config.as_ref().map(|bytes| sealed("config", bytes)).transpose()?;
    Ok(Parts {
        layers: under.chain(own).map(|view| Ok(keep(view?)?)).collect::<io::Result<_>>()?,
        listener: listener.map(keep).transpose()?,
        config: config.map(keep).transpose()?,
    })
}

fn descriptors(
    shared: &Shared,
    wanted: &Wanted<'_>,
    slot: &Slot,
    group: &Group,
    disk: OwnedFd,
) -> io::Result<Fds> {
    let spec = wanted.spec;
    let Parts { layers, listener, config } = parts(shared, wanted, slot)?;
    Ok(Fds {
        groups: group.entrances()?.into_iter().map(keep).collect::<Result<_, _>>()?,
        network: copy(&slot.network)?,
        users: copy(&slot.users)?,
        layers,
        disk: keep(disk)?,
        scratch: Vec::new(),
        mounts: Vec::new(),
        devices: copy(&slot.devices)?,
        program: copy(spec.first.program.fd())?,
        null: copy(&shared.null)?,
        output: copy(&slot.console)?,
        listener,
        config,
    })
}
