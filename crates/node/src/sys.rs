//! System calls that rustix does not wrap, or wraps as unsafe. All other modules reach the kernel
//! through safe functions.

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io;
use rustix::ioctl::opcode;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};
use std::ffi::c_void;
use std::time::{Duration, Instant};

/// The stack size of a process that makes only a few system calls before it ends or becomes another
/// program. An optimised build needs 2 KiB, and others far more.
pub(crate) const STACK_BYTES: usize = if cfg!(debug_assertions) { 256 << 10 } else { 32 << 10 };

/// How long a mount may have writers although this process has no file open on it any more: a
/// process that another thread has just started has copies of all open descriptors until exec.
const WRITERS_TIMEOUT: Duration = Duration::from_secs(2);
const WRITERS_PAUSE: Duration = Duration::from_millis(1);

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(last_error()) } else { Ok(result) }
}

pub(crate) fn last_error() -> io::Errno {
    io::Errno::from_raw_os_error(last_errno())
}

/// Returns this thread's error number. Usable between clone and exec.
pub(crate) fn last_errno() -> i32 {
    // SAFETY: the C library promises a valid pointer to an integer of this thread. Needed: std
    // wraps it in a larger type.
    unsafe { *libc::__errno_location() }
}

/// Shifts the owners on a detached mount as `users` maps them, for reading and writing. Set-user-ID
/// bits and device files on it have no effect.
pub(crate) fn share_owners(mount: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    let set = libc::MOUNT_ATTR_IDMAP | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    set_attributes(mount, set, Some(users))
}

/// Makes a detached mount read-only and without devices, its owners shifted as `users` maps them.
pub(crate) fn shift_owners(mount: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    let set = libc::MOUNT_ATTR_IDMAP | libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV;
    set_attributes(mount, set, Some(users))
}

fn set_attributes(
    mount: BorrowedFd<'_>,
    set: u64,
    users: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        // A clone of a mount stays its peer: where the machine's own mounts are shared, as systemd
        // makes them, whatever is mounted on the clone would show up in the original as well.
        propagation: libc::MS_PRIVATE,
        userns_fd: users.map_or(0, |users| u64::from(users.as_raw_fd().unsigned_abs())),
    };
    let deadline = Instant::now() + WRITERS_TIMEOUT;
    loop {
        // SAFETY: the path is an empty C string and `attributes` lives through the call, with its own
        // size. Needed: rustix has no mount_setattr.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                mount.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                &raw const attributes,
                size_of::<libc::mount_attr>(),
            )
        };
        match check(result) {
            Err(io::Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(WRITERS_PAUSE),
            done => return done.map(drop),
        }
    }
}

/// Forbids writing through a mount that is attached nowhere yet.
pub(crate) fn make_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    set_attributes(mount, libc::MOUNT_ATTR_RDONLY, None)
}

/// The kernel's number of the call that sets the signal for broken leases.
const F_SETSIG: libc::c_int = 10;

/// Returns true if anybody has a file open for writing, or mapped so, or if the kernel does not
/// say.
pub(crate) fn may_be_written(file: BorrowedFd<'_>) -> bool {
    let file = file.as_raw_fd();
    // SAFETY: calls without memory. Needed: rustix has no leases. The lease is given back at once;
    // whoever opens the file in between has the kernel send a signal that does nothing by default,
    // and not the one that ends a process.
    unsafe {
        if libc::fcntl(file, F_SETSIG, libc::SIGURG) < 0
            || libc::fcntl(file, libc::F_SETLEASE, libc::F_RDLCK) < 0
        {
            return true;
        }
        libc::fcntl(file, libc::F_SETLEASE, libc::F_UNLCK);
    }
    false
}

const LOOP_CTL_GET_FREE: libc::Ioctl = opcode::none(b'L', 0x82) as libc::Ioctl;
const LOOP_CONFIGURE: libc::Ioctl = opcode::none(b'L', 0x0A) as libc::Ioctl;
const LOOP_SET_CAPACITY: libc::Ioctl = opcode::none(b'L', 0x07) as libc::Ioctl;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// The kernel's `struct loop_config`. Zero stands for the default.
#[repr(C)]
#[derive(Default)]
struct LoopConfiguration {
    file: u32,
    block_bytes: u32,
    places: [u64; 5],
    numbers: [u32; 3],
    flags: u32,
    texts: [[u8; 32]; 5],
    reserved: [u64; 10],
}

const _: () = assert!(size_of::<LoopConfiguration>() == 304);

/// Returns the number of a loop device that nobody uses. Makes one if there is none.
pub(crate) fn free_loop(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: a call without memory. Needed: no crate wraps it.
    let number = check(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) }.into())?;
    u32::try_from(number).map_err(|_| io::Errno::RANGE)
}

