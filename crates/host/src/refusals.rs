//! Says why something is refused: because its owner, or everybody, has used something up, or because
//! somebody is using it right now.

use admission::Refused;
use control::machine::LaunchFault;
use node::{CreateError, SnapshotError, VolumeError};

/// Says whose limit is reached: the owner's, or that of all together.
pub(crate) fn over_limit(refused: Refused) -> LaunchFault {
    match refused {
        Refused::Share { resource, limit } => LaunchFault::OverShare(format!(
            "one workspace may have at most {limit} {resource} on this machine; delete some, or let some sleep if it is memory"
        )),
        Refused::Total { .. } => LaunchFault::Full(refused.to_string()),
    }
}

/// Translates the reason why the node refuses a launch.
pub(crate) fn of_launch(error: &CreateError) -> Option<LaunchFault> {
    match error {
        CreateError::Volume(VolumeError::InUse(_)) => {
            Some(LaunchFault::Busy("an instance that ends still has one of its volumes".to_owned()))
        }
        CreateError::Refused(refused) | CreateError::Volume(VolumeError::Refused(refused)) => {
            Some(over_limit(*refused))
        }
        CreateError::Snapshot(error) => of_snapshot(error),
        CreateError::Unheard(_) => Some(LaunchFault::Full(error.to_string())),
        CreateError::TooLarge { .. } => Some(LaunchFault::OverShare(error.to_string())),
        _ => None,
    }
}

/// Translates the reason why a launch cannot start from a snapshot.
pub(crate) fn of_snapshot(error: &SnapshotError) -> Option<LaunchFault> {
    match error {
        SnapshotError::Missing(_) => Some(LaunchFault::Broken(
            "the snapshot that it begins with is not on this machine any more".to_owned(),
        )),
        SnapshotError::Refused(refused) => Some(over_limit(*refused)),
        _ => None,
    }
}
