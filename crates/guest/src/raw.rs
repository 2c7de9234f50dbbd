//! The only unsafe code of this program: descriptors that are known by number, descriptors that the
//! runtime watches, and the start of processes.
#![expect(unsafe_code, reason = "none of the three has a safe form")]

use libc::{c_char, c_int, c_long, c_void};
use rustix::process::Pid;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use tokio::io::unix::AsyncFd;

/// Has the runtime tell when a descriptor can be read or written.
pub(crate) fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: what is asked for is a descriptor that stays open and the same as long as it is
    // registered. An `OwnedFd` is both until it is dropped, and the answer owns it.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Descriptors that whoever starts this program may hand over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HandedOver {
    Listener,
    Settings,
    /// From the program that this one takes the place of.
    State,
}

impl HandedOver {
    pub(crate) const ALL: [Self; 3] = [Self::Listener, Self::Settings, Self::State];

    /// The variable that tells that the descriptor is there.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Listener => "HOLM_GUEST_FD",
            Self::Settings => "HOLM_GUEST_CONFIG_FD",
            Self::State => "HOLM_GUEST_STATE_FD",
        }
    }

    /// Takes the descriptor if the environment says that it was handed over, and keeps it from the
    /// children. To be called once for each, before anything else opens files.
    pub(crate) fn take(self) -> Option<OwnedFd> {
        let number = std::env::var(self.variable())
            .ok()?
            .parse()
            .ok()
            .filter(|number| *number > libc::STDERR_FILENO)?;
        // The variable is a promise of the starter that this number is open and meant for us, and
        // nothing of ours has opened a file yet.
        adopt(number).ok()
    }
}

/// Takes over a descriptor that came through the start of this program, and keeps it from the
/// children. The number must be one that was handed over for this, and is to be taken once.
pub(crate) fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the callers are the start of this program and nothing else: each number is named once
    // by whoever started it, before anything here could have opened a file under it. A number that
    // is not open gives an error of the kernel, and is let go of without being closed.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    match rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC) {
        Ok(()) => Ok(fd),
        Err(error) => {
            let _ = fd.into_raw_fd();
            Err(error.into())
        }
    }
}

/// A program to start, laid out as the kernel takes it.
pub(crate) struct Program {
    pub(crate) path: CString,
    /// With what the program is called as the first.
    pub(crate) arguments: Vec<CString>,
    /// Names and values with `=` between them.
    pub(crate) environment: Vec<CString>,
    pub(crate) directory: CString,
    /// The numbers of the user and the group that it runs as, if not as this program.
    pub(crate) user: Option<(u32, u32)>,
    pub(crate) leads: Leads,
}

/// What a new process is the first of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leads {
    /// A process group, so that a signal reaches all that it starts.
    Group,
    /// A session, with its standard input as the terminal of that session.
    Session,
}

/// Why no program was started.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// There is no new process.
    NoProcess(io::Error),
    /// There is one, which has ended and has to be waited for.
    Ended { pid: Pid, error: io::Error },
}

/// The child only makes a few system calls on it.
const CHILD_STACK_BYTES: usize = 32 << 10;
/// Signals for which this program has a handler, or which it ignores: the runtime of the language
/// has the first three, and `reaper` and `shutdown` listen for the others.
const HANDLED_SIGNALS: [c_int; 6] =
    [libc::SIGPIPE, libc::SIGSEGV, libc::SIGBUS, libc::SIGCHLD, libc::SIGTERM, libc::SIGINT];

/// What the child needs to know, and where it says why it failed.
struct Order {
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    directory: *const c_char,
    user: Option<(u32, u32)>,
    leads: Leads,
    standard: [RawFd; 3],
    errno: c_int,
}

/// Starts a program with these as its standard input, output and error.
///
/// The child borrows the memory of this program until it executes the other one, as with the
/// `posix_spawn` of the C library. That one asks for the handler of every signal in every child
/// where `clone3` is refused, as it is in a sandbox, and cannot set a user or a terminal.
pub(crate) fn start(program: &Program, standard: [BorrowedFd<'_>; 3]) -> Result<Pid, NotStarted> {
    let arguments = pointers(&program.arguments);
    let environment = pointers(&program.environment);
    let mut order = Order {
        path: program.path.as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        directory: program.directory.as_ptr(),
        user: program.user,
        leads: program.leads,
        standard: standard.map(|fd| fd.as_raw_fd()),
        errno: 0,
    };
    let mut stack = Vec::<u128>::with_capacity(CHILD_STACK_BYTES / size_of::<u128>());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let dumpable = rustix::process::dumpable_behavior().map_err(no_process)?;
    let blocked = BlockedSignals::block().map_err(NotStarted::NoProcess)?;
    // SAFETY: CLONE_VFORK holds this thread until the child has executed the program or ended, so
    // the order, all that it points to and the stack outlive the child's use of them. The stack
    // grows down from its end, which is as aligned as a `u128`. No handler runs in the child, as
    // all signals are blocked here until after.
    // Needed: the standard library starts processes by `fork` or `posix_spawn` only.
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
        // For the kernel the whole memory has changed its user, and hides from everybody.
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

/// The form in which the kernel takes lists: pointers, with a null behind the last.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// All signals are held back until this is dropped.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn block() -> io::Result<Self> {
        // SAFETY: both sets are plain memory of this function, which the first call fills. The
        // calls change nothing but the mask of this thread.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) {
                0 => Ok(Self(before)),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that `block` got from the kernel. The call can only fail for
        // a first argument that does not exist.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// What the child does. It runs in the memory of this program, beside threads that may hold any
/// lock, so there is one rule: system calls on what was laid out before. No allocation, no panic.
extern "C" fn run_child(order: *mut c_void) -> c_int {
    // SAFETY: `start` passes an `Order` that outlives this, and does not look at it meanwhile.
    let order = unsafe { &mut *order.cast::<Order>() };
    // SAFETY: all pointers of the order come from C strings and lists that `start` holds.
    unsafe { become_program(order) };
    // Only a failure leads here.
    order.errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    127
}

/// Answers only when something has failed; then errno says why.
unsafe fn become_program(order: &Order) -> Option<()> {
    // SAFETY: as said by the caller. The calls that change users are those of the kernel, since
    // those of the C library would have the threads of this program follow.
    unsafe {
        for (number, fd) in (0..).zip(order.standard) {
            // None of the three has a number below three itself, as the standard library opens
            // those when the program starts.
            done(libc::dup2(fd, number).into())?;
        }
        if let Some((uid, gid)) = order.user {
            done(libc::syscall(libc::SYS_setgid, gid))?;
            if libc::getuid() == 0 {
                let none = std::ptr::null::<libc::gid_t>();
                done(libc::syscall(libc::SYS_setgroups, 0_usize, none))?;
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

/// A program that is executed inherits what is ignored and what is blocked. Handlers it does not,
/// but they must not run in the memory of this program once signals get through.
unsafe fn restore_signals() -> Option<()> {
    // SAFETY: the actions of the child are its own, and a zeroed action is the default one.
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

/// Negative is a failure.
fn done(result: c_long) -> Option<()> {
    (result >= 0).then_some(())
}
