//! Making an instance: the order of things, and how they are undone when one fails.

use crate::cgroup::Group;
use crate::disk;
use crate::error::{CreateError, Doing};
use crate::instance::{Body, Holdings, Instance, Origin};
use crate::launch::tool::ToolFds;
use crate::launch::{self, Fds, Launch, Started, Words, keep};
use crate::node::Node;
use crate::oci::Prepared;
use crate::process::Identity;
use crate::records::{Record, StartedBy};
use crate::seats::Seat;
use crate::settings::Backend;
use crate::shares::{Promise, Stake};
use crate::spec::{Spec, Writable, sealed};
use crate::state::State;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::instance::{Happened, Medium};

pub(crate) fn make(node: &Node, spec: &Spec) -> Result<Arc<Instance>, CreateError> {
    let on_disk = spec.scratch.iter().any(|scratch| scratch.medium == Medium::Disk);
    if node.settings.backend != Backend::Direct && on_disk {
        return Err(CreateError::NoScratch);
    }
    // First of all, so that whoever takes too much costs the machine nothing.
    let admitted = node.book.shares.take(spec)?;
    let seat = node.seats.take().doing("prepare a network and users")?;
    let number = seat.number;
    let made = on_seat(node, spec, seat, admitted);
    if made.is_err() {
        undo(node, spec);
        node.seats.give_back(number);
    }
    made
}

/// In this order: the record comes before anything that would outlive a kill of this process, and
/// the process is recorded only after its start was; a record without a process is swept, whatever
/// it got to.
fn on_seat(
    node: &Node,
    spec: &Spec,
    seat: Seat,
    admitted: (Stake, Promise),
) -> Result<Arc<Instance>, CreateError> {
    let book = &node.book;
    let mut record = record(node, spec, &seat);
    book.records.put(&spec.id, &record).doing("record the instance")?;
    let membership = node.groups.join(&spec.owner).doing("join the control groups of its owner")?;
    let group = node.groups.make(spec).doing("make its control groups")?;
    let disk = writable(node, spec, &seat).doing("make its writable layer")?;
    let started = match &node.settings.backend {
        Backend::Direct => start(node, spec, &seat, &group, &disk)?,
        Backend::Runc { program } => start_by_tool(node, spec, &seat, &disk, program)?,
    };
    record.process = Some(Identity::of(started.pid).doing("identify its process")?);

    let now = book.world.now();
    let pid = started.pid.as_raw_nonzero().get();
    let body =
        Body { pid, pidfd: started.pidfd, network: seat.network, console: Some(seat.console) };
    let (stake, promise) = admitted;
    let origin = Origin {
        id: spec.id.clone(),
        seat: seat.number,
        memory_mb: spec.memory_mb,
        started_by: record.started_by,
        group,
        body: Some(body),
        state: State::Running { since: now },
        owner: Some(spec.owner.clone()),
        holdings: Holdings { _stake: stake, _membership: Some(membership) },
        promise: Some(promise),
    };
    let instance = Arc::new(Instance::new(origin, Arc::clone(book)));
    let happened = Happened::Started { memory_mb: spec.memory_mb };
    book.journal.record(now, &spec.id, happened).doing("record its start")?;
    book.records.change(&spec.id, &record).doing("record its process")?;
    node.admit(Arc::clone(&instance)).doing("watch its process")?;
    Ok(instance)
}

/// As it is before there is anything else of the instance.
fn record(node: &Node, spec: &Spec, seat: &Seat) -> Record {
    let started_by = match node.settings.backend {
        Backend::Direct => StartedBy::Node,
        Backend::Runc { .. } => StartedBy::Tool,
    };
    Record {
        boot: node.boot.clone(),
        seat: seat.number,
        memory_mb: spec.memory_mb,
        owner: Some(spec.owner.clone()),
        disks: spec.disks().collect(),
        started_by,
        process: None,
        end: None,
    }
}

fn writable(node: &Node, spec: &Spec, seat: &Seat) -> io::Result<OwnedFd> {
    let files = files(node, spec);
    match spec.writable {
        Writable::Memory { mb } => disk::make_layer(mb, seat.root, &files),
        Writable::Disk { mb } => node.book.scratches.make_layer(mb, seat.root, &files),
    }
}

