//! What a new process does between clone and exec.
//!
//! It runs in the node's memory, while other threads may hold any lock. So there is one rule: only
//! system calls, on data that the node has laid out before. No allocation, no formatting, no panic.

use super::report::{Report, SAID_BYTES};
use super::step::{Mapping, Step, Task};
use crate::sys;
use libc::{c_int, c_long, c_void};
use rustix::fd::RawFd;
use rustix::io;
use rustix::process::Pid;

/// The descriptors that a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// A copy of the node's. It takes the longer to make and to close, the more the node has open.
    Copied,
    /// The node's own, for a process that leaves all of them as they are. One that it opens itself,
    /// it closes.
    Shared,
}

/// Starts the first process and waits until it has ended.
pub(super) fn spawn_held(task: &Task, stack: *mut c_void, table: Table) -> io::Result<Pid> {
    let files = match table {
        Table::Copied => 0,
        Table::Shared => libc::CLONE_FILES,
    };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | files | libc::SIGCHLD;
    // SAFETY: CLONE_VFORK holds this thread, and so the task, the stack and its descriptors, until
    // the process has ended. Needed: std and rustix start processes only by fork or exec.
    let pid = unsafe { libc::clone(run, stack, flags, std::ptr::from_ref(task).cast_mut().cast()) };
    Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(sys::last_error)
}

/// The entry point of both processes. Returns only if something failed.
pub(super) extern "C" fn run(task: *mut c_void) -> c_int {
    // SAFETY: the node passes a `Task` that outlives this process's use of the shared memory,
    // because CLONE_VFORK holds the node's thread until exec or exit.
    let (steps, report, first) = unsafe {
        let task = &*task.cast::<Task>();
        (&*task.steps, task.report, task.first_step)
    };
    let mut number = first;
    for step in steps {
        // SAFETY: every pointer in a step was laid out by the node and lives as long as the task.
        let result = unsafe { perform(step, report) };
        if result < 0 {
            // SAFETY: only one process at a time runs on this memory: the node and the first
            // process are held by VFORK.
            unsafe {
                if !(*report).failed {
                    (*report).failed = true;
                    (*report).step = number;
                    if (*report).errno == 0 {
                        (*report).errno = sys::last_errno();
                    }
                }
            }
            return 127;
        }
        number = number.wrapping_add(1);
    }
    0
}

/// Performs one step. If the result is negative, errno says why.
unsafe fn perform(step: &Step, report: *mut Report) -> c_long {
    // SAFETY: as said by the caller; each arm is one or a few system calls on data of the step.
    unsafe {
        match step {
            Step::GoFirst { score } => write_own_score(score),
            Step::JoinGroup { tasks } => {
                libc::syscall(libc::SYS_write, *tasks, c"0".as_ptr(), 1_usize)
            }
            Step::Enter { namespace, kind } => libc::syscall(libc::SYS_setns, *namespace, *kind),
            Step::BecomeRoot => become_root(),
            Step::Spawn { task, flags, stack } => {
                let pid = &raw mut (*report).second;
                c_long::from(libc::clone(run, *stack, *flags, (*task).cast_mut().cast(), pid))
            }
            Step::EndWithNode => {
                libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0)
            }
            Step::OwnMounts => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNS),
            Step::Attach { mount, at } => attach(*mount, at.as_ptr()),
            Step::AttachIfPlain { mount, at, folders } => {
                attach_if_plain(*mount, at, folders);
                0
            }
            Step::Mount(mapping) => mount(mapping),
            Step::NewMount { kind, options, flags, into } => {
                new_mount(kind.as_ptr(), options, *flags, *into, report)
            }
            Step::ChangeFolder { to } => libc::syscall(libc::SYS_chdir, to.as_ptr()),
            Step::ChangeFolderTo { fd } => libc::syscall(libc::SYS_fchdir, *fd),
            Step::PivotHere => libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()),
            Step::DropOldRoot => libc::syscall(libc::SYS_umount2, c".".as_ptr(), libc::MNT_DETACH),
            Step::MakeFolder { path } => exists_is_fine(libc::syscall(
                libc::SYS_mkdirat,
                libc::AT_FDCWD,
                path.as_ptr(),
                0o755_u32,
            )),
            Step::MakeFile { path } => exists_is_fine(libc::syscall(
                libc::SYS_mknodat,
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::S_IFREG | 0o644_u32,
                0,
            )),
            Step::Hide { path, under } => {
                missing_is_fine(mount_call(under, path, None, libc::MS_BIND))
            }
            Step::HideFolder { path } => missing_is_fine(mount_call(
                c"tmpfs",
                path,
                Some(c"tmpfs"),
                libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
            )),
            Step::Freeze { path } => freeze(path),
            Step::SetHostname { name } => {
                libc::syscall(libc::SYS_sethostname, name.as_ptr(), name.count_bytes())
            }
            Step::NewSession => libc::syscall(libc::SYS_setsid),
            Step::Pass { fd, as_number, flags } => {
                libc::syscall(libc::SYS_dup3, *fd, *as_number, *flags)
            }
            Step::Close { first, last } => libc::syscall(libc::SYS_close_range, *first, *last, 0),
            Step::Limit { resource, soft, hard } => {
                let limit = libc::rlimit64 { rlim_cur: *soft, rlim_max: *hard };
                let none = std::ptr::null::<c_void>();
                libc::syscall(libc::SYS_prlimit64, 0, *resource, &raw const limit, none)
            }
            Step::KeepCapabilities { set } => keep_capabilities(*set),
            Step::BecomeUser { uid, gid } => become_user(*uid, *gid),
            Step::NoNewPrivileges => {
                libc::syscall(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            }
            Step::Filter { program } => libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                &raw const program.0,
            ),
            Step::RestoreSignals => restore_signals(),
            Step::Execute { program, arguments, environment } => libc::syscall(
                libc::SYS_execveat,
                *program,
                c"".as_ptr(),
                arguments.as_ptr(),
                environment.as_ptr(),
                libc::AT_EMPTY_PATH,
            ),
        }
    }
}

