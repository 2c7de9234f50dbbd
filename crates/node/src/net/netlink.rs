//! The few rtnetlink messages needed to set up a link. Running `ip` would take a millisecond for
//! each.

use crate::number::fit;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// The number of the first interface in a new namespace after loopback.
pub(super) const INNER_INDEX: u32 = 2;
pub(super) const LOOPBACK_INDEX: u32 = 1;
const HEADER_BYTES: usize = 16;

pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket for the network that the thread is in now.
    pub(super) fn open() -> io::Result<Self> {
        // `None` means protocol 0, which is rtnetlink.
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Makes a pair of interfaces, the far one of which is in another network from the start.
    /// Neither may be up yet, which the kernel refuses.
    pub(super) fn add_pair(
        &mut self,
        name: &str,
        near: [u8; 6],
        far: [u8; 6],
        network: &OwnedFd,
    ) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, create());
        message.link(0, 0);
        message.text(libc::IFLA_IFNAME, name);
        message.bytes(libc::IFLA_ADDRESS, &near);
        message.nest(libc::IFLA_LINKINFO, |info| {
            info.text(libc::IFLA_INFO_KIND, "veth");
            info.nest(libc::IFLA_INFO_DATA, |data| {
                data.nest(VETH_INFO_PEER, |peer| {
                    peer.link(INNER_INDEX, 0);
                    peer.text(libc::IFLA_IFNAME, "eth0");
                    peer.bytes(libc::IFLA_ADDRESS, &far);
                    peer.number(libc::IFLA_NET_NS_FD, network.as_raw_fd().unsigned_abs());
                });
            });
        });
        self.ask(message)
    }

    pub(super) fn index(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.socket, name)?)
    }

    /// Has the kernel make no IPv6 address for an interface that is not up yet. It would make
    /// routes for it and announce it, and search through all connections when it goes.
    pub(super) fn without_own_ipv6(&mut self, index: u32) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message.link(index, 0);
        message.nest(libc::IFLA_AF_SPEC, |families| {
            families.nest(fit(libc::AF_INET6), |six| {
                six.bytes(ADDRESS_MODE, &[NO_ADDRESSES]);
            });
        });
        match self.ask(message) {
            // The kernel has no IPv6.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(()),
            done => done,
        }
    }

    /// Puts an interface into a group, whose number rules of the firewall can read.
    pub(super) fn set_group(&mut self, index: u32, group: u32) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message.link(index, 0);
        message.number(libc::IFLA_GROUP, group);
        self.ask(message)
    }

    pub(super) fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message.link(index, libc::IFF_UP.unsigned_abs());
        self.ask(message)
    }

    pub(super) fn set_down(&mut self, index: u32) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message.raw(&[0; 4]);
        message.raw(&index.to_ne_bytes());
        // No flags are set, and this one is in the mask of those to change.
        message.raw(&0_u32.to_ne_bytes());
        message.raw(&libc::IFF_UP.unsigned_abs().to_ne_bytes());
        self.ask(message)
    }

    /// Removes an interface, and the other end of its pair.
    pub(super) fn remove(&mut self, index: u32) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_DELLINK, 0);
        message.link(index, 0);
        self.ask(message)
    }

    pub(super) fn add_address(&mut self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        let message = Message::new(libc::RTM_NEWADDR, create());
        self.ask(message.address(index, address, libc::RT_SCOPE_UNIVERSE))
    }

    /// Gives an interface an address that the kernel does not choose as a source by itself.
    pub(super) fn add_quiet_address(&mut self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        let message = Message::new(libc::RTM_NEWADDR, create());
        self.ask(message.address(index, address, libc::RT_SCOPE_HOST))
    }

    pub(super) fn remove_quiet_address(&mut self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        let message = Message::new(libc::RTM_DELADDR, 0);
        self.ask(message.address(index, address, libc::RT_SCOPE_HOST))
    }

    pub(super) fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message.link(index, 0);
        message.number(libc::IFLA_MTU, mtu);
        self.ask(message)
    }

    /// Gives an interface an address, and a route to the network that the address is in.
    pub(super) fn add_network(&mut self, index: u32, address: IpAddr, bits: u8) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWADDR, create());
        // Nobody else there could have the same IPv6 address.
        let no_search: u8 = fit(libc::IFA_F_NODAD);
        message.raw(&[family(address), bits, no_search, libc::RT_SCOPE_UNIVERSE]);
        message.raw(&index.to_ne_bytes());
        message.address_bytes(libc::IFA_LOCAL, address);
        message.address_bytes(libc::IFA_ADDRESS, address);
        self.ask(message)
    }

    /// Adds a route to a network that is directly reached through an interface.
    pub(super) fn add_direct_route(&mut self, index: u32, to: IpAddr, bits: u8) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWROUTE, create());
        let scope = libc::RT_SCOPE_LINK;
        message.raw(&[family(to), bits, 0, 0]);
        message.raw(&[libc::RT_TABLE_MAIN, libc::RTPROT_STATIC, scope, libc::RTN_UNICAST]);
        message.raw(&0_u32.to_ne_bytes());
        if bits > 0 {
            message.address_bytes(libc::RTA_DST, to);
        }
        message.number(libc::RTA_OIF, index);
        self.ask(message)
    }

    pub(super) fn add_route(
        &mut self,
        index: u32,
        to: Ipv4Addr,
        bits: u8,
        gateway: Option<Ipv4Addr>,
    ) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWROUTE, create());
        let scope = if gateway.is_some() { libc::RT_SCOPE_UNIVERSE } else { libc::RT_SCOPE_LINK };
        message.raw(&[byte(libc::AF_INET), bits, 0, 0]);
        message.raw(&[libc::RT_TABLE_MAIN, libc::RTPROT_STATIC, scope, libc::RTN_UNICAST]);
        message.raw(&0_u32.to_ne_bytes());
        if bits > 0 {
            message.bytes(libc::RTA_DST, &to.octets());
        }
        if let Some(gateway) = gateway {
            message.bytes(libc::RTA_GATEWAY, &gateway.octets());
        }
        message.number(libc::RTA_OIF, index);
        self.ask(message)
    }

    pub(super) fn add_neighbour(
        &mut self,
        index: u32,
        address: Ipv4Addr,
        hardware: [u8; 6],
    ) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWNEIGH, create());
        message.raw(&[byte(libc::AF_INET), 0, 0, 0]);
        message.raw(&index.to_ne_bytes());
        message.raw(&libc::NUD_PERMANENT.to_ne_bytes());
        message.raw(&[0, 0]);
        message.bytes(libc::NDA_DST, &address.octets());
        message.bytes(libc::NDA_LLADDR, &hardware);
        self.ask(message)
    }

    fn ask(&mut self, message: Message) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.socket, &message.finish(self.sequence), SendFlags::empty())?;
        let mut answer = [0_u8; 4096];
        let (_, length) = recv(&self.socket, &mut answer, RecvFlags::empty())?;
        let code =
            answer.get(..length).and_then(|answer| answer.get(HEADER_BYTES..HEADER_BYTES + 4));
        match code.and_then(|code| <[u8; 4]>::try_from(code).ok()).map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(code) => Err(Errno::from_raw_os_error(code.saturating_neg()).into()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

const VETH_INFO_PEER: u16 = 1;
/// The kernel's `IFLA_INET6_ADDR_GEN_MODE` and `IN6_ADDR_GEN_MODE_NONE`.
const ADDRESS_MODE: u16 = 8;
const NO_ADDRESSES: u8 = 1;

fn create() -> u16 {
    flags(libc::NLM_F_CREATE | libc::NLM_F_EXCL)
}

pub(super) fn flags(flags: i32) -> u16 {
    fit(flags)
}

fn family(address: IpAddr) -> u8 {
    byte(if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 })
}

