//! The only unsafe code of this program: descriptors known by number, descriptors that the runtime
//! watches, the start of processes, and filters of system calls.
#![expect(unsafe_code, reason = "none of these has a safe form")]

use libc::{c_char, c_int, c_long, c_void};
use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime, to learn when it can be read or written.
pub(crate) fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: `register` requires a descriptor that stays open and the same as long as it is
    // registered. An `OwnedFd` guarantees both until it is dropped, and the returned value owns it.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Descriptors that this program may inherit from the one that starts it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HandedOver {
    Listener,
    Settings,
    /// From the program that this one replaces.
    State,
}

impl HandedOver {
    pub(crate) const ALL: [Self; 3] = [Self::Listener, Self::Settings, Self::State];

    /// Returns the name of the environment variable that announces the descriptor.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Listener => types::guest::LISTENER_VARIABLE,
            Self::Settings => types::guest::SETTINGS_VARIABLE,
            Self::State => "HOLM_GUEST_STATE_FD",
        }
    }

    /// Takes the descriptor if the environment announces it, and keeps it from children. Call this
    /// once for each, before anything else opens files.
    pub(crate) fn take(self) -> Option<OwnedFd> {
        let number = std::env::var(self.variable())
            .ok()?
            .parse()
            .ok()
            .filter(|number| *number > libc::STDERR_FILENO)?;
        // With the variable, the starter promises that this number is open and meant for us, and
        // nothing of ours has opened a file yet.
        adopt(number).ok()
    }
}

/// Takes ownership of an inherited descriptor, and keeps it from children. The number must have
/// been handed over for this purpose and be taken only once.
pub(crate) fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: only the code that starts this program calls this: the starter names each number
    // once, before anything here could have opened a file under it. For a number that is not open,
    // the kernel returns an error, and the number is released without being closed.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    match rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC) {
        Ok(()) => Ok(fd),
        Err(error) => {
            let _ = fd.into_raw_fd();
            Err(error.into())
        }
    }
}

/// A program to start, laid out as the kernel expects it.
pub(crate) struct Program {
    pub(crate) path: CString,
    /// The first is the program's own name.
    pub(crate) arguments: Vec<CString>,
    /// Names and values joined by `=`.
    pub(crate) environment: Vec<CString>,
    pub(crate) directory: CString,
    /// Ids of the user and group to run as, if not those of this program.
    pub(crate) user: Option<(u32, u32)>,
    /// Ids of further groups of that user.
    pub(crate) groups: Vec<u32>,
    pub(crate) leads: Leads,
}

/// What the new process becomes the leader of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leads {
    /// A process group, so that a signal reaches everything that it starts.
    Group,
    /// A session, with standard input as its terminal.
    Session,
}

/// The reason why no program was started.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// No process was created.
    NoProcess(io::Error),
    /// A process was created, but has ended and must be waited for.
    Ended { pid: Pid, error: io::Error },
}

/// Enough, because the child only makes a few system calls on it.
const CHILD_STACK_BYTES: usize = 32 << 10;
/// How readily the kernel kills what this program starts when memory runs out. The machine gives
/// this program 500 (`OUT_OF_MEMORY_SCORE` of `node`).
const OOM_SCORE: &CStr = c"900";
/// Signals that this program handles or ignores: the first three in Rust's runtime, the others in
/// `reaper` and `shutdown`, which listen before anything is started.
const HANDLED_SIGNALS: [c_int; 6] =
    [libc::SIGPIPE, libc::SIGSEGV, libc::SIGBUS, libc::SIGCHLD, libc::SIGTERM, libc::SIGINT];

/// The child's instructions, and where it reports why it failed.
struct Order {
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    directory: *const c_char,
    user: Option<(u32, u32)>,
    groups: *const libc::gid_t,
    group_count: usize,
    leads: Leads,
    standard: [RawFd; 3],
    errno: c_int,
}