/// Writes the process's own OOM score. The kernel keeps it apart from the node's, although a
/// process started by vfork shares the node's memory.
unsafe fn write_own_score(score: &std::ffi::CStr) -> c_long {
    let path = c"/proc/self/oom_score_adj";
    // SAFETY: both are C strings, and the descriptor is the one that was just opened.
    unsafe {
        let file = libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::O_WRONLY | libc::O_CLOEXEC,
            0,
        );
        if file < 0 {
            return file;
        }
        let written = libc::syscall(libc::SYS_write, file, score.as_ptr(), score.count_bytes());
        if written < 0 {
            return written;
        }
        libc::syscall(libc::SYS_close, file)
    }
}

unsafe fn become_root() -> c_long {
    // SAFETY: three calls without memory but a null list.
    unsafe {
        let result = libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<c_void>());
        if result < 0 {
            return result;
        }
        let result = libc::syscall(libc::SYS_setresgid, 0, 0, 0);
        if result < 0 { result } else { libc::syscall(libc::SYS_setresuid, 0, 0, 0) }
    }
}

unsafe fn become_user(uid: u32, gid: u32) -> c_long {
    // SAFETY: two calls without memory.
    unsafe {
        let result = libc::syscall(libc::SYS_setresgid, gid, gid, gid);
        if result < 0 { result } else { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }
    }
}

unsafe fn attach(mount: RawFd, at: *const libc::c_char) -> c_long {
    // SAFETY: both paths are C strings.
    unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount,
            c"".as_ptr(),
            libc::AT_FDCWD,
            at,
            libc::MOVE_MOUNT_F_EMPTY_PATH,
        )
    }
}

/// The kernel's `struct open_how`.
#[repr(C)]
struct How {
    flags: u64,
    mode: u64,
    resolve: u64,
}

static NO_LINKS: How = How {
    flags: (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64,
    mode: 0,
    resolve: libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS,
};

/// Attaches a mount unless a link or something else is in the way. That was put there by the
/// instance that would have had the mount, so it fails silently.
unsafe fn attach_if_plain(mount: RawFd, at: &std::ffi::CStr, folders: &[std::ffi::CString]) {
    // SAFETY: the paths are C strings, and the call reads a structure of the size that it is told.
    unsafe {
        for folder in folders {
            libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, folder.as_ptr(), 0o755_u32);
        }
        let how = &raw const NO_LINKS;
        let place =
            libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, at.as_ptr(), how, size_of::<How>());
        if place >= 0 {
            libc::syscall(
                libc::SYS_move_mount,
                mount,
                c"".as_ptr(),
                place,
                c"".as_ptr(),
                libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH,
            );
            libc::syscall(libc::SYS_close, place);
        }
    }
}

unsafe fn mount(mapping: &Mapping) -> c_long {
    let none = std::ptr::null::<c_void>();
    // SAFETY: the paths are C strings; no data is passed.
    unsafe {
        libc::syscall(
            libc::SYS_mount,
            mapping.from.as_ptr(),
            mapping.at.as_ptr(),
            none,
            mapping.flags,
            none,
        )
    }
}

unsafe fn mount_call(
    from: &std::ffi::CStr,
    at: &std::ffi::CStr,
    kind: Option<&std::ffi::CStr>,
    flags: libc::c_ulong,
) -> c_long {
    let none = std::ptr::null::<c_void>();
    let kind = kind.map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
    // SAFETY: all pointers are C strings or null.
    unsafe { libc::syscall(libc::SYS_mount, from.as_ptr(), at.as_ptr(), kind, flags, none) }
}

