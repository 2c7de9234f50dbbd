//! A container that the node starts itself.

use super::Process;
use crate::cgroup::Group;
use crate::disk;
use crate::error::{Attempt, CreateError, Doing};
use crate::extras::{Made, Written};
use crate::launch::{self, Fds, Launch, Started, Words, copy, keep};
use crate::network_pool::Slot;
use crate::shared::Shared;
use crate::spec::{Spec, Writable, sealed};
use crate::volumes::KeptLayer;
use rustix::fd::{AsFd, OwnedFd};
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub(crate) struct Container {
    pub(super) group: Group,
    pub(super) process: Option<Process>,
    /// Not of one that was adopted.
    pub(super) written: Option<Written>,
}

impl Container {
    pub(super) fn start(
        shared: &Shared,
        spec: &Spec,
        slot: Slot,
        group: Group,
    ) -> Result<Self, CreateError> {
        let disk = writable(shared, spec, &slot)?;
        if spec.extras.is_offline {
            shared.home.cut(&slot.network).doing("take its network away")?;
        }
        let written = spec.extras.hands_over.then(|| copy(&disk)).transpose();
        let written = written.doing("keep what it will write")?;
        let written = written.map(|mount| Written { mount, root: slot.root });
        let started = start(shared, spec, &slot, &group, disk)?;
        Ok(Self { written, ..Self::started(started, slot, group) })
    }

    pub(super) fn started(started: Started, slot: Slot, group: Group) -> Self {
        let process = Process {
            pid: started.pid.as_raw_nonzero().get(),
            pidfd: started.pidfd,
            network: slot.network,
            console: Some(slot.console),
        };
        Self { group, process: Some(process), written: None }
    }

    pub(super) fn destroy(&self) -> Result<(), Attempt> {
        self.group.remove().doing("remove the control groups of")
    }
}

fn start(
    shared: &Shared,
    spec: &Spec,
    slot: &Slot,
    group: &Group,
    disk: OwnedFd,
) -> Result<Started, CreateError> {
    let made = |scratch| shared.stores.scratches.make(scratch, slot.root);
    let scratch = spec.scratch.iter().map(made).collect::<io::Result<Vec<_>>>();
    let scratch = scratch.doing("make its folders of limited size")?;
    let mut fds = descriptors(shared, spec, slot, group, disk).doing("prepare what it inherits")?;
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

/// What it mounts besides, by place.
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

pub(super) fn writable(shared: &Shared, spec: &Spec, slot: &Slot) -> Result<OwnedFd, CreateError> {
    let (files, stores) = (files(shared, spec), &shared.stores);
    let made = match &spec.writable {
        Writable::Memory { mb } => disk::make_layer(*mb, slot.root, &files),
        Writable::Disk { mb } => stores.scratches.make_layer(*mb, slot.root, &files),
        Writable::Kept { volume, mb, over } => {
            let layer = KeptLayer { volume, owner: &spec.owner, size_mb: *mb, over };
            return Ok(stores.volumes.layer(&layer, &files, slot.users.as_fd())?);
        }
    };
    Ok(made.doing("make its writable layer")?)
}

/// What is made for one instance only, whoever starts it. All descriptors are out of the way, see [`keep`].
pub(super) struct Parts {
    /// Topmost first.
    pub(super) layers: Vec<OwnedFd>,
    pub(super) listener: Option<OwnedFd>,
    pub(super) config: Option<OwnedFd>,
}

pub(super) fn parts(shared: &Shared, spec: &Spec, slot: &Slot) -> io::Result<Parts> {
    let layer =
        |folder: &PathBuf| io::Result::Ok(keep(disk::view_layer(folder, slot.users.as_fd())?)?);
    let listener =
        spec.first.listen.map(|port| shared.home.listener(&slot.network, port)).transpose()?;
    let config = spec.first.config.as_ref().map(|bytes| sealed("config", bytes)).transpose()?;
    Ok(Parts {
        layers: spec.layers.iter().rev().map(layer).collect::<Result<_, _>>()?,
        listener: listener.map(keep).transpose()?,
        config: config.map(keep).transpose()?,
    })
}

fn descriptors(
    shared: &Shared,
    spec: &Spec,
    slot: &Slot,
    group: &Group,
    disk: OwnedFd,
) -> io::Result<Fds> {
    let Parts { layers, listener, config } = parts(shared, spec, slot)?;
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

/// What an instance finds under `/etc` that is its own and not its image's.
fn files(shared: &Shared, spec: &Spec) -> [(&'static str, String); 3] {
    let host = &spec.hostname;
    let mut resolvers = String::new();
    for address in &shared.settings.nameservers {
        let _ = writeln!(resolvers, "nameserver {address}");
    }
    [
        ("hostname", format!("{host}\n")),
        ("hosts", format!("127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {host}\n")),
        ("resolv.conf", resolvers),
    ]
}
