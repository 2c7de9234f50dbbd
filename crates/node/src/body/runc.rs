//! A container started by `runc`, or another program with the same command line. [`crate::oci`]
//! describes the differences.

use super::container::{Container, Parts, Wanted, layer_of, parts, writable};
use crate::cgroup::Group;
use crate::error::{Attempt, CreateError, Doing};
use crate::launch::tool::ToolFds;
use crate::launch::{Started, copy, keep};
use crate::network_pool::Slot;
use crate::oci::{self, Prepared};
use crate::shared::Shared;
use crate::spec::Spec;
use rustix::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use types::instance::Medium;

#[derive(Debug)]
pub(crate) struct Runc {
    pub(super) container: Container,
    /// The folder that the program works with.
    pub(super) bundle: PathBuf,
}

/// Refuses file systems made by the node, which cannot be handed to the program.
pub(super) fn check(spec: &Spec) -> Result<(), CreateError> {
    if !spec.extras.is_none() {
        return Err(CreateError::NoExtras);
    }
    let on_disk = spec.scratch.iter().any(|scratch| scratch.medium == Medium::Disk);
    if on_disk { Err(CreateError::NoScratch) } else { Ok(()) }
}

impl Runc {
    pub(super) fn start(
        shared: &Shared,
        wanted: &Wanted<'_>,
        slot: Slot,
        group: Group,
        program: &Path,
    ) -> Result<Self, CreateError> {
        let spec = wanted.spec;
        let disk = writable(shared, wanted, &slot)?;
        let layer = layer_of(spec, &disk, &slot)?;
        let started = start(shared, wanted, &slot, disk, program)?;
        let container = Container { layer, ..Container::started(started, slot, group) };
        Ok(Self { container, bundle: shared.stores.bundles.of(&spec.id) })
    }

    pub(super) fn destroy(&self) -> Result<(), Attempt> {
        self.container.group.sweep().doing("remove all control groups of")?;
        oci::remove(&self.bundle).doing("remove the bundle of")
    }
}

fn start(
    shared: &Shared,
    wanted: &Wanted<'_>,
    slot: &Slot,
    disk: OwnedFd,
    program: &Path,
) -> Result<Started, CreateError> {
    let spec = wanted.spec;
    let bundle =
        shared.stores.bundles.make(&spec.id, &spec.first.program).doing("make its bundle")?;
    let prepared = Prepared {
        // Goes through this process, because the program starts without that descriptor.
        network: format!("/proc/{}/fd/{}", std::process::id(), slot.network.as_raw_fd()),
        root: slot.root,
        group: format!("/{}", shared.groups.path(Some(&spec.owner), &spec.id).display()),
        program: &bundle.program(),
        open_files: shared.open_files,
        shared_memory_mb: shared.settings.limits.shared_memory_mb,
        terminals: shared.settings.limits.terminals,
    };
    let parts = parts(shared, wanted, slot).doing("prepare what it inherits")?;
    let fds = |tool: OwnedFd| {
        let Parts { layers, listener, config } = parts;
        let (disk, null, output) = (keep(disk)?, copy(&shared.null)?, copy(&slot.console)?);
        Ok(ToolFds { layers, disk, program: tool, null, output, listener, config })
    };
    Ok(bundle.start(program, spec, &prepared, fds)?)
}