/// Makes a part of the tree read-only. A bind mount ignores these flags until it is remounted.
unsafe fn freeze(path: &std::ffi::CStr) -> c_long {
    let flags = libc::MS_BIND | libc::MS_REC;
    // SAFETY: all pointers are C strings.
    unsafe {
        let result = mount_call(path, path, None, flags);
        if result < 0 {
            return missing_is_fine(result);
        }
        let again = libc::MS_BIND
            | libc::MS_REMOUNT
            | libc::MS_RDONLY
            | libc::MS_NOSUID
            | libc::MS_NODEV
            | libc::MS_NOEXEC;
        mount_call(path, path, None, again)
    }
}

unsafe fn new_mount(
    kind: *const libc::c_char,
    options: &[super::step::MountOption],
    flags: c_long,
    into: RawFd,
    report: *mut Report,
) -> c_long {
    // SAFETY: all pointers are C strings or null.
    unsafe {
        let context = libc::syscall(libc::SYS_fsopen, kind, 1_u32);
        if context < 0 {
            return context;
        }
        for option in options {
            let value = option.value.as_ref().map_or(std::ptr::null(), |value| value.as_ptr());
            let command: c_long =
                if value.is_null() { FSCONFIG_SET_FLAG } else { FSCONFIG_SET_STRING };
            let result =
                libc::syscall(libc::SYS_fsconfig, context, command, option.key.as_ptr(), value, 0);
            if result < 0 {
                return say_why(context, report, result);
            }
        }
        let none = std::ptr::null::<c_void>();
        let result = libc::syscall(libc::SYS_fsconfig, context, FSCONFIG_CMD_CREATE, none, none, 0);
        if result < 0 {
            return say_why(context, report, result);
        }
        let mount = libc::syscall(libc::SYS_fsmount, context, 1_u32, flags);
        // The kernel's lowest free number may already be the wanted one, and `dup3` refuses to copy
        // a descriptor onto itself.
        if mount < 0 || mount == c_long::from(into) {
            return mount;
        }
        libc::syscall(libc::SYS_dup3, mount, into, libc::O_CLOEXEC)
    }
}

/// Keeps what the kernel says about a file system that it refused to make, because the error number
/// alone says little.
unsafe fn say_why(context: c_long, report: *mut Report, result: c_long) -> c_long {
    // SAFETY: the report is as said in `run`; the call writes at most the length of its own array.
    unsafe {
        (*report).errno = sys::last_errno();
        let said = &raw mut (*report).said;
        libc::syscall(libc::SYS_read, context, said, SAID_BYTES);
        result
    }
}

const FSCONFIG_SET_FLAG: c_long = 0;
const FSCONFIG_SET_STRING: c_long = 1;
const FSCONFIG_CMD_CREATE: c_long = 6;
const LAST_CAPABILITY: c_long = 63;

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

unsafe fn keep_capabilities(set: u64) -> c_long {
    let mut capability: c_long = 0;
    while capability <= LAST_CAPABILITY {
        if set >> capability & 1 == 0 {
            // SAFETY: a call without memory.
            let result = unsafe {
                libc::syscall(libc::SYS_prctl, libc::PR_CAPBSET_DROP, capability, 0, 0, 0)
            };
            if result < 0 && sys::last_errno() == libc::EINVAL {
                // This kernel does not have the capability, and so none above it.
                break;
            }
            if result < 0 {
                return result;
            }
        }
        capability = capability.wrapping_add(1);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the set")]
    let (low, high) = (set as u32, (set >> 32) as u32);
    let header = CapabilityHeader { version: 0x2008_0522, pid: 0 };
    let data = [low, low, 0, high, high, 0];
    // SAFETY: version 3 of the interface reads the header and two times three words.
    unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) }
}

/// Restores the default handling of signals. Handlers of the node do not exist in the new program,
/// but signals that the node ignores or blocks would stay ignored or blocked.
unsafe fn restore_signals() -> c_long {
    let action = [0_u64; 4];
    let nothing = 0_u64;
    let none = std::ptr::null::<c_void>();
    let size = size_of::<u64>();
    // SAFETY: a zeroed kernel sigaction (four words) means the default action; sets are one word.
    unsafe {
        libc::syscall(libc::SYS_rt_sigaction, libc::SIGPIPE, action.as_ptr(), none, size);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const nothing, none, size)
    }
}

fn exists_is_fine(result: c_long) -> c_long {
    if result < 0 && sys::last_errno() == libc::EEXIST { 0 } else { result }
}

fn missing_is_fine(result: c_long) -> c_long {
    if result < 0 && sys::last_errno() == libc::ENOENT { 0 } else { result }
}
