//! What the owner of a machine decides about its node.

use crate::number::fit;
use crate::spec::Program;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The node's own folder. Nobody else may write there.
    pub folder: PathBuf,
    /// Names the control groups, the firewall table and, by its first letters, the network
    /// interfaces of this node. Two nodes on one machine need different names.
    pub name: String,
    /// Addresses of the instances, which are visible only on this machine.
    pub subnet: Subnet,
    pub egress: Egress,
    /// Resolvers for the instances, which may be asked even if their addresses are in `closed`.
    pub nameservers: Vec<IpAddr>,
    /// The first of the user ids for instances, 65,536 for each. They must belong to nobody else.
    pub first_uid: u32,
    pub limits: Limits,
    /// The program that is process 1 of every instance, unless its own description names another
    /// one. It must not need any file of the instance, and it must be a starter ([`types::start`]).
    pub first: Program,
    /// What starts new instances. Those of an earlier node go on as they are.
    pub backend: Backend,
}

/// What starts instances.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Backend {
    /// The node itself, in milliseconds.
    #[default]
    Direct,
    /// The program `runc`, or another with the same command line.
    Runc { program: PathBuf },
}

/// What instances can reach.
#[derive(Debug, Clone)]
pub enum Egress {
    /// The internet except `closed`. On the machine itself only `doors`, which are addresses of the
    /// server that runs this node. Needs the program `nft`.
    Internet {
        closed: Vec<Subnet>,
        doors: Vec<SocketAddrV4>,
        /// What this server may reach on behalf of instances although it is in `closed` or on the
        /// machine itself.
        inside: Vec<Subnet>,
    },
    /// Nothing outside the instance itself.
    Nothing,
}

impl Egress {
    /// Allows the internet only. Closes private networks, link-local ones with the clouds' metadata
    /// services, those that providers keep for such services, and what is no valid destination.
    pub fn internet_only(doors: Vec<SocketAddrV4>) -> Self {
        const CLOSED: [(Ipv4Addr, u8); 13] = [
            (Ipv4Addr::new(0, 0, 0, 0), 8),
            (Ipv4Addr::new(10, 0, 0, 0), 8),
            (Ipv4Addr::new(100, 64, 0, 0), 10),
            (Ipv4Addr::new(127, 0, 0, 0), 8),
            (Ipv4Addr::new(168, 63, 129, 16), 32),
            (Ipv4Addr::new(169, 254, 0, 0), 16),
            (Ipv4Addr::new(172, 16, 0, 0), 12),
            (Ipv4Addr::new(192, 0, 0, 0), 24),
            (Ipv4Addr::new(192, 0, 2, 0), 24),
            (Ipv4Addr::new(192, 168, 0, 0), 16),
            (Ipv4Addr::new(198, 18, 0, 0), 15),
            (Ipv4Addr::new(224, 0, 0, 0), 4),
            (Ipv4Addr::new(240, 0, 0, 0), 4),
        ];
        Self::Internet {
            closed: CLOSED
                .iter()
                .map(|(address, bits)| Subnet { address: *address, bits: *bits })
                .collect(),
            doors,
            inside: Vec::new(),
        }
    }
}

/// Ports on which the server that runs this node listens for its instances, on the node's own
/// address ([`Node::proxy_address`](crate::Node::proxy_address)): for programs that use a proxy,
/// for diverted connections, and for DNS queries. Those are diverted from port 53, which a resolver
/// of the machine may have bound on all addresses.
pub const PROXY_PORT: u16 = 3_128;
pub const TRANSPARENT_PORT: u16 = 3_129;
pub const NAMES_PORT: u16 = 3_130;
/// The mark (`SO_MARK`) of all sockets that connect on behalf of instances. The firewall keeps them
/// from whatever is closed to instances, no matter who made them or for whom.
pub const EGRESS_MARK: u32 = 0x486f_6c6d;

/// What the machine's firewall does with the packets of one instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firewall {
    pub level: Level,
    /// The source address for packets that are not diverted to the proxy, instead of the machine's
    /// own.
    pub source: Option<Ipv4Addr>,
    /// Instances with the same group can reach each other.
    pub group: Option<String>,
}

