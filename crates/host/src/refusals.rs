//! Says why something is refused: because its owner, or everybody, has used something up, or because
//! somebody is using it right now.

use admission::Refused;
use control::machine::LaunchFault;
use node::{CreateError, SnapshotError, VolumeError};
use std::error::Error;
use std::io::{self, ErrorKind};
use types::chain;

/// Says whose limit is reached: the owner's, or that of all together.
pub(crate) fn over_limit(refused: Refused) -> LaunchFault {
    match refused {
        Refused::Share { resource, limit } => LaunchFault::OverShare(format!(
            "one workspace may have at most {limit} {resource} on this machine; delete some, or let some sleep if it is memory"
        )),
        Refused::Total { .. } => LaunchFault::Full(refused.to_string()),
    }
}

/// Says so if something failed because the machine's disk is full, whatever the shares of it.
pub(crate) fn no_space(error: &(dyn Error + 'static)) -> Option<String> {
    let is_full = |cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|io| {
            matches!(io.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
        })
    };
    let mut causes = std::iter::successors(Some(error), |cause| (**cause).source());
    causes.any(is_full).then(|| "the disk of this machine is full".to_owned())
}

/// Says why something without a refusal of its own kept a launch from succeeding.
pub(crate) fn failed(error: &(dyn Error + 'static)) -> LaunchFault {
    no_space(error).map_or_else(|| LaunchFault::Broken(chain(error)), LaunchFault::Full)
}

pub(crate) fn in_use() -> LaunchFault {
    LaunchFault::Busy("an instance that ends still has one of its volumes".to_owned())
}

/// Translates the reason why the node refuses a launch.
pub(crate) fn of_launch(error: &CreateError) -> Option<LaunchFault> {
    match error {
        CreateError::Volume(VolumeError::InUse(_)) => Some(in_use()),
        CreateError::Refused(refused) | CreateError::Volume(VolumeError::Refused(refused)) => {
            Some(over_limit(*refused))
        }
        CreateError::Snapshot(error) => of_snapshot(error),
        CreateError::Unheard(_) | CreateError::NoNetwork => {
            Some(LaunchFault::Full(error.to_string()))
        }
        CreateError::TooLarge { .. } => Some(LaunchFault::OverShare(error.to_string())),
        other => no_space(other).map(LaunchFault::Full),
    }
}

/// Translates the reason why a launch cannot start from a snapshot.
pub(crate) fn of_snapshot(error: &SnapshotError) -> Option<LaunchFault> {
    match error {
        SnapshotError::Missing(_) => Some(LaunchFault::Broken(
            "the snapshot that it begins with is not on this machine any more".to_owned(),
        )),
        SnapshotError::Refused(refused) => Some(over_limit(*refused)),
        other => no_space(other).map(LaunchFault::Full),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let machine = |kind: ErrorKind| VolumeError::Machine(kind.into());
        let full = of_launch(&CreateError::Volume(machine(ErrorKind::StorageFull)));
        assert!(matches!(full, Some(LaunchFault::Full(_))), "{full:?}");
        assert!(of_launch(&CreateError::Volume(machine(ErrorKind::NotFound))).is_none());
    }

    #[test]
    fn a_machine_without_a_network_left_is_full_and_its_disk_is_not() {
        let full = of_launch(&CreateError::NoNetwork);
        let Some(LaunchFault::Full(text)) = full else { panic!("{full:?}") };
        assert!(text.contains("`node.subnet`") && !text.contains("disk"), "{text}");
    }
}
