//! The operator's pool of addresses for egress gateways.

use std::net::IpAddr;
use types::kinds::egress_ip::IpFamily;

/// Most addresses of one entry; no operator means a larger range.
const RANGE_MAX: u128 = 4096;

/// The addresses that egress gateways can be given, in order. Each one must be routed to the
/// machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPool(Vec<Range>);

/// Consecutive addresses of one family, including both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    family: IpFamily,
    first: u128,
    last: u128,
}

impl EgressPool {
    /// Reads addresses (`203.0.113.7`), blocks (`203.0.113.8/29`) and ranges
    /// (`2001:db8::1-2001:db8::f`). The error says what is wrong with an entry.
    pub fn read<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Self, String> {
        let mut ranges: Vec<Range> = Vec::new();
        for text in texts {
            let range = Range::read(text.trim()).map_err(|why| format!("`{text}`: {why}"))?;
            if ranges.iter().any(|other| other.overlaps(&range)) {
                return Err(format!("`{text}`: has an address that another entry has"));
            }
            ranges.push(range);
        }
        ranges.sort_by_key(|range| range.first);
        Ok(Self(ranges))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all addresses of a family, the lowest first.
    pub(super) fn of(&self, family: IpFamily) -> impl Iterator<Item = IpAddr> + '_ {
        let ranges = self.0.iter().filter(move |range| range.family == family);
        ranges.flat_map(move |range| (range.first..=range.last).map(move |it| address(family, it)))
    }

    /// Returns the same as the fewest blocks.
    pub(super) fn blocks(&self, family: IpFamily) -> Vec<String> {
        let ranges = self.0.iter().filter(|range| range.family == family);
        ranges.flat_map(|range| range.blocks()).collect()
    }
}

fn bits(family: IpFamily) -> u32 {
    match family {
        IpFamily::IPv4 => 32,
        IpFamily::IPv6 => 128,
    }
}

fn address(family: IpFamily, number: u128) -> IpAddr {
    match family {
        // A range of this family was made from such addresses, so the number fits.
        IpFamily::IPv4 => IpAddr::V4((number as u32).into()),
        IpFamily::IPv6 => IpAddr::V6(number.into()),
    }
}

pub(super) fn family_of(address: IpAddr) -> IpFamily {
    match address {
        IpAddr::V4(_) => IpFamily::IPv4,
        IpAddr::V6(_) => IpFamily::IPv6,
    }
}

fn number(text: &str) -> Result<(IpFamily, u128), &'static str> {
    match text.parse().map_err(|_| "is no address, no block and no range of addresses")? {
        IpAddr::V4(address) => Ok((IpFamily::IPv4, address.to_bits().into())),
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Err("is an IPv4 address in the form of an IPv6 one")
        }
        IpAddr::V6(address) => Ok((IpFamily::IPv6, address.to_bits())),
    }
}

impl Range {
    fn read(text: &str) -> Result<Self, &'static str> {
        let range = if let Some((first, length)) = text.split_once('/') {
            Self::block(first, length)?
        } else if let Some((first, last)) = text.split_once('-') {
            let ((family, first), (other, last)) = (number(first.trim())?, number(last.trim())?);
            if family != other || last < first {
                return Err("its ends are of two families, or the wrong way round");
            }
            Self { family, first, last }
        } else {
            let (family, first) = number(text)?;
            Self { family, first, last: first }
        };
        match range.last - range.first {
            0..RANGE_MAX => Ok(range),
            _ => Err("has more than 4096 addresses"),
        }
    }

    fn block(first: &str, length: &str) -> Result<Self, &'static str> {
        let (family, first) = number(first)?;
        let length = length.parse().ok().filter(|length: &u32| *length <= bits(family));
        let host = bits(family) - length.ok_or("has a length that its family does not have")?;
        // The shift overflows if the block is all addresses.
        let mask = 1_u128.checked_shl(host).map_or(u128::MAX, |size| size - 1);
        if first & mask != 0 {
            return Err("has bits set beyond the length of the block");
        }
        Ok(Self { family, first, last: first | mask })
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.family == other.family && self.first <= other.last && other.first <= self.last
    }

    fn blocks(&self) -> Vec<String> {
        let (mut blocks, mut first) = (Vec::new(), self.first);
        while first <= self.last {
            let left = self.last - first;
            let mut host = first.trailing_zeros().min(bits(self.family));
            while host > 0 && (1_u128 << host) - 1 > left {
                host -= 1;
            }
            let block = address(self.family, first);
            blocks.push(format!("{block}/{}", bits(self.family) - host));
            match first.checked_add(1_u128 << host) {
                Some(next) => first = next,
                None => break,
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_are_addresses_blocks_and_ranges() {
        let pool =
            EgressPool::read(["203.0.113.9", " 203.0.113.4/31", "2001:db8::1 - 2001:db8::3"]);
        let pool = pool.unwrap();
        let shown = |family| pool.of(family).map(|it| it.to_string()).collect::<Vec<_>>();
        assert_eq!(shown(IpFamily::IPv4), ["203.0.113.4", "203.0.113.5", "203.0.113.9"]);
        assert_eq!(shown(IpFamily::IPv6), ["2001:db8::1", "2001:db8::2", "2001:db8::3"]);
        assert_eq!(pool.blocks(IpFamily::IPv4), ["203.0.113.4/31", "203.0.113.9/32"]);
        assert_eq!(pool.blocks(IpFamily::IPv6), ["2001:db8::1/128", "2001:db8::2/127"]);
        assert!(EgressPool::default().is_empty());
    }

    #[test]
    fn what_is_no_small_part_of_a_family_is_refused() {
        for odd in [
            "",
            "x",
            "1.2.3",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/8",
            "::/0",
            "1.2.3.4-::1",
            "1.2.3.4-1.2.3.3",
            "::ffff:1.2.3.4",
            "1.2.3.4-",
            "0.0.0.0/0",
            "1.2.3.4/-1",
        ] {
            assert!(EgressPool::read([odd]).is_err(), "{odd}");
        }
        assert!(EgressPool::read(["1.2.3.0/24", "1.2.3.7"]).is_err(), "twice");
    }

    proptest! {
        #[test]
        fn blocks_are_exactly_the_range(first: u32, more in 0..4096_u32) {
            let last = first.saturating_add(more);
            let text = format!("{}-{}", std::net::Ipv4Addr::from_bits(first), std::net::Ipv4Addr::from_bits(last));
            let pool = EgressPool::read([text.as_str()]).unwrap();
            let blocks = pool.blocks(IpFamily::IPv4);
            let again = EgressPool::read(blocks.iter().map(String::as_str)).unwrap();
            prop_assert!(again.of(IpFamily::IPv4).eq(pool.of(IpFamily::IPv4)));
            prop_assert_eq!(pool.of(IpFamily::IPv4).count() as u32, last - first + 1);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-f:./ -]{0,24}") {
            drop(EgressPool::read([text.as_str()]));
        }
    }
}
