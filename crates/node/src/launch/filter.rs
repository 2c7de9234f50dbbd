//! The seccomp filter, made once when the node opens.
//!
//! When a filter is loaded, the kernel runs it for every known call number, so its cost grows with
//! its length. A list of 300 comparisons takes a millisecond at every start, a decision tree over
//! ranges a tenth of that.

use super::calls;
use crate::number::fit;
use libc::{BPF_ABS, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W};
use libc::{c_long, sock_filter};

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
/// What a kernel without the call returns, so that libraries fall back to an older one.
const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
/// What a kernel returns that was built without filters of calls, without filters of sockets and
/// without a protocol of netlink. Programs go on without these; many end at other errors.
pub(crate) const NO_FILTERS: i32 = libc::EINVAL;
pub(crate) const NO_OPTION: i32 = libc::ENOPROTOOPT;
pub(crate) const NO_PROTOCOL: i32 = libc::EPROTONOSUPPORT;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
/// Set in the numbers of x32, a second set of calls on x86_64.
const X32: u32 = 0x4000_0000;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCHITECTURE: u32 = 4;
/// Offsets of the lower halves of the arguments; both architectures are little-endian.
const OFFSET_FIRST: u32 = 16;
const OFFSET_SECOND: u32 = 24;
const OFFSET_THIRD: u32 = 32;

pub(crate) const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP)
    .unsigned_abs();

/// The permitted socket families, besides netlink. The others are the least tested parts of the
/// kernel.
pub(crate) const FAMILIES: [u32; 3] =
    [libc::AF_UNIX.unsigned_abs(), libc::AF_INET.unsigned_abs(), libc::AF_INET6.unsigned_abs()];

pub(crate) const NETLINK: u32 = libc::AF_NETLINK.unsigned_abs();

/// The permitted protocols of netlink, which `ip`, `ss` and `udevadm` need. Through others, such as
/// `NETLINK_USERSOCK`, programs fill each other's sockets, and no control group counts that memory.
pub(crate) const NETLINK_PROTOCOLS: [u32; 3] = [
    libc::NETLINK_ROUTE.unsigned_abs(),
    libc::NETLINK_SOCK_DIAG.unsigned_abs(),
    libc::NETLINK_KOBJECT_UEVENT.unsigned_abs(),
];

pub(crate) const SOCKET_LEVEL: u32 = libc::SOL_SOCKET.unsigned_abs();

/// Refused, because the kernel compiles these filters, and the whole machine has a budget for that
/// (`net.core.bpf_jit_limit`). One instance could use it up, and then no other can start, because
/// its own filter cannot be loaded. Other options that attach filters need the call `bpf`.
pub(crate) const REFUSED_SOCKET_OPTIONS: [u32; 2] =
    [libc::SO_ATTACH_FILTER.unsigned_abs(), libc::SO_ATTACH_REUSEPORT_CBPF.unsigned_abs()];

/// Refused of `prctl` for the same reason. The newer call for it, `seccomp`, is missing.
pub(crate) const REFUSED_PROCESS_OPTION: u32 = libc::PR_SET_SECCOMP.unsigned_abs();

/// Refused, because they type into somebody's terminal.
#[expect(clippy::cast_possible_truncation, reason = "the numbers of these calls have 16 bits")]
pub(crate) const REFUSED_CONTROLS: [u32; 2] = [libc::TIOCSTI as u32, libc::TIOCLINUX as u32];

/// Permitted, because they only change what is reported, such as the kernel's name.
pub(crate) const PERSONALITIES: [u32; 5] = [0, 0x8, 0x2_0000, 0x2_0008, u32::MAX];

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Always(u32),
    /// `clone`: permitted without new namespaces.
    Clone,
    /// `socket`: permitted for the families and protocols that ordinary programs use.
    Socket,
    /// `setsockopt`: permitted except for options that attach filters.
    SocketOption,
    /// `prctl`: permitted except for loading a filter of system calls.
    ProcessOption,
    /// `ioctl`: permitted with a few exceptions.
    Ioctl,
    /// `personality`: permitted for a few values.
    Personality,
}