/// Sets up a loop device for a file, until nobody uses it any more. `direct` bypasses the cache of
/// the file's own file system, if that can with sectors of `block_bytes`; zero means whatever size
/// it can.
pub(crate) fn begin_loop(
    device: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    direct: bool,
    block_bytes: u32,
) -> io::Result<()> {
    let file = file.as_raw_fd().unsigned_abs();
    let flags = LO_FLAGS_AUTOCLEAR | if direct { LO_FLAGS_DIRECT_IO } else { 0 };
    let configuration =
        LoopConfiguration { file, block_bytes, flags, ..LoopConfiguration::default() };
    // SAFETY: the call reads a structure of this size (304 bytes), which lives through it. Needed:
    // no crate wraps it.
    check(
        unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const configuration) }.into(),
    )
    .map(drop)
}

/// Makes a loop device notice the current size of its file.
pub(crate) fn see_loop_size(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a call without memory. Needed: no crate wraps it.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_CAPACITY, 0) }.into()).map(drop)
}

const LOOP_GET_STATUS64: libc::Ioctl = opcode::none(b'L', 0x05) as libc::Ioctl;

/// The kernel's `struct loop_info64`.
#[repr(C)]
#[derive(Default)]
struct LoopStatus {
    device: u64,
    inode: u64,
    places: [u64; 3],
    numbers: [u32; 4],
    texts: [[u8; 32]; 5],
    reserved: [u64; 2],
}

const _: () = assert!(size_of::<LoopStatus>() == 232);

