//! Checks of the way that sandboxes have to the internet on this machine.

use super::finding::Finding;
use crate::config::{Config, Egress, Role};
use crate::server::name_servers;
use std::net::IpAddr;

pub(super) fn look(config: &Config) -> Vec<Finding> {
    if !config.server.roles.contains(&Role::Node) || config.node.egress == Egress::Nothing {
        return Vec::new();
    }
    vec![resolvers(config)]
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