fn byte(number: i32) -> u8 {
    fit(number)
}

/// A message: a header, a fixed part, and attributes that may nest. Everything is padded to four
/// bytes.
pub(super) struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Message {
    pub(super) fn new(kind: u16, extra: u16) -> Self {
        let flags = flags(libc::NLM_F_REQUEST | libc::NLM_F_ACK) | extra;
        Self { kind, flags, body: Vec::with_capacity(256) }
    }

    /// Makes a message that is answered only if it fails.
    pub(super) fn unanswered(kind: u16) -> Self {
        Self { kind, flags: flags(libc::NLM_F_REQUEST), body: Vec::new() }
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
    }

    /// Writes the fixed part of messages about interfaces.
    fn link(&mut self, index: u32, up: u32) {
        self.raw(&[0; 4]);
        self.raw(&index.to_ne_bytes());
        self.raw(&up.to_ne_bytes());
        self.raw(&up.to_ne_bytes());
    }

    /// Completes a message about a single address of an interface.
    fn address(mut self, index: u32, address: Ipv4Addr, scope: u8) -> Self {
        self.raw(&[byte(libc::AF_INET), 32, 0, scope]);
        self.raw(&index.to_ne_bytes());
        self.bytes(libc::IFA_LOCAL, &address.octets());
        self.bytes(libc::IFA_ADDRESS, &address.octets());
        self
    }

    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.nest(kind, |inner| inner.raw(value));
    }

    fn address_bytes(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.bytes(kind, &address.octets()),
            IpAddr::V6(address) => self.bytes(kind, &address.octets()),
        }
    }

    pub(super) fn text(&mut self, kind: u16, value: &str) {
        self.nest(kind, |inner| {
            inner.raw(value.as_bytes());
            inner.raw(&[0]);
        });
    }

    pub(super) fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// Nests attributes, with the flag that newer parts of the kernel require.
    pub(super) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        self.nest(kind | flags(libc::NLA_F_NESTED), fill);
    }

    fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.body.len();
        self.raw(&[0; 4]);
        fill(self);
        let length: u16 = fit(self.body.len() - start);
        if let Some(header) = self.body.get_mut(start..start + 4) {
            header[..2].copy_from_slice(&length.to_ne_bytes());
            header[2..].copy_from_slice(&kind.to_ne_bytes());
        }
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    pub(super) fn finish(self, sequence: u32) -> Vec<u8> {
        let length: u32 = fit(HEADER_BYTES + self.body.len());
        let mut message = Vec::with_capacity(HEADER_BYTES + self.body.len());
        message.extend(length.to_ne_bytes());
        message.extend(self.kind.to_ne_bytes());
        message.extend(self.flags.to_ne_bytes());
        message.extend(sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(self.body);
        message
    }
}
