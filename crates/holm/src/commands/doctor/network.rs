//! Checks of the way that sandboxes have to the internet on this machine.

use super::finding::Finding;
use crate::config::{Config, Egress, Role};
use crate::server::other_firewalls::{self, Problem};
use crate::server::{machine_name, name_servers};
use node::Subnet;
use std::net::IpAddr;

pub(super) fn look(config: &Config) -> Vec<Finding> {
    if !config.server.roles.contains(&Role::Node) || config.node.egress == Egress::Nothing {
        return Vec::new();
    }
    let mut findings = vec![resolvers(config)];
    // What cannot be read is an error of the settings, which the server names at its start.
    if let Ok(subnet) = config.node.subnet.parse() {
        findings.push(addresses(subnet));
        let node = machine_name::of_node(&machine_name::find(&config.data.folder));
        findings.extend(way_out(&node, subnet));
    }
    findings
}

fn resolvers(config: &Config) -> Finding {
    const CHECK: &str = "name servers";
    let remedy = "sandboxes without network rules resolve no names: set node.nameservers";
    match name_servers::of_sandboxes(&config.node) {
        Ok(found) if found.is_empty() => {
            Finding::warn(CHECK, "this machine has none that sandboxes can reach", remedy)
        }
        Ok(found) => {
            let found: Vec<_> = found.iter().map(IpAddr::to_string).collect();
            Finding::ok(CHECK, found.join(", "))
        }
        Err(error) => Finding::warn(CHECK, format!("cannot be read: {error}"), remedy),
    }
}

/// Checks that the addresses of sandboxes belong to nobody else here.
fn addresses(subnet: Subnet) -> Finding {
    const CHECK: &str = "node.subnet";
    let found = match node::overlaps(subnet) {
        Ok(found) => found,
        Err(error) => {
            return Finding::warn(CHECK, format!("routes cannot be read: {error}"), "mount /proc");
        }
    };
    let names = |reached: &[node::Reached]| {
        let each = reached.iter().map(|one| format!("{} ({})", one.network, one.interface));
        each.collect::<Vec<_>>().join(", ")
    };
    let remedy = "set node.subnet to a range that nothing here uses";
    match (found.within.as_slice(), found.around.as_slice()) {
        ([], []) => Finding::ok(CHECK, format!("{subnet} is no network of this machine")),
        ([], around) => Finding::warn(
            CHECK,
            format!(
                "this machine reaches nobody who has an address of {subnet} in {}",
                names(around)
            ),
            remedy,
        ),
        (within, _) => Finding::fail(
            CHECK,
            format!("{subnet} has addresses of networks of this machine: {}", names(within)),
            remedy,
        ),
    }
}

fn way_out(node: &str, subnet: Subnet) -> Vec<Finding> {
    const CHECK: &str = "way out";
    match other_firewalls::look(node, subnet) {
        Ok(found) if found.is_empty() => {
            vec![Finding::ok(CHECK, "what sandboxes send gets past the firewalls of this machine")]
        }
        Ok(found) => {
            let each = found.into_iter();
            each.map(|Problem { says, remedy }| Finding::warn(CHECK, says, remedy)).collect()
        }
        Err(error) => {
            let remedy = "run `holm doctor` as root, with nft";
            vec![Finding::warn(CHECK, format!("cannot be tried: {error}"), remedy)]
        }
    }
}
