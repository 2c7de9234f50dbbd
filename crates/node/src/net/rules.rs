//! The firewall rules of a node: one table for all instances, written once when the node opens, and
//! changed for each instance whose firewall is not simply open.

use super::elements::{Element, Groups, SETS};
use super::netfilter::{Change, Netfilter};
use super::netlink::{LOOPBACK_INDEX, Netlink};
use super::{others, table};
use crate::settings::{Egress, Firewall, Limits, Settings, Subnet};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;

const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
const TRACKED: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// About what the kernel needs for one tracked connection. All of them together may take one part
/// in `TABLE_MEMORY_PART` of the memory.
const CONNECTION_BYTES: u64 = 384;
const TABLE_MEMORY_PART: u64 = 64;

#[derive(Debug)]
pub(crate) struct Rules {
    table: String,
    proxy: Ipv4Addr,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    netfilter: Netfilter,
    groups: Groups,
}

impl Rules {
    /// Returns the table of another node on this machine whose instances have addresses of ours.
    pub(crate) fn conflicting_table(settings: &Settings) -> io::Result<Option<String>> {
        match settings.egress {
            Egress::Internet { .. } => others::table_over(settings.subnet, &table_name(settings)),
            Egress::Nothing => Ok(None),
        }
    }

    /// Replaces the rules of an earlier node in one step, including those for the instances found.
    /// The machine's table of connections may take a small part of `memory_mb`.
    pub(crate) fn write(
        settings: &Settings,
        memory_mb: u64,
        found: &[(Ipv4Addr, Firewall)],
    ) -> io::Result<Option<Self>> {
        let Egress::Internet { closed, doors, inside } = &settings.egress else { return Ok(None) };
        let mut groups = Groups::default();
        let sets = sets(&mut groups, found);
        let networks = table::Networks { closed, doors, inside };
        let table = table_name(settings);
        table::write(&table::text(&table, settings, &networks, &sets))?;
        // This comes after the rules that say who may reach the address.
        let proxy = settings.subnet.proxy();
        add_proxy_address(proxy)?;
        if std::fs::read_to_string(FORWARDING)?.trim() != "1" {
            std::fs::write(FORWARDING, "1")?;
        }
        lift_connections(table_wanted(&settings.limits, memory_mb));
        let state = Mutex::new(State { netfilter: Netfilter::open()?, groups });
        Ok(Some(Self { table, proxy, state }))
    }

    /// Returns the address on which this node's proxy and resolver are to listen.
    pub(crate) const fn proxy(&self) -> Ipv4Addr {
        self.proxy
    }

    /// Changes the rules for an instance's packets in one step, without a state in between.
    pub(crate) fn change(
        &self,
        address: Ipv4Addr,
        old: &Firewall,
        new: &Firewall,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        let State { netfilter, groups } = &mut *state;
        let had = groups.elements(address, old);
        let has = groups.join(address, new);
        let gone = had.iter().filter(|element| !has.contains(element));
        let came = has.iter().filter(|element| !had.contains(element));
        let changes: Vec<_> = gone
            .map(|element| Change::Remove(*element))
            .chain(came.map(|element| Change::Add(*element)))
            .collect();
        let changed =
            if changes.is_empty() { Ok(()) } else { netfilter.change(&self.table, &changes) };
        groups.leave(if changed.is_ok() { old } else { new });
        changed
    }

    /// Makes the rules apply anew to connections that an instance started under an earlier
    /// firewall. The rules block what is not allowed even without this, but a program that keeps
    /// sending from the same port would never be diverted to the resolver. What is diverted already
    /// stays: the proxy decides about it, and the instance would not know whose answers it gets.
    pub(crate) fn forget_connections(&self, address: Ipv4Addr) {
        if let Err(error) = self.state.lock().netfilter.forget_connections(address) {
            tracing::debug!(%error, %address, "the kernel keeps connections that were made before a change of rules: they stand still until they end");
        }
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        remove(&self.table, self.proxy)
    }

    /// Removes the rules of an earlier node of this name whose instances, none of which is alive,
    /// had addresses of `subnet`. Without its table, the subnet may be another node's by now.
    pub(crate) fn remove_earlier(settings: &Settings, subnet: Subnet) -> io::Result<()> {
        let table = table_name(settings);
        if others::has(&table, subnet)? { remove(&table, subnet.proxy()) } else { Ok(()) }
    }
}

/// Removes a node's table, and first the address that only the table protects.
fn remove(table: &str, proxy: Ipv4Addr) -> io::Result<()> {
    remove_proxy_address(proxy)?;
    table::write(&format!("add table inet {table}\ndelete table inet {table}\n"))
}

fn table_name(settings: &Settings) -> String {
    table::name(&settings.name)
}

fn add_proxy_address(address: Ipv4Addr) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    netlink.set_up(LOOPBACK_INDEX)?;
    match netlink.add_quiet_address(LOOPBACK_INDEX, address) {
        // Left by an earlier run.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        added => added,
    }
}

fn remove_proxy_address(address: Ipv4Addr) -> io::Result<()> {
    match Netlink::open()?.remove_quiet_address(LOOPBACK_INDEX, address) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(()),
        removed => removed,
    }
}

/// Returns the sets of the table, as `nft` reads them, with their initial elements.
fn sets(groups: &mut Groups, found: &[(Ipv4Addr, Firewall)]) -> String {
    let mut elements: HashMap<&str, Vec<Element>> = HashMap::new();
    for (address, firewall) in found {
        for element in groups.join(*address, firewall) {
            elements.entry(element.set()).or_default().push(element);
        }
    }
    let mut text = String::new();
    for (kind, name, holds) in SETS {
        let list = elements.remove(name).unwrap_or_default();
        let list: Vec<_> = list.iter().map(Element::to_string).collect();
        let begin = match list.is_empty() {
            true => String::new(),
            false => format!("; elements = {{ {} }}", list.join(", ")),
        };
        let _ = writeln!(text, "  {kind} {name} {{ type {holds}{begin}; }}");
    }
    text
}

/// Returns the wanted size of the machine's connection table. The kernel's own choice depends only
/// loosely on memory, and a few hundred instances would fill it.
fn table_wanted(limits: &Limits, memory_mb: u64) -> u64 {
    let full = u64::from(limits.instances).saturating_mul(limits.connections.into());
    full.min((memory_mb << 20) / TABLE_MEMORY_PART / CONNECTION_BYTES)
}

fn lift_connections(wanted: u64) {
    let now =
        std::fs::read_to_string(TRACKED).ok().and_then(|limit| limit.trim().parse::<u64>().ok());
    if now.is_some_and(|now| now < wanted)
        && let Err(error) = std::fs::write(TRACKED, wanted.to_string())
    {
        // Only the machine's initial network namespace may change it.
        tracing::info!(%error, wanted, "the machine's table of connections stays as large as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_what_instances_may_have_within_a_part_of_the_memory() {
        let limits = |instances| Limits { instances, connections: 1_000, ..Limits::default() };
        assert_eq!(table_wanted(&limits(10), 24_000), 10_000);
        assert_eq!(table_wanted(&limits(4_000), 24_000), 1_024_000);
    }
}
