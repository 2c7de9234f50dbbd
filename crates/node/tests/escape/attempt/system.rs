//! System calls that reach for the machine. None of them would do harm if it succeeded.

use super::{Attempt, Outcome, refused};
use std::ffi::CStr;
use std::io;

fn call(number: libc::c_long, arguments: [usize; 5]) -> Outcome {
    let [a, b, c, d, e] = arguments;
    // SAFETY: every caller passes numbers, null, or pointers to data that lives through the call.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result.to_string()) }
}

fn text(text: &CStr) -> usize {
    text.as_ptr().addr_exposed()
}

trait Exposed {
    fn addr_exposed(self) -> usize;
}

impl<T> Exposed for *const T {
    fn addr_exposed(self) -> usize {
        self.expose_provenance()
    }
}

const HERE: usize = libc::AT_FDCWD as usize;
const NAMESPACES: [i32; 8] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWCGROUP,
    0x80, // CLONE_NEWTIME
];

fn first_that_works<T: Copy>(list: &[T], mut attempt: impl FnMut(T) -> Outcome) -> Outcome {
    list.iter().find_map(|item| attempt(*item).ok()).ok_or_else(refused)
}

fn clone_into(flags: i32) -> Outcome {
    let result = call(libc::SYS_clone, [(flags | libc::SIGCHLD) as usize, 0, 0, 0, 0])?;
    if result == "0" {
        std::process::exit(0);
    }
    Ok(result)
}

/// A filter that permits everything.
static LET_ALL: [libc::sock_filter; 1] =
    [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW }];

/// Returns the address of the kernel's description of a filter, which stays in memory.
fn filter(code: &'static [libc::sock_filter]) -> usize {
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_ptr().cast_mut() };
    std::ptr::from_ref(Box::leak(Box::new(program))).addr_exposed()
}

/// The kernel compiles the filters of sockets too, and the machine has little room for that.
fn filter_socket(option: i32) -> Outcome {
    let number: usize =
        socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?.parse().map_err(io::Error::other)?;
    let set = |option: i32, value, size| {
        let level = libc::SOL_SOCKET as usize;
        call(libc::SYS_setsockopt, [number, level, option as usize, value, size])
    };
    let on = 1_u32;
    set(libc::SO_REUSEPORT, (&raw const on).addr_exposed(), size_of_val(&on))?;
    set(option, filter(&LET_ALL), size_of::<libc::sock_fprog>())
}

/// Looks for a process of the machine or a neighbour that a signal would reach. Our own pids are 1
/// to 9.
fn find_others() -> Outcome {
    (10..70_000)
        // SAFETY: signal 0 only asks.
        .find(|pid| unsafe { libc::kill(*pid, 0) } == 0)
        .map(|pid| pid.to_string())
        .ok_or_else(refused)
}

