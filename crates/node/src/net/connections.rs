//! Makes the kernel forget connections, by the messages of its connection tracking.

use super::netfilter::{Netfilter, general};
use super::netlink::{Message, flags};
use crate::number::fit;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::net::Ipv4Addr;

/// A connection as the kernel lists it.
struct Connection {
    /// The attributes that say between whom it is.
    tuple: Vec<u8>,
    id: Vec<u8>,
}

impl Netfilter {
    /// Makes the kernel forget connections that this address has started, except for those that are
    /// diverted. Their next packets are checked against the rules like those of new connections.
    pub(super) fn forget_connections(&mut self, source: Ipv4Addr) -> io::Result<()> {
        match self.forget_together(source) {
            // Kernels before 6.12 select here only by the whole tuple of one connection.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.forget_each(source),
            done => done,
        }
    }

    fn forget_together(&mut self, source: Ipv4Addr) -> io::Result<()> {
        self.ask(about_those_of(source, CT_DELETE, 0))
    }

    fn forget_each(&mut self, source: Ipv4Addr) -> io::Result<()> {
        for Connection { tuple, id } in self.connections(source)? {
            let mut message = message(CT_DELETE, 0);
            message.nested(CTA_TUPLE_ORIG, |inner| inner.raw(&tuple));
            message.bytes(CTA_ID, &id);
            match self.ask(message) {
                // It has ended by itself.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
        }
        Ok(())
    }

    fn connections(&mut self, source: Ipv4Addr) -> io::Result<Vec<Connection>> {
        let (sequence, list) = (self.next(), flags(libc::NLM_F_DUMP));
        let message = about_those_of(source, CT_GET, list).finish(sequence);
        send(&self.socket, &message, SendFlags::empty())?;
        let (mut found, mut bytes) = (Vec::new(), vec![0; LIST_BYTES]);
        loop {
            let (_, length) = recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT)?;
            for (header, body) in messages(bytes.get(..length).unwrap_or(&bytes)) {
                match header.kind {
                    _ if header.sequence != sequence => {}
                    DONE => return Ok(found),
                    FAILED => {
                        let code = word(body, 0).map(i32::from_ne_bytes);
                        let code = code.ok_or(io::ErrorKind::InvalidData)?;
                        return Err(Errno::from_raw_os_error(code.saturating_neg()).into());
                    }
                    _ => found.extend(body.get(GENERAL_BYTES..).and_then(connection)),
                }
            }
        }
    }
}

fn message(kind: i32, extra: u16) -> Message {
    let kind = libc::NFNL_SUBSYS_CTNETLINK << 8 | kind;
    let mut message = Message::new(fit(kind), extra);
    message.raw(&general(libc::AF_INET, 0));
    message
}

/// Makes a message about the connections that this address has started and that are not diverted.
fn about_those_of(source: Ipv4Addr, kind: i32, extra: u16) -> Message {
    let mut message = message(kind, extra);
    message.nested(CTA_TUPLE_ORIG, |tuple| {
        tuple.nested(CTA_TUPLE_IP, |ip| ip.bytes(CTA_IP_V4_SRC, &source.octets()));
    });
    // Without this the kernel would look for a single connection with exactly this tuple.
    message.nested(CTA_FILTER, |filter| {
        filter.number(CTA_FILTER_ORIG_FLAGS, CTA_FILTER_IP_SRC);
        filter.number(CTA_FILTER_REPLY_FLAGS, 0);
    });
    // Of all that the mask selects, nothing may be set.
    message.bytes(CTA_STATUS, &0_u32.to_be_bytes());
    message.bytes(CTA_STATUS_MASK, &IPS_DST_NAT.to_be_bytes());
    message
}

struct Header {
    kind: u16,
    sequence: u32,
}

/// Takes an answer of the kernel apart into messages.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (Header, &[u8])> {
    std::iter::from_fn(move || {
        let length: usize = fit(u32::from_ne_bytes(word(bytes, 0)?));
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let sequence = u32::from_ne_bytes(word(bytes, 8)?);
        let body = bytes.get(HEADER_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((Header { kind, sequence }, body))
    })
}

/// Takes a message or an attribute apart into attributes, each with its kind.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length: usize = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?).into();
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & !flags(libc::NLA_F_NESTED), value))
    })
}

fn connection(message: &[u8]) -> Option<Connection> {
    let find = |wanted| attributes(message).find(|(kind, _)| *kind == wanted);
    let (tuple, id) = (find(CTA_TUPLE_ORIG)?.1.to_owned(), find(CTA_ID)?.1.to_owned());
    Some(Connection { tuple, id })
}

fn word(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at + 4)?.try_into().ok()
}

/// The kernel puts no more into one answer.
const LIST_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 16;
/// What all messages of netfilter begin with.
const GENERAL_BYTES: usize = 4;
const FAILED: u16 = libc::NLMSG_ERROR as u16;
const DONE: u16 = libc::NLMSG_DONE as u16;

// From linux/netfilter/nfnetlink_conntrack.h.
const CT_GET: i32 = 1;
const CT_DELETE: i32 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_STATUS: u16 = 3;
const CTA_ID: u16 = 12;
const CTA_FILTER: u16 = 25;
const CTA_STATUS_MASK: u16 = 26;
const CTA_TUPLE_IP: u16 = 1;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
const CTA_FILTER_IP_SRC: u32 = 1;

// From linux/netfilter/nf_conntrack_common.h.
const IPS_DST_NAT: u32 = 1 << 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::netlink::{LOOPBACK_INDEX, Netlink};
    use crate::net::table;
    use crate::sys;
    use std::net::UdpSocket;

    const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

    /// In a network of its own, in which connections are tracked.
    fn tracked(work: impl FnOnce(&mut Netfilter) + Send + 'static) {
        let thread = std::thread::spawn(|| {
            sys::leave_network().unwrap();
            Netlink::open().unwrap().set_up(LOOPBACK_INDEX).unwrap();
            table::write(
                "add table inet t\nadd chain inet t c { type filter hook output priority 0; }\n\
                 add rule inet t c ct state invalid drop\n",
            )
            .unwrap();
            work(&mut Netfilter::open().unwrap());
        });
        thread.join().unwrap();
    }

    fn send_from(source: Ipv4Addr, count: u16) -> Vec<UdpSocket> {
        let send = |port| {
            let socket = UdpSocket::bind((source, 0)).unwrap();
            socket.send_to(b"one", (Ipv4Addr::LOCALHOST, 1_000 + port)).unwrap();
            socket
        };
        (0..count).map(send).collect()
    }

    #[test]
    fn connections_of_one_address_are_forgotten_by_old_kernels_too() {
        tracked(|netfilter| {
            for forget in [Netfilter::forget_each, Netfilter::forget_connections] {
                let _sockets = (send_from(ONE, 300), send_from(OTHER, 2));
                assert_eq!(netfilter.connections(ONE).unwrap().len(), 300);
                assert_eq!(netfilter.connections(OTHER).unwrap().len(), 2);
                forget(netfilter, ONE).unwrap();
                assert_eq!(netfilter.connections(ONE).unwrap().len(), 0);
                assert_eq!(netfilter.connections(OTHER).unwrap().len(), 2);
                forget(netfilter, OTHER).unwrap();
            }
        });
    }
}
