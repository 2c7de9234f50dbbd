//! Says whose fault it is when something of a build fails.

use control::machine::BuildFault;
use images::build::Fault;

/// Reports mistakes in the sources to whoever sent them, and everything else to the operator.
pub(super) fn fault(error: &Fault) -> BuildFault {
    match error {
        Fault::Sources(why) => BuildFault::Failed(why.clone()),
        Fault::Store(error) => BuildFault::Broken(types::chain(error)),
    }
}