/// All calls from `start` up to the start of the next range have this verdict.
#[derive(Debug, Clone, Copy)]
struct Range {
    start: u32,
    verdict: Verdict,
}

/// The finished filter program.
pub(crate) struct Filter {
    code: Vec<sock_filter>,
}

impl Filter {
    pub(crate) fn new() -> Self {
        let mut code = vec![
            load(OFFSET_ARCHITECTURE),
            jump(BPF_JEQ, ARCHITECTURE, 1, 0),
            finish(KILL),
            load(OFFSET_NUMBER),
            jump(BPF_JSET, X32, 0, 1),
            finish(REFUSE),
        ];
        code.extend(tree(&ranges()));
        Self { code }
    }

    /// Returns the kernel's instructions: code, jump if true, jump if false, operand.
    pub(super) fn instructions(&self) -> Vec<(u16, u8, u8, u32)> {
        self.code.iter().map(|one| (one.code, one.jt, one.jf, one.k)).collect()
    }
}

fn number(call: c_long) -> u32 {
    fit(call)
}

fn verdict(call: u32) -> Verdict {
    let newest = calls::permitted().map(|call| number(call.number)).max().unwrap_or(0);
    match c_long::from(call) {
        libc::SYS_clone => Verdict::Clone,
        libc::SYS_socket => Verdict::Socket,
        libc::SYS_setsockopt => Verdict::SocketOption,
        libc::SYS_prctl => Verdict::ProcessOption,
        libc::SYS_ioctl => Verdict::Ioctl,
        libc::SYS_personality => Verdict::Personality,
        known if calls::MISSING.iter().any(|call| call.number == known) => Verdict::Always(UNKNOWN),
        known if calls::permitted().any(|call| call.number == known) => Verdict::Always(ALLOW),
        _ if call > newest => Verdict::Always(UNKNOWN),
        _ => Verdict::Always(REFUSE),
    }
}

fn ranges() -> Vec<Range> {
    const END: u32 = 1024;
    let mut ranges: Vec<Range> = Vec::new();
    for call in 0..END {
        let verdict = verdict(call);
        if ranges.last().is_none_or(|last| last.verdict != verdict) {
            ranges.push(Range { start: call, verdict });
        }
    }
    ranges
}

/// Builds a binary decision tree over the ranges.
fn tree(ranges: &[Range]) -> Vec<sock_filter> {
    match ranges {
        [] => vec![finish(REFUSE)],
        [only] => leaf(only.verdict),
        _ => {
            let (lower, upper) = ranges.split_at(ranges.len() / 2);
            let start = upper.first().map_or(0, |range| range.start);
            let (lower, upper) = (tree(lower), tree(upper));
            let mut code = match u8::try_from(lower.len()) {
                Ok(distance) => vec![jump(BPF_JGE, start, distance, 0)],
                // A conditional jump reaches at most 255 instructions; further ones need an
                // unconditional jump.
                Err(_) => vec![jump(BPF_JGE, start, 0, 1), skip(lower.len())],
            };
            code.extend(lower);
            code.extend(upper);
            code
        }
    }
}

