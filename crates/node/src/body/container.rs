//! A container that the node starts itself.

use super::process::Process;
use crate::beginning::{Beginning, files};
use crate::cgroup::Group;
use crate::disk;
use crate::error::{Attempt, CreateError, Doing};
use crate::launch::{LaunchError, Started, copy, keep};
use crate::mounts::Made;
use crate::network_pool::Slot;
use crate::shared::Shared;
use crate::spec::{Program, Spec, Writable, sealed};
use crate::sys;
use crate::written::Written;
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use types::start::{Entry, Execute, Place};

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
        mut slot: Slot,
        group: Group,
    ) -> Result<Self, CreateError> {
        let spec = wanted.spec;
        let disk = writable(shared, wanted, &slot)?;
        if spec.extras.is_offline {
            shared.home.cut(&slot.network).doing("take its network away")?;
        }
        let layer = layer_of(spec, &disk, &slot)?;
        let started = start(shared, wanted, &mut slot, &group, disk)?;
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
    slot: &mut Slot,
    group: &Group,
    disk: OwnedFd,
) -> Result<Started, CreateError> {
    let spec = wanted.spec;
    let made = |scratch| shared.stores.scratches.make(scratch, slot.root);
    let scratch = spec.scratch.iter().map(made).collect::<io::Result<Vec<_>>>();
    let scratch = scratch.doing("make its folders of limited size")?;
    let (places, mounts) = mounts(shared, spec, slot)?;
    let parts = parts(shared, wanted, slot).doing("prepare what it inherits")?;
    let groups = group.entrances().doing("open its control groups")?;
    let program = Some(&spec.first.program).filter(|program| !shared.starter.is_of(program));
    let entry = Entry {
        hostname: spec.hostname.clone(),
        workdir: spec.workdir.clone(),
        uid: spec.user.uid,
        gid: spec.user.gid,
        groups: groups.len(),
        layers: parts.layers.len(),
        scratch: spec.scratch.iter().map(|scratch| scratch.path.clone()).collect(),
        mounts: places,
        has_listener: parts.listener.is_some(),
        has_config: parts.config.is_some(),
        execute: program.map(|_| Execute {
            arguments: spec.first.arguments.clone(),
            environment: spec.first.environment.clone(),
        }),
    };
    let single = [Some(&disk), parts.listener.as_ref(), parts.config.as_ref()];
    let [disk, listener, config] = single.map(Option::into_iter);
    let descriptors: Vec<_> = (groups.iter().chain(&parts.layers).chain(disk))
        .chain(scratch.iter().chain(&mounts).chain(listener).chain(config))
        .chain(program.map(Program::fd))
        .map(AsFd::as_fd)
        .collect();
    let waiting = slot.first.take().ok_or(LaunchError::Ended)?;
    Ok(waiting.enter(&entry, &descriptors)?)
}

/// Makes the mounts of volumes, drives and the like, with their places.
fn mounts(
    shared: &Shared,
    spec: &Spec,
    slot: &Slot,
) -> Result<(Vec<Place>, Vec<OwnedFd>), CreateError> {
    let (mut places, mut mounts) = (Vec::new(), Vec::new());
    for mount in &spec.extras.mounts {
        match mount.make(&shared.stores, slot) {
            Ok(Made { mount: made, sort }) => {
                places.push(Place { path: mount.path.clone(), sort });
                mounts.push(made);
            }
            Err(error) if mount.may_be_missing() => {
                tracing::warn!(%error, instance = %spec.id, place = mount.path, "it starts without a drive");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((places, mounts))
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