pub(super) const CALLS: &[Attempt] = &[
    ("mount a tmpfs", || {
        call(libc::SYS_mount, [text(c"none"), text(c"/tmp"), text(c"tmpfs"), 0, 0])
    }),
    ("mount proc", || call(libc::SYS_mount, [text(c"proc"), text(c"/tmp"), text(c"proc"), 0, 0])),
    ("mount control groups", || {
        call(libc::SYS_mount, [text(c"x"), text(c"/tmp"), text(c"cgroup"), 0, 0])
    }),
    ("mount newer control groups", || {
        call(libc::SYS_mount, [text(c"x"), text(c"/tmp"), text(c"cgroup2"), 0, 0])
    }),
    ("bind", || call(libc::SYS_mount, [text(c"/"), text(c"/tmp"), 0, libc::MS_BIND as usize, 0])),
    ("make /proc/sys writable", || {
        call(
            libc::SYS_mount,
            [0, text(c"/proc/sys"), 0, (libc::MS_REMOUNT | libc::MS_BIND) as usize, 0],
        )
    }),
    ("uncover /proc/kcore", || {
        call(libc::SYS_umount2, [text(c"/proc/kcore"), libc::MNT_DETACH as usize, 0, 0, 0])
    }),
    ("open a file system", || call(libc::SYS_fsopen, [text(c"tmpfs"), 0, 0, 0, 0])),
    ("copy a mount", || call(libc::SYS_open_tree, [HERE, text(c"/"), 1, 0, 0])),
    ("move a mount", || call(libc::SYS_move_mount, [HERE, text(c"/proc"), HERE, text(c"/tmp"), 0])),
    ("change a mount", || {
        let attributes = [0_u64; 4];
        call(
            libc::SYS_mount_setattr,
            [HERE, text(c"/proc/sys"), 0, attributes.as_ptr().addr_exposed(), 32],
        )
    }),
    ("pivot", || call(libc::SYS_pivot_root, [text(c"/"), text(c"/tmp"), 0, 0, 0])),
    ("unshare", || {
        first_that_works(&NAMESPACES, |kind| call(libc::SYS_unshare, [kind as usize, 0, 0, 0, 0]))
    }),
    ("clone into namespaces", || first_that_works(&NAMESPACES[..7], clone_into)),
    ("clone3", || call(libc::SYS_clone3, [0, 0, 0, 0, 0])),
    ("enter a namespace", || {
        let namespace = std::fs::File::open("/proc/1/ns/mnt")?;
        call(libc::SYS_setns, [std::os::fd::AsRawFd::as_raw_fd(&namespace) as usize, 0, 0, 0, 0])
    }),
    ("load a module", || {
        let file = std::fs::File::open("/proc/self/exe")?;
        call(
            libc::SYS_finit_module,
            [std::os::fd::AsRawFd::as_raw_fd(&file) as usize, text(c""), 0, 0, 0],
        )
    }),
    ("load a module from memory", || call(libc::SYS_init_module, [text(c""), 0, text(c""), 0, 0])),
    ("unload a module", || call(libc::SYS_delete_module, [text(c"none"), 0, 0, 0, 0])),
    ("bpf", || call(libc::SYS_bpf, [0, 0, 0, 0, 0])),
    ("watch events", || {
        let attributes = [1_u32, 120, 0, 0];
        call(
            libc::SYS_perf_event_open,
            [attributes.as_ptr().addr_exposed(), 0, usize::MAX, usize::MAX, 0],
        )
    }),
    ("a filter of system calls", || call(libc::SYS_seccomp, [1, 0, filter(&LET_ALL), 0, 0])),
    ("an older filter of system calls", || {
        call(libc::SYS_prctl, [libc::PR_SET_SECCOMP as usize, 2, filter(&LET_ALL), 0, 0])
    }),
    ("a filter of packets", || filter_socket(libc::SO_ATTACH_FILTER)),
    ("a filter that chooses sockets", || filter_socket(libc::SO_ATTACH_REUSEPORT_CBPF)),
    ("userfaultfd", || call(libc::SYS_userfaultfd, [1, 0, 0, 0, 0])),
    ("io_uring", || {
        let parameters = [0_u64; 15];
        call(libc::SYS_io_uring_setup, [4, parameters.as_ptr().addr_exposed(), 0, 0, 0])
    }),
    ("keyctl", || call(libc::SYS_keyctl, [0, -4_isize as usize, 1, 0, 0])),
    ("add a key", || {
        call(libc::SYS_add_key, [text(c"user"), text(c"x"), text(c"x"), 1, -3_isize as usize])
    }),
    ("request a key", || call(libc::SYS_request_key, [text(c"user"), text(c"x"), 0, 0, 0])),
    ("open by handle", || {
        let handle = [8_u32, 1, 2, 0];
        call(libc::SYS_open_by_handle_at, [HERE, handle.as_ptr().addr_exposed(), 0, 0, 0])
    }),
    ("read the kernel's log", || call(libc::SYS_syslog, [10, 0, 0, 0, 0])),
    ("set the clock", || {
        let zone = [0_u32; 2];
        call(libc::SYS_settimeofday, [0, zone.as_ptr().addr_exposed(), 0, 0, 0])
    }),
    ("end accounting", || call(libc::SYS_acct, [0, 0, 0, 0, 0])),
    ("swap", || call(libc::SYS_swapoff, [text(c"/none"), 0, 0, 0, 0])),
    ("quotas", || call(libc::SYS_quotactl, [0, 0, 0, 0, 0])),
    ("hang up", || call(libc::SYS_vhangup, [0; 5])),
    ("switch the address layout", || call(libc::SYS_personality, [0x4_0000, 0, 0, 0, 0])),
    ("set the domain of the machine", || call(libc::SYS_setdomainname, [text(c"x"), 1, 0, 0, 0])),
    ("run first", || call(libc::SYS_setpriority, [0, 0, -10_isize as usize, 0, 0])),
    ("real time", || {
        let priority = 1_u32;
        call(libc::SYS_sched_setscheduler, [0, 1, (&raw const priority).addr_exposed(), 0, 0])
    }),
    ("more files", || {
        let limit = [1_u64 << 30; 2];
        call(
            libc::SYS_prlimit64,
            [0, libc::RLIMIT_NOFILE as usize, limit.as_ptr().addr_exposed(), 0, 0],
        )
    }),
    ("type into a terminal", || {
        let terminal = std::fs::File::options().read(true).write(true).open("/dev/ptmx")?;
        let number = std::os::fd::AsRawFd::as_raw_fd(&terminal) as usize;
        call(libc::SYS_ioctl, [number, libc::TIOCSTI as usize, text(c"x"), 0, 0])
    }),
    ("make a disk", || call(libc::SYS_mknodat, [HERE, text(c"/tmp/disk"), 0o60_666, 0x800, 0])),
    ("make the kernel's memory", || {
        call(libc::SYS_mknodat, [HERE, text(c"/tmp/mem"), 0o20_666, 0x101, 0])
    }),
    ("find others", find_others),
    ("trace others", || {
        first_that_works(&[10, 11, 100, 1000], |pid| call(libc::SYS_ptrace, [16, pid, 0, 0, 0]))
    }),
    ("the older calls", || call(0x4000_0000 | libc::SYS_getpid, [0; 5])),
];

