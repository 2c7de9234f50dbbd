//! The few nfnetlink messages that add and remove elements of sets. Running `nft` would take two
//! milliseconds for each.

use super::elements::Element;
use super::netlink::{Message, flags};
use crate::number::fit;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use std::io;

/// A change of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Add(Element),
    Remove(Element),
}

#[derive(Debug)]
pub(super) struct Netfilter {
    pub(super) socket: OwnedFd,
    sequence: u32,
}

impl Netfilter {
    /// Opens a socket for the network that the thread is in now. It can be used from any thread
    /// later.
    pub(super) fn open() -> io::Result<Self> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        let protocol = Some(netlink::NETFILTER);
        let socket = socket_with(AddressFamily::NETLINK, kind, flags, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Makes all changes to the sets of a table, or none.
    pub(super) fn change(&mut self, table: &str, changes: &[Change]) -> io::Result<()> {
        let batch = |kind| {
            let mut message = Message::unanswered(fit(kind));
            message.raw(&general(libc::AF_UNSPEC, fit(libc::NFNL_SUBSYS_NFTABLES)));
            message
        };
        let mut bytes = batch(libc::NFNL_MSG_BATCH_BEGIN).finish(self.next());
        let first = self.sequence.wrapping_add(1);
        for change in changes {
            bytes.extend(message(table, *change).finish(self.next()));
        }
        bytes.extend(batch(libc::NFNL_MSG_BATCH_END).finish(self.next()));
        send(&self.socket, &bytes, SendFlags::empty())?;
        self.answers(first, changes.len())
    }

    /// Sends a message that has one answer.
    pub(super) fn ask(&mut self, message: Message) -> io::Result<()> {
        let sequence = self.next();
        send(&self.socket, &message.finish(sequence), SendFlags::empty())?;
        self.answers(sequence, 1)
    }

    pub(super) fn next(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Reads the answers to `wanted` messages, the first of which has the number `first`. The
    /// kernel has written all of them before the send returned.
    fn answers(&self, first: u32, wanted: usize) -> io::Result<()> {
        let (mut count, mut result) = (0, Ok(()));
        let mut answer = [0_u8; 4_096];
        while count < wanted {
            let length = match recv(&self.socket, &mut answer, RecvFlags::DONTWAIT) {
                Ok((_, length)) => length,
                // A batch that failed as a whole has one answer.
                Err(Errno::AGAIN) if result.is_err() => break,
                Err(Errno::AGAIN) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => return Err(error.into()),
            };
            let Some((sequence, code)) = answer.get(..length).and_then(read) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            // These are answers to an earlier batch, which could not be read then.
            if sequence.wrapping_sub(first) > fit::<u32, _>(wanted) {
                continue;
            }
            count += 1;
            if code != 0 && result.is_ok() {
                result = Err(Errno::from_raw_os_error(code.saturating_neg()).into());
            }
        }
        result
    }
}

/// Returns the number of the message that is answered, and the result.
fn read(answer: &[u8]) -> Option<(u32, i32)> {
    let word = |at: usize| answer.get(at..at + 4).and_then(|word| <[u8; 4]>::try_from(word).ok());
    Some((u32::from_ne_bytes(word(8)?), i32::from_ne_bytes(word(16)?)))
}

/// Makes the header that all nfnetlink messages have.
pub(super) fn general(family: i32, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [fit(family), 0, high, low]
}

fn message(table: &str, change: Change) -> Message {
    let (kind, extra, element) = match change {
        Change::Add(element) => (libc::NFT_MSG_NEWSETELEM, flags(libc::NLM_F_CREATE), element),
        Change::Remove(element) => (libc::NFT_MSG_DELSETELEM, 0, element),
    };
    let mut message = Message::new(fit(libc::NFNL_SUBSYS_NFTABLES << 8 | kind), extra);
    message.raw(&general(libc::NFPROTO_INET, 0));
    message.text(ELEM_LIST_TABLE, table);
    message.text(ELEM_LIST_SET, element.set());
    message.nested(ELEM_LIST_ELEMENTS, |list| {
        list.nested(LIST_ELEM, |one| {
            one.nested(ELEM_KEY, |key| key.bytes(DATA_VALUE, &element.key()));
            if let (Some(value), Change::Add(_)) = (element.value(), change) {
                one.nested(ELEM_DATA, |data| data.bytes(DATA_VALUE, &value));
            }
        });
    });
    message
}

// From linux/netfilter/nf_tables.h.
const ELEM_LIST_TABLE: u16 = 1;
const ELEM_LIST_SET: u16 = 2;
const ELEM_LIST_ELEMENTS: u16 = 3;
const LIST_ELEM: u16 = 1;
const ELEM_KEY: u16 = 1;
const ELEM_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