fn start(
    node: &Node,
    spec: &Spec,
    seat: &Seat,
    group: &Group,
    disk: &OwnedFd,
) -> Result<Started, CreateError> {
    let made = |scratch| node.book.scratches.make(scratch, seat.root);
    let scratch = spec.scratch.iter().map(made).collect::<io::Result<Vec<_>>>();
    let scratch = scratch.doing("make its folders of limited size")?;
    let mut fds = descriptors(node, spec, seat, group, disk).doing("prepare what it inherits")?;
    fds.scratch = scratch
        .into_iter()
        .map(keep)
        .collect::<Result<_, _>>()
        .doing("prepare what it inherits")?;
    let folders: Vec<_> = spec.scratch.iter().map(|scratch| scratch.path.as_str()).collect();
    let words = Words {
        arguments: &spec.first.arguments,
        environment: &spec.first.environment,
        hostname: &spec.hostname,
        workdir: &spec.workdir,
        folders: &folders,
        user: spec.user,
        open_files: node.open_files,
        shared_memory_mb: node.settings.limits.shared_memory_mb,
        terminals: node.settings.limits.terminals,
    };
    Ok(launch::start(&Launch::new(fds, words, &node.filter))?)
}

fn start_by_tool(
    node: &Node,
    spec: &Spec,
    seat: &Seat,
    disk: &OwnedFd,
    program: &Path,
) -> Result<Started, CreateError> {
    let bundle = node.book.bundles.make(&spec.id, &spec.first.program).doing("make its bundle")?;
    let prepared = Prepared {
        // By this process, because the other one starts without it.
        network: format!("/proc/{}/fd/{}", std::process::id(), seat.network.as_raw_fd()),
        root: seat.root,
        group: format!("/{}", node.groups.path(Some(&spec.owner), &spec.id).display()),
        program: &bundle.program(),
        open_files: node.open_files,
        shared_memory_mb: node.settings.limits.shared_memory_mb,
        terminals: node.settings.limits.terminals,
    };
    let parts = parts(node, spec, seat).doing("prepare what it inherits")?;
    let fds = |tool: OwnedFd| {
        let Parts { layers, listener, config } = parts;
        let (disk, null, output) = (keep(disk)?, keep(&node.null)?, keep(&seat.console)?);
        Ok(ToolFds { layers, disk, program: tool, null, output, listener, config })
    };
    Ok(bundle.start(program, spec, &prepared, fds)?)
}

/// What is made for one instance only, whoever starts it. All descriptors come from [`keep`].
struct Parts {
    /// Topmost first.
    layers: Vec<OwnedFd>,
    listener: Option<OwnedFd>,
    config: Option<OwnedFd>,
}

fn parts(node: &Node, spec: &Spec, seat: &Seat) -> io::Result<Parts> {
    let layer =
        |folder: &PathBuf| io::Result::Ok(keep(disk::view_layer(folder, seat.users.as_fd())?)?);
    let listener =
        spec.first.listen.map(|port| node.home.listener(&seat.network, port)).transpose()?;
    let config = spec.first.config.as_ref().map(|bytes| sealed("config", bytes)).transpose()?;
    Ok(Parts {
        layers: spec.layers.iter().rev().map(layer).collect::<Result<_, _>>()?,
        listener: listener.map(keep).transpose()?,
        config: config.map(keep).transpose()?,
    })
}

fn descriptors(
    node: &Node,
    spec: &Spec,
    seat: &Seat,
    group: &Group,
    disk: &OwnedFd,
) -> io::Result<Fds> {
    let Parts { layers, listener, config } = parts(node, spec, seat)?;
    Ok(Fds {
        groups: group.entrances()?.into_iter().map(keep).collect::<Result<_, _>>()?,
        network: keep(&seat.network)?,
        users: keep(&seat.users)?,
        layers,
        disk: keep(disk)?,
        scratch: Vec::new(),
        devices: keep(&seat.devices)?,
        program: keep(spec.first.program.fd())?,
        null: keep(&node.null)?,
        output: keep(&seat.console)?,
        listener,
        config,
    })
}

/// What an instance finds under `/etc` that is its own and not its image's.
fn files(node: &Node, spec: &Spec) -> [(&'static str, String); 3] {
    let host = &spec.hostname;
    let mut resolvers = String::new();
    for address in &node.settings.nameservers {
        let _ = writeln!(resolvers, "nameserver {address}");
    }
    [
        ("etc/hostname", format!("{host}\n")),
        ("etc/hosts", format!("127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {host}\n")),
        ("etc/resolv.conf", resolvers),
    ]
}

/// Whatever cannot be undone now is left to the next start of the node, which sweeps records
/// without a process.
fn undo(node: &Node, spec: &Spec) {
    node.dismiss(&spec.id);
    let undone = node
        .groups
        .find(Some(&spec.owner), &spec.id)
        .sweep()
        .and_then(|()| node.book.bundles.remove(&spec.id))
        .and_then(|()| {
            node.book.journal.record(node.book.world.now(), &spec.id, Happened::Destroyed)
        })
        .and_then(|()| node.book.records.remove(&spec.id));
    if let Err(error) = undone {
        tracing::error!(%error, instance = %spec.id, "cannot undo a failed start");
    }
}