fn leaf(verdict: Verdict) -> Vec<sock_filter> {
    match verdict {
        Verdict::Always(action) => vec![finish(action)],
        Verdict::Clone => {
            vec![
                load(OFFSET_FIRST),
                jump(BPF_JSET, NAMESPACES, 0, 1),
                finish(REFUSE),
                finish(ALLOW),
            ]
        }
        Verdict::Socket => if_equal(
            (OFFSET_FIRST, NETLINK),
            compare(OFFSET_THIRD, &NETLINK_PROTOCOLS, ALLOW, answer(NO_PROTOCOL)),
            allow_if_equal(OFFSET_FIRST, &FAMILIES),
        ),
        Verdict::SocketOption => if_equal(
            (OFFSET_SECOND, SOCKET_LEVEL),
            compare(OFFSET_THIRD, &REFUSED_SOCKET_OPTIONS, answer(NO_OPTION), ALLOW),
            vec![finish(ALLOW)],
        ),
        Verdict::ProcessOption => {
            compare(OFFSET_FIRST, &[REFUSED_PROCESS_OPTION], answer(NO_FILTERS), ALLOW)
        }
        Verdict::Ioctl => refuse_if_equal(OFFSET_SECOND, &REFUSED_CONTROLS),
        Verdict::Personality => allow_if_equal(OFFSET_FIRST, &PERSONALITIES),
    }
}

fn refuse_if_equal(offset: u32, values: &[u32]) -> Vec<sock_filter> {
    compare(offset, values, REFUSE, ALLOW)
}

fn allow_if_equal(offset: u32, values: &[u32]) -> Vec<sock_filter> {
    compare(offset, values, ALLOW, REFUSE)
}

/// Goes on with `equal` if the argument has this value, and with `otherwise` if not.
fn if_equal(
    (offset, value): (u32, u32),
    equal: Vec<sock_filter>,
    otherwise: Vec<sock_filter>,
) -> Vec<sock_filter> {
    let mut code = vec![load(offset), jump(BPF_JEQ, value, 1, 0), skip(equal.len())];
    code.extend(equal);
    code.extend(otherwise);
    code
}

/// Returns the action that answers the call with this error.
fn answer(error: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | error.unsigned_abs()
}

fn compare(offset: u32, values: &[u32], equal: u32, otherwise: u32) -> Vec<sock_filter> {
    let mut code = vec![load(offset)];
    for value in values {
        code.extend([jump(BPF_JEQ, *value, 0, 1), finish(equal)]);
    }
    code.push(finish(otherwise));
    code
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: fit(code), jt, jf, k }
}

fn load(offset: u32) -> sock_filter {
    instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset)
}

fn jump(condition: u32, value: u32, if_true: u8, if_false: u8) -> sock_filter {
    instruction(BPF_JMP | condition | BPF_K, if_true, if_false, value)
}

fn skip(count: usize) -> sock_filter {
    instruction(BPF_JMP | BPF_JA, 0, 0, fit(count))
}

