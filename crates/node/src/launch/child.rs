//! What a new process does between clone and exec.
//!
//! It runs in the node's memory, while other threads may hold any lock. So there is one rule: only
//! system calls, on data that the node has laid out before. No allocation, no formatting, no panic.

use super::step::{Mount, Step, Task};
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
        let result = unsafe { perform(step) };
        if result < 0 {
            // SAFETY: only this process runs on this memory: the node's thread is held by VFORK.
            unsafe {
                if !(*report).failed {
                    (*report).failed = true;
                    (*report).step = number;
                    (*report).errno = sys::last_errno();
                }
            }
            return 127;
        }
    }
    0
}

/// Performs one step. If the result is negative, errno says why.
unsafe fn perform(step: &Step) -> c_long {
    // SAFETY: as said by the caller; each arm is one or a few system calls on data of the step.
    unsafe {
        match step {
            Step::EndWithNode => {
                libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0)
            }
            Step::OwnMounts => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNS),
            Step::Attach { mount, at } => attach(*mount, at.as_ptr()),
            Step::Enter { folder } => libc::syscall(libc::SYS_chdir, folder.as_ptr()),
            Step::Mount(step) => mount(step),
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

unsafe fn mount(mount: &Mount) -> c_long {
    // SAFETY: everything is a C string.
    unsafe {
        libc::syscall(
            libc::SYS_mount,
            c"holm".as_ptr(),
            mount.at.as_ptr(),
            mount.kind.as_ptr(),
            mount.flags,
            mount.options.as_ptr(),
        )
    }
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
