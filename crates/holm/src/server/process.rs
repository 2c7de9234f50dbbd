//! Settings that the process asks of the kernel for itself.

use rustix::fs::Mode;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask,
};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// New files are readable by their owner only.
const PRIVATE: Mode = Mode::from_raw_mode(0o077);

/// One part in this many of the files that may be open is left to what requests need: connections to
/// workloads, files of the store, programs to start.
const RESERVE_PART: u64 = 8;

/// For how many open files there is room from the start: some thousands of sandboxes take as many.
/// Room for one takes eight bytes.
const FILES_READY: u64 = 32_768;

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

/// Keeps secrets in memory out of core files and debuggers. All of this helps but none of it is
/// essential, so a refusal is only logged.
pub(crate) fn prepare() {
    keep_files_private();
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::debug!(%error, "the process can be dumped");
    }
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::debug!(%error, "core files could not be turned off");
    }
}

/// Raises the limit of open files as far as allowed, and makes room for them. Call it before the first thread is started: whenever the kernel enlarges
/// the table of open files of a process with threads, it waits for all processors first, up to a tenth
/// of a second on a busy machine, and so does every thread that opens a file.
pub(crate) fn make_room_for_files() {
    let most = getrlimit(Resource::Nofile).maximum;
    // Neither is essential.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    let limit = most.unwrap_or(FILES_READY);
    let last = RawFd::try_from(limit.min(FILES_READY)).map_or(0, |files| files - 1);
    if let Ok(file) = File::open("/dev/null") {
        let _ = fcntl_dupfd_cloexec(file, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_files_stays() {
        make_room_for_files();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let room = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(FILES_READY);
        assert!(room.trim().parse::<u64>().unwrap() >= FILES_READY.min(most));
    }
}
