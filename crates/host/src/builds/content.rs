//! Makes the content that volumes start with: an uploaded archive, unpacked into a file system of
//! its own.

use super::fault::{fault, over_limit};
use super::shared::Shared;
use crate::refusals::no_space;
use control::machine::{BuildFault, FillOrder};
use images::build::{Fault, SourceLimits};
use images::contents::{self, Needs};
use node::{Owner, VolumeError};
use std::path::Path;
use types::chain;

/// Unpacks what was uploaded. The file system gets its name once it is complete and on disk;
/// without a name it is removed when this call ends, or the program.
/// Returns the size of all files.
pub(super) fn fill(shared: &Shared, order: &FillOrder) -> Result<u64, BuildFault> {
    let settings = &shared.settings;
    let limits = SourceLimits {
        bytes: settings.unpacked_bytes_max,
        entries: settings.sources_entries_max,
        ratio: settings.sources_ratio_max,
    };
    let archive = shared.folder.path(&order.build);
    let needs = contents::measure(&archive, limits).map_err(|error| fault(&error))?;
    // An earlier try may have left it.
    shared.machine.0.node.volumes().remove(&order.volume).map_err(|error| broken(&error))?;
    match unpack(shared, order, &archive, limits, size_mb(&needs, 1)?) {
        // The file system's own tables needed more room than expected.
        Err(Unpack::Full) => unpack(shared, order, &archive, limits, size_mb(&needs, 2)?),
        other => other,
    }
    .map_err(|error| match error {
        Unpack::Full => BuildFault::Broken("its files need more room than they should".to_owned()),
        Unpack::Other(fault) => fault,
    })?;
    Ok(needs.bytes)
}

/// Puts a copy of what was unpacked at the object service, and returns its digest. `None` if there
/// is no such service.
pub(super) fn put_copy(shared: &Shared, order: &FillOrder) -> Result<Option<String>, BuildFault> {
    shared.machine.0.node.volumes().put_copy(&order.volume).map_err(|error| broken(&error))
}

fn size_mb(needs: &Needs, times: u64) -> Result<u32, BuildFault> {
    let too_much = |_| BuildFault::Sources("what is in the archive is too large".to_owned());
    u32::try_from(needs.volume_mb().saturating_mul(times)).map_err(too_much)
}

enum Unpack {
    Full,
    Other(BuildFault),
}

impl From<VolumeError> for Unpack {
    fn from(error: VolumeError) -> Self {
        Self::Other(match error {
            VolumeError::Refused(refused) => over_limit(refused),
            other => broken(&other),
        })
    }
}

fn broken(error: &VolumeError) -> BuildFault {
    BuildFault::Broken(chain(error))
}

fn unpack(
    shared: &Shared,
    order: &FillOrder,
    archive: &Path,
    limits: SourceLimits,
    size_mb: u32,
) -> Result<(), Unpack> {
    let owner = Owner::new(order.workspace.as_str())
        .map_err(|error| Unpack::Other(BuildFault::Broken(chain(&error))))?;
    let volumes = shared.machine.0.node.volumes();
    let filling = volumes.begin(&owner, size_mb)?;
    contents::unpack(archive, &filling.folder(), limits).map_err(|error| {
        match is_full(&error) {
            true => Unpack::Full,
            false => Unpack::Other(fault(&error)),
        }
    })?;
    Ok(volumes.finish(filling, &order.volume)?)
}

fn is_full(fault: &Fault) -> bool {
    matches!(fault, Fault::Store(error) if no_space(error).is_some())
}
