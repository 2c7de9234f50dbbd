//! The inner end of a tunnel: an interface in the network of an instance.

use super::Home;
use super::netlink::{INNER_INDEX, Netlink};
use super::wire::GATEWAY;
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::fs::write;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use types::tunnel::{Network, TunnelSettings};

const DEVICE: &str = "/dev/net/tun";
/// How long to wait until an earlier interface of the same name is gone.
const FREE_TRIES: u32 = 200;
const FREE_PAUSE: Duration = Duration::from_millis(10);

impl Home {
    /// Makes the interface, which is removed with the descriptor. The addresses in `kept` stay
    /// reachable as before, past the tunnel.
    pub(crate) fn make_tun(
        &self,
        namespace: impl AsFd,
        settings: &TunnelSettings,
        mtu: u16,
        kept: &[Ipv4Addr],
    ) -> io::Result<OwnedFd> {
        self.within(namespace, || make(settings, mtu, kept))?
    }
}

fn make(settings: &TunnelSettings, mtu: u16, kept: &[Ipv4Addr]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tun = open(DEVICE, flags, Mode::empty())?;
    when_free(|| sys::make_tun(tun.as_fd(), &settings.interface))?;
    let name = &settings.interface;
    // Whoever is at the other end must not reach the instance's other network.
    write(format!("/proc/sys/net/ipv4/conf/{name}/forwarding"), "0")?;
    let speaks_v6 =
        settings.allowed.iter().chain([&settings.local]).any(|network| network.address.is_ipv6());
    if speaks_v6 {
        write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "0")?;
    }
    let mut netlink = Netlink::open()?;
    let index = netlink.index(name)?;
    netlink.set_mtu(index, mtu.into())?;
    netlink.add_network(index, settings.local.address, settings.local.bits)?;
    netlink.set_up(index)?;
    for address in kept {
        lenient(netlink.add_route(INNER_INDEX, *address, 32, Some(GATEWAY)))?;
    }
    for network in routes(settings) {
        lenient(netlink.add_direct_route(index, network.first(), network.bits))?;
    }
    Ok(tun)
}

/// Repeats an attempt to take a name while an earlier interface has it. An interface goes with the
/// last copy of its descriptor, and a process that is being started for another instance has copies
/// of all descriptors until it executes its program.
fn when_free(mut attempt: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    for _ in 1..FREE_TRIES {
        match attempt() {
            Err(Errno::BUSY) => std::thread::sleep(FREE_PAUSE),
            done => return done,
        }
    }
    attempt()
}

/// Ignores that something exists already: from an earlier tunnel, or because two networks are the
/// same.
fn lenient(added: io::Result<()>) -> io::Result<()> {
    match added {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        added => added,
    }
}

/// Returns the networks to route through the tunnel. "All addresses" of a family becomes two
/// halves, which take precedence over the existing default route and leave it in place. Without
/// `routes_all` it gets no route although it is allowed, because settings that say nothing also
/// allow all.
fn routes(settings: &TunnelSettings) -> Vec<Network> {
    let halves = |address: IpAddr| match address {
        IpAddr::V4(_) => [Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(128, 0, 0, 0)].map(IpAddr::from),
        IpAddr::V6(_) => {
            [Ipv6Addr::UNSPECIFIED, Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0)].map(IpAddr::from)
        }
    };
    let of = |network: &Network| match (network.bits, settings.routes_all) {
        (0, true) => halves(network.address).map(|address| Network { address, bits: 1 }).to_vec(),
        (0, false) => Vec::new(),
        _ => vec![*network],
    };
    settings.allowed.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_an_earlier_interface_has_is_waited_for() {
        let mut busy = 3;
        let attempt = || match busy {
            0 => Ok(()),
            _ => {
                busy -= 1;
                Err(Errno::BUSY)
            }
        };
        when_free(attempt).unwrap();
        assert_eq!(busy, 0);
        let mut attempts = 0;
        let refused = when_free(|| {
            attempts += 1;
            Err(Errno::PERM)
        });
        assert_eq!((refused, attempts), (Err(Errno::PERM), 1));
    }
}
