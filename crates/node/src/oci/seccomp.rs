//! The filter of system calls as an OCI profile. It is equivalent to [`crate::launch::filter`].

use crate::launch::calls;
use crate::launch::filter::{FAMILIES, NAMESPACES, PERSONALITIES, REFUSED_CONTROLS};
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
    rules.extend(FAMILIES.map(|family| allow_if("socket", 0, Bits::exactly(family))));
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

/// Permits a call depending on an argument. Only the lower half of it is checked, as in the kernel.
fn allow_if(call: &str, argument: u32, bits: Bits) -> Value {
    let condition = json!({ "index": argument, "value": bits.mask, "valueTwo": bits.value, "op": "SCMP_CMP_MASKED_EQ" });
    json!({ "names": [call], "action": ALLOW, "args": [condition] })
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