/// How much of an instance's traffic is diverted to this machine's proxy instead of going to its
/// destination. Each level is stricter than the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing is diverted.
    #[default]
    Open,
    /// DNS queries are diverted.
    Names,
    /// DNS queries and TCP are diverted. Everything else passes.
    Proxied,
    /// DNS queries and TCP are diverted. Everything else is dropped.
    Closed,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most instances that may exist at once.
    pub instances: u32,
    /// Memory of all instances together, in MB. `None` means what the machine has, less a reserve
    /// for everything else.
    pub memory_mb: Option<u64>,
    /// How many times that memory may be promised to instances that are awake. Sleeping instances
    /// do not count.
    pub memory_promises: u32,
    /// Processes and threads of all instances together. `None` means what the machine allows, less
    /// a reserve.
    pub processes: Option<u64>,
    /// The number of file systems of limited size, each of which needs a loop device.
    pub disks: u32,
    /// The total size of those file systems, in MB. `None` means half of what is free when the node
    /// opens.
    pub disk_mb: Option<u64>,
    /// The total size of all volumes, in MB. `None` means a quarter of the disk space that is free,
    /// or in use by volumes and snapshots, when the node opens.
    pub volume_mb: Option<u64>,
    /// The size of each drive in MB, which counts as part of `volume_mb`. `None` means an eighth of
    /// an owner's share.
    pub drive_mb: Option<u32>,
    /// The percentage of each of the above that one owner may have.
    pub share_percent: u32,
    /// Terminals of one instance.
    pub terminals: u32,
    /// Connections of one instance to the internet, as counted by the machine's firewall.
    pub connections: u32,
    /// The same for all instances of one owner together.
    pub owner_connections: u32,
    /// Datagrams with questions for names that this machine answers, of one instance in a second.
    pub questions_per_s: u32,
    /// Tunnels of all instances together. Each has a thread.
    pub tunnels: u32,
    /// Networks and users to keep ready, and processes that wait.
    pub networks_ready: u32,
    /// Facts that nobody has taken note of. Beyond that nothing new is started.
    pub facts_kept: usize,
    /// Files that one process may have open.
    pub open_files: u64,
    /// The size of `/dev/shm` in each instance.
    pub shared_memory_mb: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            instances: 4_000,
            memory_mb: None,
            memory_promises: 128,
            processes: None,
            disks: 1_000,
            disk_mb: None,
            volume_mb: None,
            drive_mb: None,
            share_percent: 80,
            terminals: 64,
            connections: 1_024,
            owner_connections: 16_384,
            questions_per_s: 1_000,
            tunnels: 256,
            // Fewer than the configuration of a server has, since tests open many nodes.
            networks_ready: 16,
            facts_kept: 1_000_000,
            open_files: 65_536,
            shared_memory_mb: 64,
        }
    }
}

/// A range of IPv4 addresses, written like `10.64.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    address: Ipv4Addr,
    bits: u8,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a range of IPv4 addresses, like 10.64.0.0/16")]
pub struct NotASubnet(String);

impl Subnet {
    /// Returns how many addresses are available for instances: all but the first two and the last.
    pub fn slots(self) -> u32 {
        let size = 1_u64 << (32 - u32::from(self.bits));
        fit(size.saturating_sub(3))
    }

    /// Returns a slot that is never an instance's, and has the last address.
    pub(crate) fn slot_of_nobody(self) -> u32 {
        self.slots()
    }

    /// Makes the range of this size that has the address.
    pub(crate) fn around(address: Ipv4Addr, bits: u8) -> Self {
        let host_bits = u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
        Self { address: Ipv4Addr::from_bits(address.to_bits() & !host_bits), bits }
    }

    pub(crate) const fn bits(self) -> u8 {
        self.bits
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        let host_bits = u32::MAX.checked_shr(u32::from(self.bits)).unwrap_or(0);
        address.to_bits() & !host_bits == self.address.to_bits()
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    /// Returns the address of the node's proxy and resolver, as instances see it.
    pub fn proxy(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits().wrapping_add(1))
    }

    pub(crate) fn address(self, slot: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits().wrapping_add(slot).wrapping_add(2))
    }
}

impl FromStr for Subnet {
    type Err = NotASubnet;

    fn from_str(text: &str) -> Result<Self, NotASubnet> {
        let wrong = || NotASubnet(text.to_owned());
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let (address, bits) = (
            address.parse::<Ipv4Addr>().map_err(|_| wrong())?,
            bits.parse::<u8>().map_err(|_| wrong())?,
        );
        let host_bits = u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
        if bits > 32 || address.to_bits() & host_bits != 0 {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl TryFrom<String> for Subnet {
    type Error = NotASubnet;

    fn try_from(text: String) -> Result<Self, NotASubnet> {
        text.parse()
    }
}

impl From<Subnet> for String {
    fn from(subnet: Subnet) -> Self {
        subnet.to_string()
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_slot_is_behind_the_gateway() {
        let subnet: Subnet = "10.64.0.0/30".parse().unwrap();
        assert_eq!((subnet.slots(), subnet.address(0)), (1, Ipv4Addr::new(10, 64, 0, 2)));
        assert_eq!(subnet.proxy(), Ipv4Addr::new(10, 64, 0, 1));
        assert!(subnet.contains(Ipv4Addr::new(10, 64, 0, 3)));
        assert!(!subnet.contains(Ipv4Addr::new(10, 64, 0, 4)));
        for (other, overlaps) in [("10.64.0.0/16", true), ("10.64.0.4/30", false)] {
            let other = other.parse().unwrap();
            assert_eq!((subnet.overlaps(other), other.overlaps(subnet)), (overlaps, overlaps));
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(address: u32, bits in 0_u8..=32) {
            let network = address & !u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
            let text = format!("{}/{bits}", Ipv4Addr::from_bits(network));
            prop_assert_eq!(text.parse::<Subnet>().unwrap().to_string(), text);
        }

        #[test]
        fn no_text_is_trouble(text in ".{0,40}") {
            let _ = text.parse::<Subnet>();
        }
    }
}
