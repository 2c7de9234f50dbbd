//! Remembers which addresses an instance was given for which names.

use std::collections::HashMap;
use std::net::Ipv4Addr;

#[derive(Debug)]
pub(crate) struct GivenOut {
    max: usize,
    count: usize,
    by_address: HashMap<Ipv4Addr, Vec<Given>>,
}

#[derive(Debug)]
struct Given {
    name: String,
    until_ms: i64,
}

impl GivenOut {
    pub(crate) fn new(max: usize) -> Self {
        Self { max: max.max(1), count: 0, by_address: HashMap::new() }
    }

    pub(crate) fn note(&mut self, name: &str, addresses: &[Ipv4Addr], now_ms: i64, until_ms: i64) {
        for address in addresses {
            let names = self.by_address.entry(*address).or_default();
            if let Some(given) = names.iter_mut().find(|given| given.name == name) {
                given.until_ms = given.until_ms.max(until_ms);
                continue;
            }
            names.push(Given { name: name.to_owned(), until_ms });
            self.count += 1;
        }
        if self.count > self.max {
            self.make_room(now_ms);
        }
    }

    pub(crate) fn names_of(&self, address: Ipv4Addr, now_ms: i64) -> Vec<String> {
        let names = self.by_address.get(&address).map(Vec::as_slice).unwrap_or_default();
        let valid = names.iter().filter(|given| given.until_ms > now_ms);
        valid.map(|given| given.name.clone()).collect()
    }

    /// Drops what has expired, or if that is not enough, the quarter that would expire first.
    /// Finding only the next to expire for each question would cost as much.
    fn make_room(&mut self, now_ms: i64) {
        let mut ends: Vec<i64> =
            self.by_address.values().flatten().map(|given| given.until_ms).collect();
        ends.sort_unstable();
        let valid = ends.len() - ends.partition_point(|end| *end <= now_ms);
        let kept = self.max - self.max / 4;
        let last_dropped = if valid > self.max { ends[ends.len() - kept] } else { now_ms };
        // Entries that expire at the same time are dropped together, even if that is all of them,
        // so that there is always room after this.
        self.by_address.retain(|_, names| {
            names.retain(|given| given.until_ms > last_dropped);
            !names.is_empty()
        });
        self.count = self.by_address.values().map(Vec::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    #[test]
    fn a_name_counts_until_it_expires() {
        let mut given = GivenOut::new(4);
        given.note("a.example", &[ONE], 0, 10);
        given.note("b.example", &[ONE], 0, 20);
        given.note("a.example", &[ONE], 0, 5);
        assert_eq!(given.names_of(ONE, 9), ["a.example", "b.example"]);
        assert_eq!(given.names_of(ONE, 10), ["b.example"]);
        assert!(given.names_of(Ipv4Addr::new(192, 0, 2, 2), 0).is_empty());
    }

    proptest! {
        #[test]
        fn it_never_holds_more_than_its_limit(
            notes in proptest::collection::vec((0u8..20, 0u32..40, 0i64..100), 1..200),
            max in 1usize..20,
        ) {
            let mut given = GivenOut::new(max);
            for (name, address, until) in notes {
                given.note(&name.to_string(), &[Ipv4Addr::from_bits(address)], 50, until);
                let held: usize = given.by_address.values().map(Vec::len).sum();
                prop_assert_eq!(held, given.count);
                prop_assert!(held <= max);
            }
        }
    }
}