/// Starts a program with the given standard input, output and error.
///
/// The child borrows the memory of this program until it executes the other one, as with
/// `posix_spawn` of the C library. That function looks up the handler of every signal in every
/// child where `clone3` is refused, as it is in a sandbox, and it can set neither a user nor a
/// terminal.
pub(crate) fn start(program: &Program, standard: [BorrowedFd<'_>; 3]) -> Result<Pid, NotStarted> {
    let arguments = pointers(&program.arguments);
    let environment = pointers(&program.environment);
    let mut order = Order {
        path: program.path.as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        directory: program.directory.as_ptr(),
        user: program.user,
        groups: program.groups.as_ptr(),
        group_count: program.groups.len(),
        leads: program.leads,
        standard: standard.map(|fd| fd.as_raw_fd()),
        errno: 0,
    };
    let mut stack = Vec::<u128>::with_capacity(CHILD_STACK_BYTES / size_of::<u128>());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let dumpable = rustix::process::dumpable_behavior().map_err(no_process)?;
    let blocked = BlockedSignals::block_handled().map_err(NotStarted::NoProcess)?;
    // SAFETY: CLONE_VFORK suspends this thread until the child has executed the program or ended,
    // so the order, everything it points to and the stack outlive the child's use of them. The
    // stack grows down from its end, which is aligned like a `u128`. No handler runs in the child,
    // because the signals that have one are blocked here until after.
    // Needed because the standard library can only start processes by `fork` or `posix_spawn`.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.capacity());
        libc::clone(run_child, top.cast(), flags, (&raw mut order).cast())
    };
    let error = io::Error::last_os_error();
    drop(blocked);
    let Some(pid) = (pid > 0).then(|| Pid::from_raw(pid)).flatten() else {
        return Err(NotStarted::NoProcess(error));
    };
    if program.user.is_some() {
        // For the kernel, the user of the shared memory has changed, so it made this program
        // undumpable.
        rustix::process::set_dumpable_behavior(dumpable).map_err(no_process)?;
    }
    match order.errno {
        0 => Ok(pid),
        errno => Err(NotStarted::Ended { pid, error: io::Error::from_raw_os_error(errno) }),
    }
}

fn no_process(error: rustix::io::Errno) -> NotStarted {
    NotStarted::NoProcess(error.into())
}