/// Returns the file of a loop device, as file system and inode, because a name says nothing about a
/// file on a detached mount. `None` if the device has no file.
pub(crate) fn loop_file(device: BorrowedFd<'_>) -> io::Result<Option<(u64, u64)>> {
    let mut status = LoopStatus::default();
    // SAFETY: the call writes a structure of this size (232 bytes), which lives through it. Needed:
    // no crate wraps it.
    let told = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut status) };
    match check(told.into()) {
        Ok(_) => Ok(Some((status.device, status.inode))),
        Err(io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

const EXT4_IOC_RESIZE_FS: libc::Ioctl = opcode::write::<u64>(b'f', 16) as libc::Ioctl;
const XFS_IOC_FSGROWFSDATA: libc::Ioctl = opcode::write::<XfsGrowth>(b'X', 110) as libc::Ioctl;
const XFS_IOC_FSGEOMETRY_V1: libc::Ioctl = opcode::read::<XfsGeometry>(b'X', 100) as libc::Ioctl;

#[repr(C)]
struct XfsGrowth {
    blocks: u64,
    inodes_percent: u32,
}

/// The kernel's `struct xfs_fsop_geom_v1`, which has stayed the same since its first version.
#[repr(C)]
#[derive(Default)]
struct XfsGeometry {
    numbers: [u32; 8],
    data_blocks: u64,
    places: [u64; 3],
    uuid: [u8; 16],
    rest: [u32; 7],
}

const _: () = assert!(size_of::<XfsGrowth>() == 16 && size_of::<XfsGeometry>() == 112);

/// Grows a mounted ext4.
pub(crate) fn grow_ext4(mount: BorrowedFd<'_>, blocks: u64) -> io::Result<()> {
    // SAFETY: the call reads one number, which lives through it. Needed: no crate wraps it.
    let grown = unsafe { libc::ioctl(mount.as_raw_fd(), EXT4_IOC_RESIZE_FS, &raw const blocks) };
    check(grown.into()).map(drop)
}

/// Grows a mounted XFS.
pub(crate) fn grow_xfs(mount: BorrowedFd<'_>, blocks: u64, inodes_percent: u32) -> io::Result<()> {
    let growth = XfsGrowth { blocks, inodes_percent };
    // SAFETY: the call reads a structure of this size (16 bytes), which lives through it. Needed:
    // no crate wraps it.
    let grown = unsafe { libc::ioctl(mount.as_raw_fd(), XFS_IOC_FSGROWFSDATA, &raw const growth) };
    check(grown.into()).map(drop)
}

/// Linux's call for the label of a file system.
const FS_IOC_SETFSLABEL: libc::Ioctl = opcode::write::<[u8; 256]>(0x94, 50) as libc::Ioctl;

/// Makes a mounted XFS write its superblock where its next mount reads it first, and not only to
/// its journal. Setting the label, which is empty here, does that at once.
pub(crate) fn write_xfs_superblock(mount: BorrowedFd<'_>) -> io::Result<()> {
    let label = [0_u8; 256];
    // SAFETY: the call reads 256 bytes, which live through it. Needed: no crate wraps it.
    let set = unsafe { libc::ioctl(mount.as_raw_fd(), FS_IOC_SETFSLABEL, label.as_ptr()) };
    check(set.into()).map(drop)
}

/// Returns the number of blocks of a mounted XFS.
pub(crate) fn xfs_blocks(mount: BorrowedFd<'_>) -> io::Result<u64> {
    let mut geometry = XfsGeometry::default();
    // SAFETY: the number of the call says how large the structure is, so nothing is written outside
    // it. Needed: no crate wraps it.
    let told = unsafe { libc::ioctl(mount.as_raw_fd(), XFS_IOC_FSGEOMETRY_V1, &raw mut geometry) };
    check(told.into()).map(|_| geometry.data_blocks)
}

/// Gives the calling thread a network namespace of its own.
pub(crate) fn leave_network() -> io::Result<()> {
    // SAFETY: a new network namespace changes no memory and no descriptor table of this process.
    // Needed: rustix marks all of unshare unsafe because of CLONE_FILES, which is not used here.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
}

/// Gives the calling thread, which must end soon, a mount namespace of its own. What is mounted
/// there is visible nowhere else, and is gone when the thread ends.
pub(crate) fn leave_mounts() -> io::Result<()> {
    // SAFETY: a new mount namespace changes no memory and no descriptor table of this process.
    // Needed: rustix marks all of unshare unsafe because of CLONE_FILES, which is not used here.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

/// Moves the calling thread, which must end soon, into the mount namespace of a process, at its
/// root.
pub(crate) fn enter_mounts(process: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a root and a working folder of its own change no memory and no descriptor table of this
    // process. Needed: as above.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }?;
    move_into_thread_name_spaces(process, ThreadNameSpaceType::MOUNT)
}

/// Makes the calling thread, which must end soon, act as another user and group, with all its
/// capabilities, so that what it makes belongs to them.
pub(crate) fn act_as(user: u32) -> io::Result<()> {
    // SAFETY: a call without memory. Needed: the C library would change all threads of the process.
    check(unsafe { libc::syscall(libc::SYS_setresgid, SAME, user, SAME) })?;
    std::mem::forget(ActingAs::user(user)?);
    Ok(())
}

/// What the kernel still knows of a process that was reaped by another one.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

const _: () = assert!(size_of::<PidfdInfo>() == 64);

const PIDFD_INFO_EXIT: u64 = 1 << 3;
/// The number of the call with the first published size of the structure, which every kernel
/// accepts.
const PIDFD_GET_INFO: libc::Ioctl = opcode::read_write::<PidfdInfo>(0xFF, 11) as libc::Ioctl;

/// Returns the wait status of a process that was reaped by another one, if this kernel (6.15 or
/// newer) keeps it.
pub(crate) fn status_after_reaping(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the number of the call says how large the structure is (64 bytes), so nothing is
    // written outside it. Needed: no crate wraps this call.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
    (result == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// Waits for a child of this process to end, and returns its exit code if it exited by itself.
pub(crate) fn reap(pid: Pid) -> Option<i32> {
    loop {
        match waitpid(Some(pid), WaitOptions::empty()) {
            Err(io::Errno::INTR) => {}
            ended => return ended.ok().flatten()?.1.exit_status(),
        }
    }
}

/// A process in a user namespace of its own, which lives until the namespace has been opened.
pub(crate) struct Sleeper {
    pub(crate) pid: Pid,
    stack: Vec<u8>,
}

impl Sleeper {
    /// Starts the process. It shares this process's memory and descriptors, so its cost does not
    /// grow with either.
    ///
    /// For some limits (watches, queues, locked memory, namespaces) the kernel counts what a user
    /// namespace uses against the user who made it, too. So `owner` makes it: instances that all
    /// belonged to root could starve each other and root.
    pub(crate) fn start(owner: u32) -> io::Result<Self> {
        let _blocked = SignalsBlocked::new();
        let _owner = ActingAs::user(owner)?;
        let mut stack = vec![0_u8; STACK_BYTES];
        let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_NEWUSER | libc::SIGCHLD;
        let parent = std::ptr::without_provenance_mut(
            rustix::process::getpid().as_raw_nonzero().get().unsigned_abs() as usize,
        );
        // SAFETY: the stack belongs to the returned value, which waits for the process before it
        // frees it. The process touches none of the descriptors that it shares. Needed: user namespaces are made by processes, and std cannot start one without
        // exec.
        let pid = unsafe { libc::clone(sleep, stack_top(&mut stack), flags, parent) };
        let pid = Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(last_error)?;
        Ok(Self { pid, stack })
    }
}

/// Makes the calling thread act as another user, with all its capabilities, until dropped. The
/// other threads are not affected.
struct ActingAs {
    security_bits: libc::c_int,
}

/// Keeps capabilities when the user changes.
const RIGHTS_STAY: libc::c_int = libc::SECBIT_NO_SETUID_FIXUP;
const SAME: u32 = u32::MAX;

impl ActingAs {
    fn user(uid: u32) -> io::Result<Self> {
        // SAFETY: calls without memory. Needed: the C library would change all threads of the
        // process.
        unsafe {
            let bits = check(libc::syscall(libc::SYS_prctl, libc::PR_GET_SECUREBITS, 0, 0, 0, 0))?;
            let security_bits = libc::c_int::try_from(bits).map_err(|_| io::Errno::RANGE)?;
            let acting = Self { security_bits };
            let bits = acting.security_bits | RIGHTS_STAY;
            check(libc::syscall(libc::SYS_prctl, libc::PR_SET_SECUREBITS, bits, 0, 0, 0))?;
            check(libc::syscall(libc::SYS_setresuid, SAME, uid, SAME))?;
            Ok(acting)
        }
    }
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        // SAFETY: as above. The real user never changed, so both calls are always allowed.
        unsafe {
            let real = libc::syscall(libc::SYS_getuid);
            libc::syscall(libc::SYS_setresuid, SAME, real, SAME);
            libc::syscall(libc::SYS_prctl, libc::PR_SET_SECUREBITS, self.security_bits, 0, 0, 0);
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::KILL);
        // The stack may only be freed after the process has ended.
        reap(self.pid);
        self.stack.clear();
    }
}

/// Ends with the thread that started it, so that a killed node leaves no process behind, and after
/// a few seconds in any case.
extern "C" fn sleep(parent: *mut c_void) -> i32 {
    let limit = libc::timespec { tv_sec: 5, tv_nsec: 0 };
    let (none, size) = (std::ptr::null::<c_void>(), 8_usize);
    // SAFETY: raw system calls on local data; no allocation and no lock, which other threads of
    // this memory may hold. Needed: the memory is shared, so nothing of std may run here.
    unsafe {
        libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::syscall(libc::SYS_getppid).unsigned_abs() == parent.addr() as u64 {
            libc::syscall(libc::SYS_ppoll, none, 0_usize, &raw const limit, none, size);
        }
    }
    0
}

/// Returns the upper end of a stack, aligned as the calling convention requires.
pub(crate) fn stack_top(stack: &mut [u8]) -> *mut c_void {
    let end = stack.as_mut_ptr_range().end;
    end.wrapping_sub(end.addr() % 16).cast()
}

/// Blocks all signals of the calling thread until dropped, so that no handler runs in a child that
/// shares memory.
pub(crate) struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    pub(crate) fn new() -> Self {
        // SAFETY: both sets are plain data that the calls fill; a zeroed set is valid.
        // Needed: rustix keeps signal masks out of its public interface.
        unsafe {
            let mut all = std::mem::zeroed::<libc::sigset_t>();
            let mut before = std::mem::zeroed::<libc::sigset_t>();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by `new`. Needed: as above.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

const TUNSETIFF: libc::Ioctl = opcode::write::<libc::c_int>(b'T', 202) as libc::Ioctl;
const TUNSETOWNER: libc::Ioctl = opcode::write::<libc::c_int>(b'T', 204) as libc::Ioctl;
const IFF_TUN: i16 = 1;
const IFF_NO_PI: i16 = 0x1000;

/// Turns a file of `/dev/net/tun` into an interface of the network in which the file was opened.
/// The interface is removed with the file. Only the machine's root may attach to it.
pub(crate) fn make_tun(file: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    // SAFETY: a zeroed request is valid: a name without characters, and numbers.
    let mut request = unsafe { std::mem::zeroed::<libc::ifreq>() };
    let last = request.ifr_name.len() - 1;
    if name.len() > last {
        return Err(io::Errno::INVAL);
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI;
    // SAFETY: the kernel reads and writes no more than the request. Needed: rustix has no such call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) }.into())?;
    // SAFETY: this takes a plain number. Needed: as above.
    check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOWNER, 0) }.into()).map(drop)
}

/// Sets the mark of all packets that a socket sends (`SO_MARK`).
pub(crate) fn mark(socket: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    // SAFETY: the kernel reads the four bytes of `mark`. Needed: rustix has no such option.
    let set = unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_MARK);
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const mark).cast(), 4)
    };
    check(set.into()).map(drop)
}
