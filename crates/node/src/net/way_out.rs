//! Tries whether packets of instances get past the other firewalls of this machine. A rule that
//! accepts something here does not keep another table from dropping it, and no list of rules says
//! for sure what becomes of a packet, so one is sent.

use super::Home;
use super::netlink::{LOOPBACK_INDEX, Netlink};
use super::table;
use crate::settings::{PROXY_PORT, Subnet};
use rustix::fd::OwnedFd;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Some address on the internet. Nothing that is sent to it leaves this machine.
const INTERNET: (Ipv4Addr, u16) = (Ipv4Addr::new(1, 1, 1, 1), 443);
/// How often, and how long after each other, the counters are read.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// What becomes of the packets of instances on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WayOut {
    /// The machine has a route to the internet.
    pub routed: bool,
    /// The machine passes packets on, or will once a node has opened.
    pub forwards: bool,
    /// Packets to the internet leave the machine.
    pub internet: bool,
    /// Packets reach the node's proxy and resolver.
    pub proxy: bool,
    /// Programs that write rules of their own, as far as their rules can be seen.
    pub firewalls: Vec<Other>,
}

/// A program that writes rules for the machine's firewall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other {
    Docker,
    Ufw,
    Firewalld,
}

impl Other {
    /// By what its rules are known, in a list of all chains.
    const SIGNS: [(Self, &str); 3] = [
        (Self::Docker, "chain DOCKER-USER "),
        (Self::Ufw, "chain ufw-user-forward "),
        (Self::Firewalld, "table inet firewalld "),
    ];

    fn all(chains: &str) -> Vec<Self> {
        let found = Self::SIGNS.iter().filter(|(_, sign)| chains.contains(sign));
        found.map(|(other, _)| *other).collect()
    }
}

/// Sends packets as an instance of this node would, from an address of `subnet` that no instance
/// has. Whatever passes is counted and dropped where it would have arrived or left. Nothing is left
/// behind.
pub fn try_way_out(node: &str, subnet: Subnet) -> io::Result<WayOut> {
    let home = Home::of(node, subnet)?;
    let slot = subnet.slot_of_nobody();
    let network = home.make(slot)?;
    let link = Link(home.wire(slot).outer_name);
    let node_is_open = table::list(&["table", "inet", &table::name(node)]).is_ok();
    let forwards = link.forwards(node_is_open)?;
    link.add_address(subnet.proxy())?;
    let counters = Counters::add(node, subnet)?;
    let connect = |to: (Ipv4Addr, u16)| -> io::Result<OwnedFd> {
        let socket = home.socket(&network)?;
        // Nobody answers.
        let _ = rustix::net::connect(&socket, &SocketAddr::from(to));
        Ok(socket)
    };
    let _sent = [connect(INTERNET)?, connect((subnet.proxy(), PROXY_PORT))?];
    let [internet, proxy] = counters.wait()?;
    let firewalls = Other::all(&table::list(&["chains"])?);
    Ok(WayOut { routed: routed(), forwards, internet, proxy, firewalls })
}

/// Nothing is sent by connecting such a socket.
fn routed() -> bool {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).is_ok_and(|socket| socket.connect(INTERNET).is_ok())
}

/// The machine's end of the link that is tried.
struct Link(String);

impl Link {
    /// Returns whether the machine passes on what comes from the link. If a node has yet to have it
    /// do that, it does so now, for this link.
    fn forwards(&self, node_is_open: bool) -> io::Result<bool> {
        let setting = format!("/proc/sys/net/ipv4/conf/{}/forwarding", self.0);
        let forwards = std::fs::read_to_string(&setting)?.trim() == "1";
        if !forwards && !node_is_open {
            std::fs::write(setting, "1")?;
        }
        Ok(forwards || !node_is_open)
    }

    /// Gives the machine the proxy's address, which it has already while a node is open.
    fn add_address(&self, proxy: Ipv4Addr) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        netlink.set_up(LOOPBACK_INDEX)?;
        match UdpSocket::bind((proxy, 0)) {
            Ok(_) => Ok(()),
            Err(_) => netlink.add_quiet_address(netlink.index(&self.0)?, proxy),
        }
    }

    fn remove(&self) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        netlink.remove(netlink.index(&self.0)?)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::debug!(%error, "a link that was tried goes with its network");
        }
    }
}

/// A table that counts the packets and drops them.
struct Counters(String);

impl Counters {
    const NAMES: [&str; 2] = ["internet", "proxy"];

    fn add(node: &str, subnet: Subnet) -> io::Result<Self> {
        let table = format!("{}-way-out", table::name(node));
        let from = subnet.address(subnet.slot_of_nobody());
        table::write(&format!(
            "add table inet {table}
delete table inet {table}
table inet {table} {{
  counter internet {{ }}
  counter proxy {{ }}
  chain leaving {{
    type filter hook postrouting priority -300; policy accept;
    ip saddr {from} counter name internet drop
  }}
  chain arriving {{
    type filter hook input priority 1000000; policy accept;
    ip saddr {from} counter name proxy drop
  }}
}}
"
        ))?;
        Ok(Self(table))
    }

    /// Returns which of them have counted something, in the order of their names.
    fn wait(&self) -> io::Result<[bool; 2]> {
        let mut counted = [false; 2];
        for _ in 0..LOOKS {
            let text = table::list(&["counters", "table", "inet", &self.0])?;
            counted = Self::NAMES.map(|name| has_counted(&text, name));
            if counted == [true; 2] {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(counted)
    }
}

/// Reads the list of a table's counters.
fn has_counted(list: &str, counter: &str) -> bool {
    let of_counter = list.split_once(&format!("counter {counter} {{"));
    let packets = of_counter.and_then(|(_, after)| after.trim_start().strip_prefix("packets "));
    packets.is_some_and(|packets| !packets.starts_with("0 "))
}

impl Drop for Counters {
    fn drop(&mut self) {
        if let Err(error) = table::write(&format!("delete table inet {}\n", self.0)) {
            tracing::warn!(%error, table = self.0, "a table of the firewall that does nothing stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_list() {
        let list = "table inet holm-x-way-out {\n\tcounter internet {\n\t\tpackets 0 bytes 0\n\t}\n\
                    \tcounter proxy {\n\t\tpackets 12 bytes 720\n\t}\n}\n";
        let counted = ["internet", "proxy", "nothing"].map(|counter| has_counted(list, counter));
        assert_eq!(counted, [false, true, false]);
    }

    #[test]
    fn other_firewalls_are_known_by_their_chains() {
        let chains = "table ip filter {\n\tchain FORWARD {\n\t}\n\tchain DOCKER-USER {\n\t}\n}\n";
        assert_eq!(Other::all(chains), [Other::Docker]);
        assert_eq!(Other::all("table inet firewalld {\n}\n"), [Other::Firewalld]);
    }
}
