//! Networks that this machine reaches already, and that have addresses of instances.

use crate::settings::Subnet;
use std::io;
use std::net::Ipv4Addr;

const ROUTES: &str = "/proc/thread-self/net/route";
/// Flag of a route that leads nowhere (`RTF_REJECT`).
const REJECT: u32 = 0x0200;

/// A network that this machine reaches through one of its interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    pub network: Subnet,
    pub interface: String,
}

/// The networks that have addresses of a subnet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overlaps {
    /// Networks within the subnet. What is there would be cut off.
    pub within: Vec<Reached>,
    /// Networks that are larger. Only what has addresses of the subnet there would be cut off.
    pub around: Vec<Reached>,
}

/// Finds this machine's networks that have addresses of `subnet`. The default route does not count,
/// and neither do links to instances: the table of their node says which addresses it has, and links
/// may outlive it for a moment.
pub fn overlaps(subnet: Subnet) -> io::Result<Overlaps> {
    Ok(find(&std::fs::read_to_string(ROUTES)?, subnet))
}

fn find(routes: &str, subnet: Subnet) -> Overlaps {
    let mut found = Overlaps::default();
    for reached in routes.lines().skip(1).filter_map(route) {
        let Reached { network, interface } = &reached;
        if !is_link(interface) && network.bits() > 0 && network.overlaps(subnet) {
            match reached.network.bits() >= subnet.bits() {
                true => found.within.push(reached),
                false => found.around.push(reached),
            }
        }
    }
    found
}

/// Returns true if an interface is named like the links of nodes.
fn is_link(interface: &str) -> bool {
    let (node, slot) = interface.split_once('-').unwrap_or_default();
    node.starts_with('h') && u32::from_str_radix(slot, 16).is_ok()
}

/// Reads a line: the interface, then numbers in hexadecimal, of which addresses are as they lie in
/// memory.
fn route(line: &str) -> Option<Reached> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |field: usize| u32::from_str_radix(fields.get(field)?, 16).ok();
    let (to, flags, mask) = (number(1)?, number(3)?, number(7)?);
    let address = Ipv4Addr::from(to.to_ne_bytes());
    let network = Subnet::around(address, mask.count_ones().try_into().ok()?);
    let interface = (*fields.first()?).to_owned();
    (flags & REJECT == 0).then_some(Reached { network, interface })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a route as the kernel does.
    fn line(interface: &str, text: &str, flags: u32) -> String {
        let network: Subnet = text.parse().unwrap();
        let mask = u32::MAX.checked_shl(32 - u32::from(network.bits())).unwrap_or(0).to_be();
        let (address, _) = text.split_once('/').unwrap();
        let to = u32::from_ne_bytes(address.parse::<Ipv4Addr>().unwrap().octets());
        format!("{interface}\t{to:08X}\t00000000\t{flags:04X}\t0\t0\t0\t{mask:08X}\t0\t0\t0\n")
    }

    #[test]
    fn networks_with_addresses_of_instances_are_found() {
        let routes = [
            "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n".to_owned(),
            line("eth0", "0.0.0.0/0", 3),
            line("eth0", "192.0.2.0/24", 1),
            line("podman1", "10.89.0.0/24", 1),
            line("wg0", "10.0.0.0/8", 1),
            line("*", "10.89.0.0/16", 0x201),
            line("hother-a", "10.89.0.12/32", 5),
            line("hx-1f", "10.89.0.33/32", 5),
        ]
        .concat();
        let of = |network: &str, interface: &str| Reached {
            network: network.parse().unwrap(),
            interface: interface.to_owned(),
        };
        let subnet = "10.89.0.0/16".parse().unwrap();
        let (within, around) = (vec![of("10.89.0.0/24", "podman1")], vec![of("10.0.0.0/8", "wg0")]);
        assert_eq!(find(&routes, subnet), Overlaps { within, around });
        assert_eq!(find(&routes, "10.217.0.0/16".parse().unwrap()).within, []);
    }
}