fn socket(family: i32, kind: i32, protocol: i32) -> Outcome {
    call(libc::SYS_socket, [family as usize, kind as usize, protocol as usize, 0, 0])
}

/// Asks a part of the kernel over netlink, and fails unless it answers something other than an
/// error.
fn ask(protocol: i32, kind: u16, flags: u16, body: &[u8]) -> Outcome {
    let number: usize =
        socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?.parse().map_err(io::Error::other)?;
    let mut message = Vec::new();
    message.extend((16 + body.len() as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((flags | 5).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    call(libc::SYS_sendto, [number, message.as_ptr().addr_exposed(), message.len(), 0, 0])?;
    let mut answer = [0_u8; 4096];
    call(
        libc::SYS_recvfrom,
        [number, (&raw mut answer).cast_const().addr_exposed(), answer.len(), 0, 0],
    )?;
    let [_, _, _, _, kind_low, kind_high, ..] = answer;
    let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    let is_error = u16::from_ne_bytes([kind_low, kind_high]) == 2;
    if is_error && code != 0 {
        Err(io::Error::from_raw_os_error(-code))
    } else {
        Ok("an answer".into())
    }
}

pub(super) const SOCKETS: &[Attempt] = &[
    ("the hypervisor", || socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)),
    ("the kernel's ciphers", || socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)),
    ("frames", || socket(libc::AF_PACKET, libc::SOCK_RAW, 0x0300)),
    ("raw packets", || socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)),
    ("rare families", || {
        let common = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
        let rare: Vec<i32> = (0..64).filter(|family| !common.contains(family)).collect();
        let kinds = [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET];
        first_that_works(&rare, |family| first_that_works(&kinds, |kind| socket(family, kind, 0)))
    }),
    ("read firewall rules", || ask(libc::NETLINK_NETFILTER, 10 << 8 | 1, 0x300, &[0; 4])),
    ("flush firewall rules", || ask(libc::NETLINK_NETFILTER, 10 << 8 | 2, 0, &[0; 4])),
    ("take an interface down", || {
        let mut body = [0_u8; 16];
        body[4] = 2;
        body[12] = 1;
        ask(libc::NETLINK_ROUTE, libc::RTM_NEWLINK, 0, &body)
    }),
    ("the machine's audit", || ask(libc::NETLINK_AUDIT, 1000, 0, &[])),
    ("a netlink of programs", || {
        socket(libc::AF_NETLINK, libc::SOCK_DGRAM, libc::NETLINK_USERSOCK)
    }),
    ("the machine's devices", || {
        let number: usize = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_KOBJECT_UEVENT)?
            .parse()
            .map_err(io::Error::other)?;
        // Device rules react to messages that seem to come from the kernel.
        let message = b"add@/x\0ACTION=add\0";
        let address = [libc::AF_NETLINK as u32, 0, 1];
        // SAFETY: the message and the address live through the call, and have the sizes that are
        // passed.
        let sent = unsafe {
            libc::sendto(
                number as i32,
                message.as_ptr().cast(),
                message.len(),
                0,
                address.as_ptr().cast(),
                12,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok("sent an event".into()) }
    }),
];

/// Takes a context for asynchronous file I/O.
pub(super) fn asynchronous_io() -> Outcome {
    let mut context = 0_u64;
    call(libc::SYS_io_setup, [128, (&raw mut context).cast_const().addr_exposed(), 0, 0, 0])
}

/// Takes an inotify instance, of which the kernel allows each user a limited number.
pub(super) fn watch() -> io::Result<std::os::fd::OwnedFd> {
    // SAFETY: a call without memory; the descriptor is new and ours.
    unsafe {
        let number = libc::inotify_init1(0);
        if number < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(std::os::fd::FromRawFd::from_raw_fd(number))
        }
    }
}
