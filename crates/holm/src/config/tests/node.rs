//! Addresses and user ids of sandboxes.

use super::*;

#[test]
fn user_ids_of_all_sandboxes_are_below_2_to_the_32() {
    let node = |first_uid: u64, instances_max: u32| {
        load_text(&format!(
            "[node]\nfirst_uid = {first_uid}\ninstances_max = {instances_max}\nready = 32"
        ))
    };
    assert!(node(1_000_000_000, 4000).is_ok() && node(65_536, 65_502).is_ok());
    // 4,032 instances of 65,536 ids each end one below the highest id.
    let last = u64::from(u32::MAX) - 4032 * 65_536;
    assert!(node(last, 4000).is_ok());
    for (first_uid, instances_max) in
        [(last + 1, 4000), (4_294_967_295, 1), (65_536, 65_503), (65_536, u32::MAX)]
    {
        let message = node(first_uid, instances_max).unwrap_err().to_string();
        assert!(message.contains("`node.first_uid`") && message.contains("2^32"), "{message}");
    }
    refused("[node]\nfirst_uid = 1000", &["`node.first_uid`", "65536"]);
}

#[test]
fn sandboxes_have_no_addresses_that_cannot_work() {
    for (subnet, why) in [
        ("0.0.0.0/0", "0.0.0.0/8"),
        ("127.0.0.0/8", "127.0.0.0/8"),
        ("127.64.0.0/16", "127.0.0.0/8"),
        ("64.0.0.0/2", "127.0.0.0/8"),
        ("169.254.0.0/16", "169.254.0.0/16"),
        ("224.1.0.0/16", "224.0.0.0/4"),
        ("250.0.0.0/8", "240.0.0.0/4"),
        ("10.89.0.0/31", "no address"),
        ("10.89.0.1/32", "no address"),
        ("10.89.0.1/16", "range"),
    ] {
        refused(&format!("[node]\nsubnet = \"{subnet}\""), &["`node.subnet`", why]);
    }
}

#[test]
fn a_subnet_for_fewer_sandboxes_than_there_may_be_is_doubted() {
    let warnings = |subnet: &str, instances_max: u32, roles: &str| {
        let text = format!(
            "[server]\nroles = {roles}\n[node]\nsubnet = \"{subnet}\"\ninstances_max = {instances_max}\nready = 32"
        );
        load_text(&text).unwrap().warnings
    };
    let all = r#"["api", "gateway", "node"]"#;
    // Three addresses are for others, and 32 are kept ready.
    for (subnet, instances_max) in [("192.168.7.0/24", 221), ("10.40.0.0/20", 4061)] {
        assert!(warnings(subnet, instances_max, all).is_empty(), "{subnet}");
        let more = &*warnings(subnet, instances_max + 1, all);
        let names = |one: &str| one.contains("`node.subnet`") && one.contains("node.instances_max");
        assert!(matches!(more, [one] if names(one)), "{more:?}");
    }
    assert!(warnings("192.168.7.0/24", 4000, r#"["api"]"#).is_empty());
}
