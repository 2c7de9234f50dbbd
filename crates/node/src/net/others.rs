//! Firewall tables that are on this machine already, of other nodes and of this one.

use super::table;
use crate::settings::Subnet;
use std::io;

/// Returns the first table of another node whose instances have addresses of `subnet`. Each of two
/// such tables drops what instances of the other's node send to their proxy, also when that node is
/// gone.
pub(super) fn table_over(subnet: Subnet, own: &str) -> io::Result<Option<String>> {
    find(|name| name != own, |other| other.overlaps(subnet))
}

/// Returns true if there is this table, and the instances of its node have exactly these addresses.
pub(super) fn has(own: &str, subnet: Subnet) -> io::Result<bool> {
    Ok(find(|name| name == own, |own| own == subnet)?.is_some())
}

fn find(
    is_meant: impl Fn(&str) -> bool,
    fits: impl Fn(Subnet) -> bool,
) -> io::Result<Option<String>> {
    let tables = table::list(&["tables", "inet"])?;
    for name in tables.lines().filter_map(|line| line.strip_prefix("table inet ")) {
        if !name.starts_with(table::NAME_START) || !is_meant(name) {
            continue;
        }
        // If it cannot be listed, it was removed just now.
        let Ok(text) = table::list(&["table", "inet", name]) else { continue };
        if subnets(&text).any(&fits) {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

/// Returns the subnets whose traffic a table sends out under the machine's own address.
fn subnets(table: &str) -> impl Iterator<Item = Subnet> {
    let lines = table.lines().filter(|line| line.trim_end().ends_with("masquerade"));
    lines.flat_map(str::split_whitespace).filter_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_masqueraded_are_addresses_of_instances() {
        let text = "\tchain fence {\n\t\tip daddr 10.0.0.0/8 drop\n\t}\n\
                    \tip saddr 10.64.0.0/16 oifname != \"hx-*\" masquerade\n";
        let found: Vec<_> = subnets(text).map(|subnet| subnet.to_string()).collect();
        assert_eq!(found, ["10.64.0.0/16"]);
    }
}
