//! The firewall rules of a node: one table for all instances, written once when the node opens.
//! Instances come and go without touching it, because they are known by the names of their
//! interfaces.

use crate::settings::{Egress, Limits, Settings, Subnet};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::{Command, Stdio};

const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
const TRACKED: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// About what the kernel needs for one, and the part of the memory that all may take.
const CONNECTION_BYTES: u64 = 384;
const TABLE_MEMORY_PART: u64 = 64;
/// Interface names have at most 15 characters; the number of a slot takes up to 8 of them.
const PREFIX_CHARS: usize = 7;

/// Where Debian keeps the program; it is not on everybody's path.
pub(crate) const NFT: [&str; 2] = ["/usr/sbin/nft", "/sbin/nft"];

/// Sources that the firewall counts connections of; no subnet of instances is larger in use.
const INSTANCES_MAX: u32 = 65_535;

pub(super) fn interface_prefix(name: &str) -> String {
    // The end of a name tells more than its beginning when several nodes are called alike.
    let plain: Vec<char> = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let kept = &plain[plain.len().saturating_sub(PREFIX_CHARS - 2)..];
    format!("h{}-", kept.iter().collect::<String>())
}

pub(crate) struct Rules {
    table: String,
}

impl Rules {
    /// Puts the rules in place, all at once, instead of the ones that were there.
    /// The machine's table of connections may take a small part of `memory_mb`.
    pub(crate) fn write(settings: &Settings, memory_mb: u64) -> io::Result<Option<Self>> {
        let Egress::Internet { closed, doors } = &settings.egress else { return Ok(None) };
        let table = format!("holm-{}", settings.name);
        let prefix = interface_prefix(&settings.name);
        run_nft(&text(&table, &prefix, settings, closed, doors))?;
        if std::fs::read_to_string(FORWARDING)?.trim() != "1" {
            std::fs::write(FORWARDING, "1")?;
        }
        lift_connections(table_wanted(&settings.limits, memory_mb));
        Ok(Some(Self { table }))
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        run_nft(&format!("add table inet {0}\ndelete table inet {0}\n", self.table))
    }
}

/// The kernel's own size follows the memory of the machine loosely, and is what a few hundred
/// instances fill.
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
        // Only the network that the machine was started with may change it.
        tracing::info!(%error, wanted, "the machine's table of connections stays as large as it is");
    }
}

fn run_nft(script: &str) -> io::Result<()> {
    let program = NFT.iter().find(|path| Path::new(path).exists()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "the program nft (package nftables) is not installed",
        )
    })?;
    let mut child = Command::new(program)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "nft refused the rules: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// An instance that has its number of connections gets no new one until one has ended. A packet
/// that is dropped here leaves nothing in the machine's table, which all share.
fn text(
    table: &str,
    prefix: &str,
    settings: &Settings,
    closed: &[Subnet],
    doors: &[SocketAddrV4],
) -> String {
    let (subnet, connections) = (settings.subnet, settings.limits.connections);
    let mut resolvers = String::new();
    for address in &settings.nameservers {
        let family = if address.is_ipv4() { "ip" } else { "ip6" };
        for protocol in ["udp", "tcp"] {
            let _ = writeln!(resolvers, "    {family} daddr {address} {protocol} dport 53 accept");
        }
    }
    let mut refusals = String::new();
    for network in closed {
        let _ = writeln!(refusals, "    ip daddr {network} drop");
    }
    let mut opened = String::new();
    for door in doors {
        let _ = writeln!(opened, "    ip daddr {} tcp dport {} accept", door.ip(), door.port());
    }
    let sender = format!(
        "    meta nfproto != ipv4 drop
    ip saddr != {subnet} drop
    fib saddr . iif oif missing drop
    ct state invalid drop
    ct state new add @connected {{ ip saddr ct count over {connections} }} drop"
    );
    format!(
        r#"add table inet {table}
delete table inet {table}
table inet {table} {{
  set connected {{
    type ipv4_addr
    size {INSTANCES_MAX}
    flags dynamic
  }}
  chain input {{
    type filter hook input priority -10; policy accept;
    iifname "{prefix}*" jump arrive
  }}
  chain arrive {{
{sender}
{opened}    drop
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname "{prefix}*" jump leave
    oifname "{prefix}*" ct state established,related accept
    oifname "{prefix}*" drop
  }}
  chain leave {{
    oifname "{prefix}*" drop
{sender}
{resolvers}{refusals}    accept
  }}
  chain translate {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {subnet} oifname != "{prefix}*" masquerade
  }}
}}
"#
    )
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
