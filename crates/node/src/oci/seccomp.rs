//! The filter of system calls as an OCI profile. It is equivalent to [`crate::launch::filter`].

use crate::launch::calls;
use crate::launch::filter::{
    FAMILIES, NAMESPACES, NETLINK, NETLINK_PROTOCOLS, NO_FILTERS, NO_OPTION, NO_PROTOCOL,
    PERSONALITIES, REFUSED_CONTROLS, REFUSED_PROCESS_OPTION, REFUSED_SOCKET_OPTIONS, SOCKET_LEVEL,
};
use serde_json::{Value, json};

const ALLOW: &str = "SCMP_ACT_ALLOW";
const REFUSE: &str = "SCMP_ACT_ERRNO";
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "SCMP_ARCH_AARCH64";

/// Some bits of an argument, and the values that they must have.
#[derive(Debug, Clone, Copy)]
struct Bits {
    mask: u32,
    value: u32,
}

impl Bits {
    fn exactly(value: u32) -> Self {
        Self { mask: u32::MAX, value }
    }
}

pub(super) fn profile() -> Value {
    let names: Vec<_> = calls::permitted().map(calls::Call::plain_name).collect();
    let missing: Vec<_> = calls::MISSING.iter().map(calls::Call::plain_name).collect();
    let mut rules = vec![
        json!({ "names": names, "action": ALLOW }),
        json!({ "names": missing, "action": REFUSE, "errnoRet": libc::ENOSYS }),
        allow_if("clone", 0, Bits { mask: NAMESPACES, value: 0 }),
    ];
    rules.extend(sockets());
    rules.extend(filters());
    rules.extend(
        PERSONALITIES.map(|personality| allow_if("personality", 0, Bits::exactly(personality))),
    );
    rules.extend(all_but(&REFUSED_CONTROLS).into_iter().map(|bits| allow_if("ioctl", 1, bits)));
    json!({
        "defaultAction": REFUSE,
        "defaultErrnoRet": libc::EPERM,
        "architectures": [ARCHITECTURE],
        "syscalls": rules,
    })
}

/// The families and protocols of sockets.
fn sockets() -> Vec<Value> {
    let netlink = (0, Bits::exactly(NETLINK));
    let mut rules: Vec<_> =
        FAMILIES.map(|family| allow_if("socket", 0, Bits::exactly(family))).into();
    rules.extend(
        NETLINK_PROTOCOLS
            .map(|protocol| rule("socket", None, &[netlink, (2, Bits::exactly(protocol))])),
    );
    let others = all_but(&NETLINK_PROTOCOLS).into_iter();
    rules.extend(others.map(|bits| rule("socket", Some(NO_PROTOCOL), &[netlink, (2, bits)])));
    rules
}

/// The calls that could load filters.
fn filters() -> Vec<Value> {
    let level = (1, Bits::exactly(SOCKET_LEVEL));
    let (process, option) = ("prctl", "setsockopt");
    let mut rules =
        vec![rule(process, Some(NO_FILTERS), &[(0, Bits::exactly(REFUSED_PROCESS_OPTION))])];
    let others = all_but(&[REFUSED_PROCESS_OPTION]).into_iter();
    rules.extend(others.map(|bits| allow_if(process, 0, bits)));
    rules.extend(
        REFUSED_SOCKET_OPTIONS
            .map(|refused| rule(option, Some(NO_OPTION), &[level, (2, Bits::exactly(refused))])),
    );
    let others = all_but(&REFUSED_SOCKET_OPTIONS).into_iter();
    rules.extend(others.map(|bits| rule(option, None, &[level, (2, bits)])));
    let levels = all_but(&[SOCKET_LEVEL]).into_iter();
    rules.extend(levels.map(|bits| allow_if(option, 1, bits)));
    rules
}

/// Permits a call depending on an argument.
fn allow_if(call: &str, argument: u32, bits: Bits) -> Value {
    rule(call, None, &[(argument, bits)])
}

/// Permits a call depending on its arguments, or answers it with an error. Only the lower half of
/// each is checked, as in the kernel.
fn rule(call: &str, error: Option<i32>, arguments: &[(u32, Bits)]) -> Value {
    let condition = |(index, bits): &(u32, Bits)| json!({ "index": index, "value": bits.mask, "valueTwo": bits.value, "op": "SCMP_CMP_MASKED_EQ" });
    let conditions: Vec<_> = arguments.iter().map(condition).collect();
    match error {
        None => json!({ "names": [call], "action": ALLOW, "args": conditions }),
        Some(error) => {
            json!({ "names": [call], "action": REFUSE, "errnoRet": error, "args": conditions })
        }
    }
}

/// Returns patterns that match all numbers except these. A profile cannot express "neither of two"
/// directly: if one rule permits a call, no other can refuse it.
fn all_but(values: &[u32]) -> Vec<Bits> {
    let mut matches = Vec::new();
    // A prefix that none of the values shares is permitted as a whole.
    let mut open = vec![(Bits { mask: 0, value: 0 }, values.to_vec())];
    while let Some((bits, values)) = open.pop() {
        if values.is_empty() {
            matches.push(bits);
        } else if bits.mask != u32::MAX {
            let next = 1 << (31 - bits.mask.leading_ones());
            for bit in [0, next] {
                let below = values.iter().copied().filter(|value| value & next == bit).collect();
                open.push((Bits { mask: bits.mask | next, value: bits.value | bit }, below));
            }
        }
    }
    matches
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matched(matches: &[Bits], number: u32) -> bool {
        matches.iter().any(|bits| number & bits.mask == bits.value)
    }

    proptest! {
        #[test]
        fn all_but_these_match(values in prop::collection::vec(any::<u32>(), 1..4), number: u32, near in 0_u32..32) {
            let matches = all_but(&values);
            for value in &values {
                prop_assert!(!matched(&matches, *value));
                let other = value ^ 1 << near;
                prop_assert_eq!(matched(&matches, other), !values.contains(&other));
            }
            prop_assert_eq!(matched(&matches, number), !values.contains(&number));
        }
    }
}
