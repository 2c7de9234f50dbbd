//! Says whose fault it is when something of a build fails.

use crate::refusals;
use admission::Refused;
use control::machine::{BuildFault, LaunchFault};
use images::build::Fault;

/// Reports mistakes in the sources to whoever sent them, and everything else to the operator.
pub(super) fn fault(error: &Fault) -> BuildFault {
    match error {
        Fault::Sources(why) => BuildFault::Failed(why.clone()),
        Fault::Store(error) => BuildFault::Broken(types::chain(error)),
    }
}

/// Says whose limit is reached: the workspace's, or that of all together.
pub(super) fn over_limit(refused: Refused) -> BuildFault {
    match refusals::over_limit(refused) {
        LaunchFault::OverShare(why) => BuildFault::OverShare(why),
        other => BuildFault::Broken(other.to_string()),
    }
}