fn finish(action: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, 0, 0, action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    static FILTER: LazyLock<Vec<sock_filter>> = LazyLock::new(|| Filter::new().code);

    /// Runs the filter as the kernel does.
    fn decide(filter: &[sock_filter], architecture: u32, call: u32, arguments: [u32; 3]) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let step = filter[at];
            at += 1;
            let jump = |taken: bool| usize::from(if taken { step.jt } else { step.jf });
            match u32::from(step.code) {
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    value = match step.k {
                        OFFSET_NUMBER => call,
                        OFFSET_ARCHITECTURE => architecture,
                        OFFSET_FIRST => arguments[0],
                        OFFSET_SECOND => arguments[1],
                        OFFSET_THIRD => arguments[2],
                        other => panic!("offset {other}"),
                    }
                }
                code if code == BPF_JMP | BPF_JEQ => at += jump(value == step.k),
                code if code == BPF_JMP | BPF_JGE => at += jump(value >= step.k),
                code if code == BPF_JMP | BPF_JSET => at += jump(value & step.k != 0),
                code if code == BPF_JMP | BPF_JA => at += step.k as usize,
                code if code == BPF_RET => return step.k,
                other => panic!("instruction {other}"),
            }
        }
    }

    #[test]
    fn every_call_gets_the_verdict_of_the_list() {
        for call in 0..2048 {
            if let Verdict::Always(action) = verdict(call) {
                assert_eq!(decide(&FILTER, ARCHITECTURE, call, [0; 3]), action, "call {call}");
            }
        }
    }

    #[test]
    fn the_filter_stays_short() {
        assert!(FILTER.len() < 250, "{} instructions", FILTER.len());
    }

    #[test]
    fn calls_of_other_architectures_are_refused() {
        assert_eq!(decide(&FILTER, 0x4000_0003, 0, [0; 3]), KILL);
        assert_eq!(decide(&FILTER, ARCHITECTURE, X32 | number(libc::SYS_read), [0; 3]), REFUSE);
    }

    #[test]
    fn what_the_whole_machine_has_few_of_is_not_there() {
        for call in [libc::SYS_io_setup, libc::SYS_io_submit, libc::SYS_clone3, libc::SYS_seccomp] {
            assert_eq!(
                decide(&FILTER, ARCHITECTURE, number(call), [1, 0, 0]),
                UNKNOWN,
                "call {call}"
            );
        }
    }

    #[test]
    fn no_program_loads_a_filter_of_its_own() {
        let decided = |call, arguments: [i32; 3]| {
            decide(&FILTER, ARCHITECTURE, number(call), arguments.map(fit))
        };
        let option = |level, option| decided(libc::SYS_setsockopt, [3, level, option]);
        for refused in [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_REUSEPORT_CBPF] {
            assert_eq!(option(libc::SOL_SOCKET, refused), answer(libc::ENOPROTOOPT));
            assert_eq!(option(libc::IPPROTO_TCP, refused), ALLOW, "it means something else there");
        }
        for permitted in [libc::SO_RCVBUF, libc::SO_DETACH_FILTER, libc::SO_REUSEPORT] {
            assert_eq!(option(libc::SOL_SOCKET, permitted), ALLOW);
        }
        let process = |option, first| decided(libc::SYS_prctl, [option, first, 0]);
        assert_eq!(process(libc::PR_SET_SECCOMP, 2), answer(libc::EINVAL));
        for permitted in [libc::PR_GET_SECCOMP, libc::PR_SET_NO_NEW_PRIVS, libc::PR_SET_NAME] {
            assert_eq!(process(permitted, 2), ALLOW);
        }
    }

    #[test]
    fn netlink_is_for_networks_and_devices() {
        let socket = |family: i32, protocol| {
            let arguments = [fit(family), 2, protocol];
            decide(&FILTER, ARCHITECTURE, number(libc::SYS_socket), arguments)
        };
        for protocol in 0..64 {
            let expected =
                if [0, 4, 15].contains(&protocol) { ALLOW } else { answer(libc::EPROTONOSUPPORT) };
            assert_eq!(socket(libc::AF_NETLINK, protocol), expected, "protocol {protocol}");
            assert_eq!(socket(libc::AF_INET, protocol), ALLOW);
            assert_eq!(socket(libc::AF_PACKET, protocol), REFUSE);
        }
    }

    #[test]
    fn what_reaches_for_the_machine_is_refused() {
        let refused = [
            libc::SYS_mount,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_bpf,
            libc::SYS_keyctl,
            libc::SYS_init_module,
            libc::SYS_open_by_handle_at,
            libc::SYS_io_uring_setup,
            libc::SYS_userfaultfd,
            libc::SYS_pivot_root,
        ];
        for call in refused {
            assert_eq!(decide(&FILTER, ARCHITECTURE, number(call), [0; 3]), REFUSE, "call {call}");
        }
    }

    proptest! {
        #[test]
        fn a_clone_with_any_namespace_is_refused(flags: u32) {
            let expected = if flags & NAMESPACES == 0 { ALLOW } else { REFUSE };
            prop_assert_eq!(decide(&FILTER, ARCHITECTURE, number(libc::SYS_clone), [flags, 0, 0]), expected);
        }

        #[test]
        fn no_number_leaves_the_program(call: u32, first: u32, second: u32, third: u32) {
            decide(&FILTER, ARCHITECTURE, call, [first, second, third]);
        }
    }
}
