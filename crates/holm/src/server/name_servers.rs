//! The name servers of this machine, and those of them that its sandboxes can ask.

use crate::config;
use std::io::{self, ErrorKind};
use std::net::IpAddr;

const FILE: &str = "/etc/resolv.conf";
/// Has the servers that systemd's resolver asks. Where it runs, `FILE` names only the resolver
/// itself, on loopback.
const BEHIND_RESOLVED: &str = "/run/systemd/resolve/resolv.conf";

/// Returns the name servers that this machine itself uses.
pub(super) fn own() -> Vec<IpAddr> {
    read(FILE).unwrap_or_else(|error| {
        tracing::warn!(%error, "this server has no name servers: {FILE} cannot be read");
        Vec::new()
    })
}

/// Returns the configured name servers for sandboxes, else those of this machine that they can
/// reach, which may be none.
pub(crate) fn of_sandboxes(wishes: &config::Node) -> io::Result<Vec<IpAddr>> {
    if !wishes.nameservers.is_empty() {
        return Ok(wishes.nameservers.clone());
    }
    choose(read(FILE)?, || match read(BEHIND_RESOLVED) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    })
}

/// Loopback is a sandbox's own, and sandboxes have no IPv6.
fn choose(
    own: Vec<IpAddr>,
    behind: impl FnOnce() -> io::Result<Vec<IpAddr>>,
) -> io::Result<Vec<IpAddr>> {
    let reached = |address: &IpAddr| address.is_ipv4() && !address.is_loopback();
    let only_resolver = !own.is_empty() && own.iter().all(IpAddr::is_loopback);
    let found = if only_resolver { behind()? } else { own };
    Ok(found.into_iter().filter(reached).collect())
}

fn read(file: &str) -> io::Result<Vec<IpAddr>> {
    Ok(listed(&std::fs::read_to_string(file)?))
}

fn listed(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    lines.filter_map(|address| address.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(own: &str, behind: &str, expect: &[&str]) {
        let chosen = choose(listed(own), || Ok(listed(behind))).unwrap();
        let chosen: Vec<_> = chosen.iter().map(ToString::to_string).collect();
        assert_eq!(chosen, expect, "{own}");
    }

    #[test]
    fn sandboxes_ask_what_they_can_reach() {
        let behind = "nameserver 192.0.2.1\nnameserver 2001:db8::1\n";
        check("nameserver 127.0.0.53\noptions edns0\n", behind, &["192.0.2.1"]);
        check("nameserver 127.0.0.1\nnameserver 192.0.2.7\n", behind, &["192.0.2.7"]);
        check("nameserver 2001:db8::2\nnameserver 192.0.2.8\n", behind, &["192.0.2.8"]);
        check("nameserver 127.0.0.1\n", "", &[]);
        check("search lan\n", behind, &[]);
    }
}
