//! The text of a node's firewall table. Instances without a firewall of their own come and go
//! without changing it, because the rules go by the names of their interfaces. The others are known
//! by their addresses, in the table's sets.

use super::wire::DEFAULT_GROUP;
use crate::settings::{EGRESS_MARK, NAMES_PORT, PROXY_PORT, Settings, Subnet, TRANSPARENT_PORT};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::{Command, Stdio};

/// Interface names have at most 15 characters; the number of a slot takes up to 8 of them.
const PREFIX_CHARS: usize = 7;

/// Where Debian keeps the program, which is not in everybody's `PATH`.
pub(crate) const NFT: [&str; 2] = ["/usr/sbin/nft", "/sbin/nft"];

/// The most source addresses for which the firewall counts connections and questions. No subnet in
/// use is larger.
const INSTANCES_MAX: u32 = 65_535;

/// How the names of all tables of nodes begin.
pub(super) const NAME_START: &str = "holm-";

/// Returns the name of a node's table.
pub(super) fn name(node: &str) -> String {
    format!("{NAME_START}{node}")
}

pub(super) fn interface_prefix(name: &str) -> String {
    // The end of a name differs more than its beginning when several nodes have similar names.
    let plain: Vec<char> = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let kept = &plain[plain.len().saturating_sub(PREFIX_CHARS - 2)..];
    format!("h{}-", kept.iter().collect::<String>())
}

/// Has `nft` run a script, which has either all of its effects or none.
pub(super) fn write(script: &str) -> io::Result<()> {
    run(&["-f", "-"], script).map(drop)
}

/// Returns what `nft` lists, without the elements of sets.
pub(super) fn list(what: &[&str]) -> io::Result<String> {
    run(&[&["-t", "list"], what].concat(), "")
}

