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

/// Starts a process and waits until it has executed its program or failed.
pub(super) fn spawn_held(task: &Task, stack: *mut c_void) -> io::Result<Pid> {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: CLONE_VFORK holds this thread, and so the task, the stack and its descriptors, until
    // the process has ended. Needed: std and rustix start processes only by fork or exec.
    let pid = unsafe { libc::clone(run, stack, flags, std::ptr::from_ref(task).cast_mut().cast()) };
    Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(sys::last_error)
}

/// The entry point of the process. Returns only if something failed.
pub(super) extern "C" fn run(task: *mut c_void) -> c_int {
    // SAFETY: the node passes a `Task` that outlives this process's use of the shared memory,
    // because CLONE_VFORK holds the node's thread until exec or exit.
    let (steps, report) = unsafe {
        let task = &*task.cast::<Task>();
        (&*task.steps, task.report)
    };
    for (number, step) in steps.iter().enumerate() {
        // SAFETY: every pointer in a step was laid out by the node and lives as long as the task.
        let result = unsafe { perform(step, report) };
        if result < 0 {
            // SAFETY: only this process runs on this memory: the node's thread is held by VFORK.
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
    }
    0
}

/// Performs one step. If the result is negative, errno says why.
unsafe fn perform(step: &Step, report: *mut Report) -> c_long {
    // SAFETY: as said by the caller; each arm is one or a few system calls on data of the step.
    unsafe {
        match step {
            Step::EndWithNode => {
                libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0)
            }
            Step::OwnMounts => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNS),
            Step::Attach { mount, at } => attach(*mount, at.as_ptr()),
            Step::Enter { folder } => libc::syscall(libc::SYS_chdir, folder.as_ptr()),
            Step::Mount(mapping) => mount(mapping),
            Step::NewMount { kind, options, flags, into } => {
                new_mount(kind.as_ptr(), options, *flags, *into, report)
            }
            Step::Pass { fd, as_number, flags } => {
                libc::syscall(libc::SYS_dup3, *fd, *as_number, *flags)
            }
            Step::Close { first, last } => libc::syscall(libc::SYS_close_range, *first, *last, 0),
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
