//! Which network addresses are on the public internet. Users choose addresses that the server then
//! calls, so what only the server can reach must be told apart from what anybody can.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The fixed bits of an address, and how many of them there are.
type Block4 = (Ipv4Addr, u32);
type Block6 = (Ipv6Addr, u32);

/// Blocks that the registry of special addresses (RFC 6890 and later) excludes from the internet.
/// Cloud metadata services, which tell secrets to whoever asks (169.254.169.254 and its like), are
/// in the link-local block.
const KEPT_V4: [Block4; 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Multicast, and the reserved addresses above it.
    (Ipv4Addr::new(224, 0, 0, 0), 3),
    // A cloud's internal service whose address only looks public.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
];

/// The only block from which public addresses are assigned.
const GLOBAL_V6: Block6 = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Parts of it that are not public: for protocols (with Teredo, which embeds an IPv4 address) and
/// for documentation.
const KEPT_V6: [Block6; 3] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
/// 6to4: the next 32 bits are the IPv4 address to which the packet goes.
const SIX_TO_FOUR: Block6 = (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);

/// Returns true if an address is on the public internet. An IPv6 address that leads to an IPv4 one
/// is judged by the latter, and refused if a translator of the local network would decide where it
/// leads.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !KEPT_V4.iter().any(|(block, bits)| (address.to_bits() ^ block.to_bits()) >> (32 - bits) == 0)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let within =
        |(block, bits): &Block6| (address.to_bits() ^ block.to_bits()) >> (128 - bits) == 0;
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public_v4(mapped);
    }
    if within(&SIX_TO_FOUR) {
        let [_, high, low, ..] = address.segments();
        return is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    }
    // NAT64 (64:ff9b::/96 and 64:ff9b:1::/48), unique-local, link-local and multicast addresses all
    // lie outside 2000::/3.
    within(&GLOBAL_V6) && !KEPT_V6.iter().any(within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_only_the_server_reaches_is_not_public() {
        let inside = "0.0.0.0 10.1.2.3 100.64.0.1 100.127.255.255 127.0.0.1 127.9.9.9 169.254.169.254 172.16.0.1 \
            172.31.255.255 192.0.0.192 192.0.2.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.9 \
            224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 168.63.129.16 :: ::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 \
            ::7f00:1 64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::a00:1 100::1 2001::1 2001:2::1 2001:10::1 2001:20::1 \
            2001:db8::1 2002:7f00:1:: 2002:a00:1::1 2002:a9fe:a9fe::1 3fff::1 fc00::1 fd00:ec2::254 fe80::1 \
            fec0::1 ff02::1 5f00::1 4000::1";
        for address in inside.split_whitespace() {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        let outside = "1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.0.1.1 198.17.1.1 198.20.1.1 \
            223.255.255.1 2606:4700::1 2a00::1 2001:4860:4860::8888 ::ffff:8.8.8.8 2002:808:808::1";
        for address in outside.split_whitespace() {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    proptest! {
        #[test]
        fn a_disguise_does_not_help(bits: u32) {
            let plain = Ipv4Addr::from_bits(bits);
            let public = is_public(plain.into());
            prop_assert_eq!(is_public(plain.to_ipv6_mapped().into()), public);
            let [a, b] = [(bits >> 16) as u16, bits as u16];
            prop_assert_eq!(is_public(Ipv6Addr::new(0x2002, a, b, 0, 0, 0, 0, 1).into()), public);
            prop_assert!(!is_public(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b).into()));
            prop_assert!(!is_public(Ipv6Addr::new(0, 0, 0, 0, 0, 0, a, b).into()));
            prop_assert!(!is_public(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, a, b).into()));
        }

        /// The standard library's own checks know part of the rule; they must never contradict it.
        #[test]
        fn nothing_that_the_library_calls_inside_is_public(v4: u32, v6: u128, kind in 0..4_u8) {
            let v4 = Ipv4Addr::from_bits(v4);
            if v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || v4.is_broadcast()
                || v4.is_documentation() || v4.is_unspecified()
            {
                prop_assert!(!is_public(v4.into()));
            }
            let first = [0xfc00, 0xfe80, 0xff00, 0x2001][usize::from(kind)];
            let v6 = Ipv6Addr::from_bits((v6 >> 7) | first << 112);
            if v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_multicast() {
                prop_assert!(!is_public(v6.into()));
            }
        }
    }
}