fn run(arguments: &[&str], input: &str) -> io::Result<String> {
    let program = NFT.iter().find(|path| Path::new(path).exists()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "the program nft (package nftables) is not installed",
        )
    })?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // It prints nothing before it has read everything.
    if let Some(mut stdin) = child.stdin.take().filter(|_| !input.is_empty()) {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(format!("nft failed: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

pub(super) struct Networks<'a> {
    pub(super) closed: &'a [Subnet],
    pub(super) doors: &'a [SocketAddrV4],
    pub(super) inside: &'a [Subnet],
}

impl Networks<'_> {
    /// Writes one rule for each door, for packets to it or from it.
    fn doors(&self, direction: &str, port: &str, verdict: &str) -> String {
        lines(self.doors, |door| {
            format!("ip {direction} {} tcp {port} {} {verdict}", door.ip(), door.port())
        })
    }
}

fn lines<T>(of: &[T], rule: impl Fn(&T) -> String) -> String {
    let mut text = String::new();
    for one in of {
        let _ = writeln!(text, "    {}", rule(one));
    }
    text
}

/// Returns the rules that every packet of an instance must pass, whatever it may reach. An instance
/// or an owner that has used up its connections gets no new one until one has ended. A packet that
/// is dropped here leaves nothing in the machine's connection table, which all instances share, and
/// takes none of the machine's ports, of which all connections to one port of one host need one.
///
/// Owners are known by the groups of their instances' interfaces. Those that an earlier release
/// made are in none.
fn sender(settings: &Settings) -> String {
    let (subnet, connections) = (settings.subnet, settings.limits.connections);
    let of_owner = settings.limits.owner_connections;
    format!(
        "    meta nfproto != ipv4 drop
    ip saddr != {subnet} drop
    fib saddr . iif oif missing drop
    ct state invalid drop
    ct state new add @connected {{ ip saddr ct count over {connections} }} drop
    ct state new meta iifgroup != {DEFAULT_GROUP} \
         add @owned {{ meta iifgroup ct count over {of_owner} }} drop"
    )
}

/// Returns the rule that limits how often an instance asks for names. All questions arrive at one
/// socket, so those of an instance that asks without end would push out those of the others.
fn questions(settings: &Settings) -> String {
    let rate = settings.limits.questions_per_s;
    format!(
        "    udp dport {NAMES_PORT} update @asking \
         {{ ip saddr limit rate over {rate}/second burst {rate} packets }} drop"
    )
}

/// Returns the script for the whole table. Its chains are:
/// - `arrive`: what instances send to the machine itself. `proxy` is the part of it for the node's
///   own address, which nobody else reaches. What `way_out` sends from the address of nobody is
///   dropped by its own table.
/// - `lead`: what is diverted to the resolver and to the proxy. Only the first packet of a
///   connection gets here.
/// - `leave`, `enter`: what passes through the machine. If something gets here that should have
///   been diverted, its connection was made before the rules, and is ended.
/// - `fence`: what the proxy sends for instances. The proxy checks its destinations itself; this is
///   a second check.
pub(super) fn text(
    table: &str,
    settings: &Settings,
    networks: &Networks<'_>,
    sets: &str,
) -> String {
    let (subnet, proxy) = (settings.subnet, settings.subnet.proxy());
    let prefix = interface_prefix(&settings.name);
    let (sender, questions) = (sender(settings), questions(settings));
    let nobody = subnet.address(subnet.slot_of_nobody());
    let mut resolvers = String::new();
    for address in &settings.nameservers {
        let family = if address.is_ipv4() { "ip" } else { "ip6" };
        for protocol in ["udp", "tcp"] {
            let _ = writeln!(resolvers, "    {family} daddr {address} {protocol} dport 53 accept");
        }
    }
    let refusals = lines(networks.closed, |network| format!("ip daddr {network} drop"));
    let opened = networks.doors("daddr", "dport", "accept");
    let answered = networks.doors("saddr", "sport", "ct state established accept");
    let inside = lines(networks.inside, |network| format!("ip daddr {network} accept"));
    format!(
        r#"add table inet {table}
delete table inet {table}
table inet {table} {{
  set connected {{
    type ipv4_addr
    size {INSTANCES_MAX}
    flags dynamic
  }}
  set owned {{
    type devgroup
    size {INSTANCES_MAX}
    flags dynamic
  }}
  set asking {{
    type ipv4_addr
    size {INSTANCES_MAX}
    flags dynamic,timeout
    timeout 1m
  }}
{sets}
  chain divert {{
    type nat hook prerouting priority -110; policy accept;
    iifname "{prefix}*" ip saddr @named jump lead
  }}
  chain lead {{
    ip daddr {proxy} accept
    ip daddr {subnet} jump own_group
    udp dport 53 dnat ip to {proxy}:{NAMES_PORT}
    tcp dport 53 dnat ip to {proxy}:{NAMES_PORT}
{opened}    ip saddr @proxied meta l4proto tcp dnat ip to {proxy}:{TRANSPARENT_PORT}
  }}
  chain own_group {{
    meta mark set 0
    meta mark set ip saddr map @group_of
    ip daddr . meta mark @members meta mark set 0 accept
    meta mark set 0
  }}
  chain input {{
    type filter hook input priority -10; policy accept;
    iifname "{prefix}*" jump arrive
    ip daddr {proxy} iifname != "lo" drop
  }}
  chain arrive {{
{sender}
    ip daddr {proxy} jump proxy
{opened}    drop
  }}
  chain proxy {{
{questions}
    ct state established accept
    ip saddr {nobody} tcp dport {PROXY_PORT} accept
    ip saddr != @named drop
    tcp dport {{ {PROXY_PORT}, {NAMES_PORT} }} accept
    udp dport {NAMES_PORT} accept
    tcp dport {TRANSPARENT_PORT} ct status dnat accept
    drop
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname "{prefix}*" jump leave
    oifname "{prefix}*" jump enter
  }}
  chain leave {{
{sender}
    oifname "{prefix}*" jump own_group
    oifname "{prefix}*" drop
{opened}    ip saddr @proxied meta l4proto tcp reject with tcp reset
    ip saddr @closed drop
    ip saddr @named udp dport 53 drop
    ip saddr @named tcp dport 53 reject with tcp reset
{resolvers}{refusals}    accept
  }}
  chain enter {{
{answered}    ip daddr @proxied meta l4proto tcp drop
    ip daddr @closed drop
    ip daddr @named udp sport 53 drop
    ip daddr @named tcp sport 53 drop
    ct state established,related accept
    drop
  }}
  chain output {{
    type filter hook output priority -10; policy accept;
    meta mark {EGRESS_MARK} jump fence
  }}
  chain fence {{
{resolvers}{opened}{inside}    fib daddr type {{ local, broadcast, anycast, multicast }} drop
{refusals}    meta nfproto ipv6 ip6 daddr != 2000::/3 drop
  }}
  chain translate {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {subnet} oifname != "{prefix}*" snat ip to ip saddr map @source_of
    ip saddr {subnet} oifname != "{prefix}*" masquerade
  }}
}}
"#
    )
}
