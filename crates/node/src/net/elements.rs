//! The part of a node's table that belongs to one instance: elements of its sets and maps.

use crate::settings::{Firewall, Level};
use std::collections::HashMap;
use std::fmt;
use std::net::Ipv4Addr;

/// All sets and maps, with their types.
pub(super) const SETS: [(&str, &str, &str); 6] = [
    ("set", NAMED, "ipv4_addr"),
    ("set", PROXIED, "ipv4_addr"),
    ("set", CLOSED, "ipv4_addr"),
    ("map", SOURCE_OF, "ipv4_addr : ipv4_addr"),
    ("map", GROUP_OF, "ipv4_addr : mark"),
    ("set", MEMBERS, "ipv4_addr . mark"),
];

/// Instances at this level or a stricter one. The next two likewise.
const NAMED: &str = "named";
const PROXIED: &str = "proxied";
const CLOSED: &str = "closed";
const SOURCE_OF: &str = "source_of";
const GROUP_OF: &str = "group_of";
const MEMBERS: &str = "members";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    Named(Ipv4Addr),
    Proxied(Ipv4Addr),
    Closed(Ipv4Addr),
    SourceOf(Ipv4Addr, Ipv4Addr),
    GroupOf(Ipv4Addr, u32),
    Member(Ipv4Addr, u32),
}

impl Element {
    pub(super) const fn set(self) -> &'static str {
        match self {
            Self::Named(_) => NAMED,
            Self::Proxied(_) => PROXIED,
            Self::Closed(_) => CLOSED,
            Self::SourceOf(..) => SOURCE_OF,
            Self::GroupOf(..) => GROUP_OF,
            Self::Member(..) => MEMBERS,
        }
    }

    pub(super) fn key(self) -> Vec<u8> {
        match self {
            Self::Named(address)
            | Self::Proxied(address)
            | Self::Closed(address)
            | Self::SourceOf(address, _)
            | Self::GroupOf(address, _) => address.octets().to_vec(),
            Self::Member(address, group) => [address.octets(), group.to_ne_bytes()].concat(),
        }
    }

    /// Returns the value that belongs to the key, for an element of a map.
    pub(super) const fn value(self) -> Option<[u8; 4]> {
        match self {
            Self::SourceOf(_, source) => Some(source.octets()),
            Self::GroupOf(_, group) => Some(group.to_ne_bytes()),
            Self::Named(_) | Self::Proxied(_) | Self::Closed(_) | Self::Member(..) => None,
        }
    }
}

/// Writes the element as `nft` reads it.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(address) | Self::Proxied(address) | Self::Closed(address) => address.fmt(f),
            Self::SourceOf(address, source) => write!(f, "{address} : {source}"),
            Self::GroupOf(address, group) => write!(f, "{address} : {group}"),
            Self::Member(address, group) => write!(f, "{address} . {group}"),
        }
    }
}

/// The groups, with the numbers by which the kernel tells them apart. They are assigned anew with
/// each table.
#[derive(Debug, Default)]
pub(super) struct Groups {
    last: u32,
    by_name: HashMap<String, Group>,
}

#[derive(Debug, Default)]
struct Group {
    number: u32,
    members: usize,
}

impl Groups {
    /// Adds a member to the group of a firewall, and returns the member's elements of the table.
    pub(super) fn join(&mut self, address: Ipv4Addr, firewall: &Firewall) -> Vec<Element> {
        if let Some(name) = &firewall.group {
            if !self.by_name.contains_key(name) {
                self.last += 1;
                let group = Group { number: self.last, members: 0 };
                self.by_name.insert(name.clone(), group);
            }
            if let Some(group) = self.by_name.get_mut(name) {
                group.members += 1;
            }
        }
        self.elements(address, firewall)
    }

    pub(super) fn leave(&mut self, firewall: &Firewall) {
        let Some(name) = &firewall.group else { return };
        if let Some(group) = self.by_name.get_mut(name) {
            group.members -= 1;
            if group.members == 0 {
                self.by_name.remove(name);
            }
        }
    }

    /// Returns a member's elements of the table.
    pub(super) fn elements(&self, address: Ipv4Addr, firewall: &Firewall) -> Vec<Element> {
        let mut elements = Vec::new();
        if firewall.level >= Level::Names {
            elements.push(Element::Named(address));
        }
        if firewall.level >= Level::Proxied {
            elements.push(Element::Proxied(address));
        }
        if firewall.level >= Level::Closed {
            elements.push(Element::Closed(address));
        }
        elements.extend(firewall.source.map(|source| Element::SourceOf(address, source)));
        let group = firewall.group.as_ref().and_then(|name| self.by_name.get(name));
        if let Some(Group { number, .. }) = group {
            elements
                .extend([Element::GroupOf(address, *number), Element::Member(address, *number)]);
        }
        elements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_one_number_for_as_long_as_it_has_members() {
        let mut groups = Groups::default();
        let of = |group: &str| Firewall { group: Some(group.to_owned()), ..Firewall::default() };
        let addresses = [1, 2, 3].map(|last| Ipv4Addr::new(10, 0, 0, last));
        let [one, two, three] = addresses;
        assert_eq!(groups.join(one, &of("a"))[0], Element::GroupOf(one, 1));
        assert_eq!(groups.join(two, &of("a"))[1], Element::Member(two, 1));
        assert_eq!(groups.join(three, &of("b"))[0], Element::GroupOf(three, 2));
        groups.leave(&of("a"));
        assert_eq!(groups.elements(two, &of("a"))[0], Element::GroupOf(two, 1));
        groups.leave(&of("a"));
        assert_eq!(groups.elements(two, &of("a")), []);
        assert_eq!(groups.join(one, &of("a"))[0], Element::GroupOf(one, 3), "no number twice");
    }

    #[test]
    fn each_level_has_all_before_it() {
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let count = |level| {
            Groups::default().elements(address, &Firewall { level, ..Firewall::default() }).len()
        };
        let levels = [Level::Open, Level::Names, Level::Proxied, Level::Closed];
        assert_eq!(levels.map(count), [0, 1, 2, 3]);
    }
}