/// Returns the kernel's form of a list: pointers, followed by a null pointer.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Blocks the signals that this program handles until it is dropped.
///
/// It must not block the others. The kernel protects the first process of a namespace from signals
/// that it does not handle, but not from those that its main thread blocks while another thread
/// does not: what was just started could kill the whole instance.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn block_handled() -> io::Result<Self> {
        // SAFETY: both sets are plain memory of this function, which the first calls fill. The
        // calls change nothing but the signal mask of this thread.
        unsafe {
            let mut handled = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigemptyset(&raw mut handled);
            for signal in HANDLED_SIGNALS {
                libc::sigaddset(&raw mut handled, signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const handled, &raw mut before) {
                0 => Ok(Self(before)),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that `block` got from the kernel. The call can only fail if
        // its first argument is invalid.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// Runs in the child, which shares the memory of this program with threads that may hold any lock.
/// So it may only make system calls on data laid out before: no allocation, no panic.
extern "C" fn run_child(order: *mut c_void) -> c_int {
    // SAFETY: `start` passes an `Order` that outlives this call, and does not access it meanwhile.
    let order = unsafe { &mut *order.cast::<Order>() };
    // SAFETY: all pointers in the order come from C strings and lists that `start` holds.
    unsafe { become_program(order) };
    // Reached only on failure.
    order.errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    127
}

/// Executes the program. Returns only if something has failed; errno then says why.
unsafe fn become_program(order: &Order) -> Option<()> {
    // SAFETY: as stated by the caller. Users are changed by direct system calls, because the
    // functions of the C library would change all threads of this program.
    unsafe {
        for (number, fd) in (0..).zip(order.standard) {
            // None of the three descriptors has a number below three itself, because the standard
            // library opens those when the program starts.
            done(libc::dup2(fd, number).into())?;
        }
        // Before the user changes, because another one may not write to the file. If there is none,
        // the process runs all the same.
        let _ = raise_oom_score();
        if let Some((uid, gid)) = order.user {
            done(libc::syscall(libc::SYS_setgid, gid))?;
            if libc::getuid() == 0 {
                done(libc::syscall(libc::SYS_setgroups, order.group_count, order.groups))?;
            }
            done(libc::syscall(libc::SYS_setuid, uid))?;
        }
        done(libc::chdir(order.directory).into())?;
        match order.leads {
            Leads::Group => done(libc::setpgid(0, 0).into())?,
            Leads::Session => {
                done(libc::setsid().into())?;
                done(libc::ioctl(0, libc::TIOCSCTTY, 0).into())?;
            }
        }
        restore_signals()?;
        done(libc::execve(order.path, order.arguments, order.environment).into())
    }
}

/// Makes the kernel kill the process, and what that starts, before this program when memory runs
/// out: the instance ends with this program. Raising a score needs no right. Processes that share
/// memory share a score too, but not with a child that was made by vfork.
unsafe fn raise_oom_score() -> Option<()> {
    let path = c"/proc/self/oom_score_adj";
    // SAFETY: both are C strings, and the descriptor is the one that was just opened. Direct system
    // calls, because the functions of the C library would check this thread for cancellation.
    unsafe {
        let flags = libc::O_WRONLY | libc::O_CLOEXEC;
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
        done(file)?;
        let score = OOM_SCORE;
        let written = libc::syscall(libc::SYS_write, file, score.as_ptr(), score.count_bytes());
        libc::syscall(libc::SYS_close, file);
        done(written)
    }
}

/// Resets signals. An executed program inherits which signals are ignored and blocked. It does not
/// inherit handlers, but they must not run in the memory of this program once signals get through.
unsafe fn restore_signals() -> Option<()> {
    // SAFETY: the child has its own signal actions, and a zeroed action is the default one.
    unsafe {
        let usual: libc::sigaction = std::mem::zeroed();
        for signal in HANDLED_SIGNALS {
            done(libc::sigaction(signal, &raw const usual, std::ptr::null_mut()).into())?;
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        done(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()).into())
    }
}

/// Turns the result of a system call into an option; negative means failure.
fn done(result: c_long) -> Option<()> {
    (result >= 0).then_some(())
}

/// Which side of a fork this is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Forked {
    Parent { pid: i32 },
    Child,
}

/// Forks this process, which must not have other threads yet. `flags` are those of `clone`.
pub(crate) fn fork(flags: c_int) -> Result<Forked, Errno> {
    // SAFETY: without a stack of its own and without shared memory this is a fork: the child goes
    // on here with a copy of everything. There is one thread, so no lock is held that nobody would
    // release in the copy. Needed because the C library's fork makes no namespaces, and its clone
    // wants a stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0) };
    match i32::try_from(pid) {
        Ok(0) => Ok(Forked::Child),
        Ok(pid) if pid > 0 => Ok(Forked::Parent { pid }),
        _ => Err(last_error()),
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Closes what this program has inherited besides its standard descriptors. Call it before anything
/// else opens files.
pub(crate) fn close_inherited() -> Result<(), Errno> {
    // SAFETY: nothing of ours has opened a file yet, so nobody owns the numbers. Needed because no
    // safe function closes what it does not own.
    let result = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

/// Restores the default action of signals that this program has inherited as ignored, because all
/// that it starts would ignore them too: `nohup` ignores hangups, and shells that start a server in
/// the background ignore interrupts. Call it before anything handles signals.
pub(crate) fn restore_ignored_signals() {
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| *signal != libc::SIGPIPE) {
        // SAFETY: both actions are plain memory of this function, and a zeroed one is the default.
        // Signals that cannot be asked about (the C library's own) are left as they are. Rust's
        // runtime ignores `SIGPIPE` itself.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let asked = libc::sigaction(signal, std::ptr::null(), &raw mut action);
            if asked == 0 && action.sa_sigaction == libc::SIG_IGN {
                action = std::mem::zeroed();
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
    }
}

/// Makes the control groups that this process is in the topmost ones that it sees.
pub(crate) fn hide_groups_above() -> Result<(), Errno> {
    // SAFETY: this flag changes no descriptor and no memory of the process, which is why the call
    // counts as unsafe in general.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWCGROUP) }
}

/// Loads a filter of system calls for this process and all that it starts.
pub(crate) fn load_filter(instructions: &[(u16, u8, u8, u32)]) -> Result<(), Errno> {
    let code: Vec<_> = instructions
        .iter()
        .map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let len = u16::try_from(code.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog { len, filter: code.as_ptr().cast_mut() };
    // SAFETY: the kernel reads `len` instructions, which live through the call. Needed because no
    // crate wraps it.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

/// Numbers below this one are used for what a program is given.
const FREE: RawFd = 10;

/// Copies a descriptor to a number that [`execute`] does not use.
pub(crate) fn out_of_the_way(fd: impl std::os::fd::AsFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(fd, FREE)
}

/// Replaces this program by another one, which finds the given descriptors from number 3 on.
/// Returns only if that failed. Descriptors of this program below 10 are not its own any more then.
pub(crate) fn execute(
    program: &OwnedFd,
    given: [Option<OwnedFd>; 2],
    arguments: &[CString],
    environment: &[CString],
) -> Errno {
    let high = |fd: &OwnedFd| out_of_the_way(fd);
    let copies =
        [Some(program), given[0].as_ref(), given[1].as_ref()].map(|fd| fd.map(high).transpose());
    let [Ok(Some(program)), Ok(listener), Ok(config)] = copies else { return Errno::MFILE };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: all pointers lead to C strings and lists that live through the call, and the numbers
    // are free or overwritten, as said above. Needed because the standard library cannot execute a
    // file without a path.
    unsafe {
        for (number, fd) in (3..).zip([listener, config]) {
            match fd {
                Some(fd) => libc::dup2(fd.as_raw_fd(), number),
                None => libc::close(number),
            };
        }
        if restore_signals().is_some() {
            libc::syscall(
                libc::SYS_execveat,
                program.as_raw_fd(),
                c"".as_ptr(),
                arguments.as_ptr(),
                environment.as_ptr(),
                libc::AT_EMPTY_PATH,
            );
        }
    }
    last_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the signals that this thread blocks, a bit each.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    #[test]
    fn a_start_blocks_no_signal_that_the_kernel_keeps_away_by_itself() {
        let bits = HANDLED_SIGNALS.iter().fold(0, |bits, signal| bits | 1 << (signal - 1));
        let before = blocked();
        let guard = BlockedSignals::block_handled().unwrap();
        assert_eq!(blocked(), before | bits);
        drop(guard);
        assert_eq!(blocked(), before);
    }
}
