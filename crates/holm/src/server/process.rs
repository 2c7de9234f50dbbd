//! Settings that the process asks of the kernel for itself.

use rustix::fs::Mode;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask,
};

/// New files are readable by their owner only.
const PRIVATE: Mode = Mode::from_raw_mode(0o077);

/// Keeps secrets in memory out of core files and debuggers, and raises the limit of open files as
/// far as allowed. All of this helps but none of it is essential, so a refusal is only logged.
pub(crate) fn prepare() {
    umask(PRIVATE);
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::debug!(%error, "the process can be dumped");
    }
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::debug!(%error, "core files could not be turned off");
    }
    let files = getrlimit(Resource::Nofile);
    if let Err(error) =
        setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum })
    {
        tracing::debug!(%error, "the limit of open files could not be raised");
    }
}
