//! Reads processes and their sockets from the kernel.
//!
//! Everything here may change or vanish while it is read, so anything unreadable counts as missing.

use parking_lot::Mutex;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Port {
    pid: i32,
    protocol: &'static str,
    local_addr: IpAddr,
    pub(super) local_port: u16,
    remote_addr: IpAddr,
    remote_port: u16,
    pub(super) state: &'static str,
    process_name: String,
}

/// One line of a socket table.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    local: (IpAddr, u16),
    remote: (IpAddr, u16),
    state: &'static str,
    inode: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    name: String,
    parent: i32,
    group: i32,
}

const TABLES: [&str; 4] = ["tcp", "tcp6", "udp", "udp6"];
pub(super) const LISTEN: &str = "LISTEN";

/// All processes and sockets at one moment. Reading it takes long if there are many, so this is
/// only done on threads that may block.
pub(super) struct Snapshot {
    processes: Vec<Process>,
    sockets: Vec<(&'static str, Socket)>,
    /// The sockets that each process has open, once somebody has asked for them.
    descriptors: Mutex<HashMap<i32, Arc<[u64]>>>,
}

impl Snapshot {
    pub(super) fn take() -> Self {
        let mut sockets = Vec::new();
        for protocol in TABLES {
            let table = fs::read_to_string(format!("/proc/net/{protocol}")).unwrap_or_default();
            let socket = |line| parse_socket(line, protocol.starts_with("tcp"));
            sockets.extend(table.lines().filter_map(socket).map(|socket| (protocol, socket)));
        }
        Self { processes: processes(), sockets, descriptors: Mutex::default() }
    }

    /// Returns the sockets of processes and all their descendants.
    pub(super) fn ports(&self, roots: &[i32]) -> Vec<Port> {
        let mut owners: HashMap<u64, &Process> = HashMap::new();
        for process in tree(&self.processes, roots) {
            for inode in self.sockets_of(process.pid).iter() {
                // A shared socket is attributed to the first process, the one nearest to the root.
                owners.entry(*inode).or_insert(process);
            }
        }
        let port = |(protocol, socket): &(&'static str, Socket)| {
            let owner = owners.get(&socket.inode)?;
            Some(Port {
                pid: owner.pid,
                protocol,
                local_addr: socket.local.0,
                local_port: socket.local.1,
                remote_addr: socket.remote.0,
                remote_port: socket.remote.1,
                state: socket.state,
                process_name: owner.name.clone(),
            })
        };
        self.sockets.iter().filter_map(port).collect()
    }

    /// Returns the ports on which processes, or what is left of them, can be reached from outside
    /// this instance. Connections from outside arrive over the loopback interface, by IPv4.
    pub(super) fn reachable_ports(&self, roots: &[i32]) -> HashSet<u16> {
        let reached = |address: IpAddr| address.is_ipv4() || !address.is_loopback();
        let open = self.ports(roots).into_iter();
        open.filter(|port| port.state == LISTEN && reached(port.local_addr))
            .map(|port| port.local_port)
            .collect()
    }

    /// Returns whether anything of a process is left.
    pub(super) fn is_alive(&self, pid: i32) -> bool {
        self.processes.iter().any(|process| process.pid == pid || process.group == pid)
    }

    fn sockets_of(&self, pid: i32) -> Arc<[u64]> {
        self.descriptors.lock().entry(pid).or_insert_with(|| sockets_of(pid).into()).clone()
    }
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        parse_stat(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    })
    .collect()
}

/// Returns the roots, the members of their groups, and all descendants of these. A group outlives
/// the process that led it.
fn tree<'p>(processes: &'p [Process], roots: &[i32]) -> Vec<&'p Process> {
    let (mut found, mut others): (Vec<_>, Vec<_>) = processes
        .iter()
        .partition(|process| roots.contains(&process.pid) || roots.contains(&process.group));
    let mut fresh = found.len();
    while fresh > 0 {
        let known: HashSet<i32> = found.iter().map(|process| process.pid).collect();
        let (children, rest): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|process: &&Process| known.contains(&process.parent));
        fresh = children.len();
        found.extend(children);
        others = rest;
    }
    found
}

fn sockets_of(pid: i32) -> Vec<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let inode = |target: &str| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    entries.filter_map(|entry| inode(fs::read_link(entry.path()).ok()?.to_str()?)).collect()
}

/// Parses a line of `stat`. The name is in parentheses, and may itself contain parentheses and
/// spaces.
fn parse_stat(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(1);
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some(Process { pid: pid.parse().ok()?, name: name.to_owned(), parent, group })
}

fn parse_socket(line: &str, tcp: bool) -> Option<Socket> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let state = u8::from_str_radix(fields.get(3)?, 16).ok()?;
    Some(Socket {
        local: parse_address(fields.get(1)?)?,
        remote: parse_address(fields.get(2)?)?,
        state: if tcp { tcp_state(state) } else { "NONE" },
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// Parses an address: words of four bytes, each in the byte order of the machine.
fn parse_address(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let words: Option<Vec<[u8; 4]>> = address
        .as_bytes()
        .chunks(8)
        .map(|word| {
            Some(u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?.to_ne_bytes())
        })
        .collect();
    let bytes = words?.concat();
    let address = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(v4) => IpAddr::V4(Ipv4Addr::from(v4)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

fn tcp_state(number: u8) -> &'static str {
    match number {
        1 => "ESTABLISHED",
        2 => "SYN_SENT",
        3 => "SYN_RECV",
        4 => "FIN_WAIT1",
        5 => "FIN_WAIT2",
        6 => "TIME_WAIT",
        7 => "CLOSE",
        8 => "CLOSE_WAIT",
        9 => "LAST_ACK",
        10 => LISTEN,
        11 => "CLOSING",
        _ => "UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_are_read_as_the_kernel_writes_them() {
        let v4 = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 4711 1 0 100 0";
        let socket = parse_socket(v4, true).unwrap();
        assert_eq!(socket.local, (IpAddr::V4(Ipv4Addr::LOCALHOST), 8080));
        assert_eq!((socket.state, socket.inode), (LISTEN, 4711));
        let v6 = "   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 07 0:0 0:0 0 0 0 5";
        let socket = parse_socket(v6, false).unwrap();
        assert_eq!(socket.local, (IpAddr::V6(Ipv6Addr::LOCALHOST), 80));
        assert_eq!(parse_socket("  sl  local_address rem_address   st tx_queue", true), None);
    }

    #[test]
    fn a_name_may_hold_what_separates_it() {
        let process = parse_stat("42 (a) b (c) S 7 9 42 0 -1").unwrap();
        assert_eq!(process, Process { pid: 42, name: "a) b (c".into(), parent: 7, group: 9 });
    }

    #[test]
    fn a_tree_has_the_group_and_its_descendants() {
        let process = |pid, parent, group| Process { pid, name: String::new(), parent, group };
        let all = vec![
            process(1, 0, 1),
            process(9, 8, 9),
            process(8, 1, 5),
            process(5, 1, 5),
            process(6, 1, 6),
        ];
        let mut found: Vec<i32> = tree(&all, &[5]).iter().map(|process| process.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [5, 8, 9]);
    }

    proptest! {
        #[test]
        fn no_line_is_too_odd(line in "\\PC{0,80}") {
            let _ = (parse_socket(&line, true), parse_stat(&line), parse_address(&line));
        }
    }
}
