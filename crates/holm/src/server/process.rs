//! Settings that the process asks of the kernel for itself.

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask,
};
use std::io;
use std::os::fd::AsRawFd;

/// New files are readable by their owner only.
const PRIVATE: Mode = Mode::from_raw_mode(0o077);

/// One part in this many of the files that may be open is left to what requests need: connections to
/// workloads, files of the store, programs to start.
const RESERVE_PART: u64 = 8;

/// Returns whether few more files may be opened, as told by the number of the newest: the kernel
/// gives out the lowest that is free.
pub(crate) fn few_files_left(newest: &impl AsRawFd) -> bool {
    let Some(most) = getrlimit(Resource::Nofile).current else { return false };
    u64::try_from(newest.as_raw_fd()).is_ok_and(|number| number >= most - most / RESERVE_PART)
}

/// Returns whether something failed because this process, or the machine, has too many files open.
pub(crate) fn has_no_file_left(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).map(Some).contains(&error.raw_os_error())
}

/// Makes the files that this process creates from now on readable by their owner only.
pub(crate) fn keep_files_private() {
    umask(PRIVATE);
}

/// Keeps secrets in memory out of core files and debuggers, and raises the limit of open files as
/// far as allowed. All of this helps but none of it is essential, so a refusal is only logged.
pub(crate) fn prepare() {
    keep_files_private();
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
