//! Messages between the node and the starter or one of its forks.

use super::Failure;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use types::start::{Answer, LAST, PACKET_DESCRIPTORS_MAX};

/// The descriptors of a message, taken in the order in which the node puts them.
pub(super) struct Descriptors(std::vec::IntoIter<OwnedFd>);

impl Descriptors {
    pub(super) fn next(&mut self, what: &'static str) -> Result<OwnedFd, Failure> {
        self.0.next().ok_or(Failure { what: what.into(), errno: Errno::BADF })
    }

    pub(super) fn take(
        &mut self,
        count: usize,
        what: &'static str,
    ) -> Result<Vec<OwnedFd>, Failure> {
        (0..count).map(|_| self.next(what)).collect()
    }
}

/// Waits for a message. `None` means that the node is gone.
pub(super) fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
) -> Result<Option<(T, Descriptors)>, Failure> {
    let reading = |errno| Failure { what: "read what it is told".into(), errno };
    let mut descriptors = Vec::new();
    loop {
        match packet(&socket, &mut descriptors).map_err(reading)? {
            None => return Ok(None),
            Some(LAST) => break,
            Some(_) => {}
        }
    }
    let mut descriptors = descriptors.into_iter();
    let mut body = File::from(descriptors.next().ok_or(reading(Errno::BADMSG))?);
    let mut text = Vec::new();
    body.read_to_end(&mut text).map_err(|_| reading(Errno::IO))?;
    let message = serde_json::from_slice(&text).map_err(|_| reading(Errno::BADMSG))?;
    Ok(Some((message, Descriptors(descriptors))))
}

/// Receives one packet. Returns its byte, or `None` at the end.
fn packet(socket: impl AsFd, into: &mut Vec<OwnedFd>) -> Result<Option<u8>, Errno> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    let received = loop {
        let slices = &mut [IoSliceMut::new(&mut byte)];
        match recvmsg(&socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE);
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            into.extend(descriptors);
        }
    }
    Ok((received.bytes > 0).then_some(byte[0]))
}

pub(super) fn answer(socket: impl AsFd, answer: &Answer) -> Result<(), Errno> {
    let text = serde_json::to_vec(answer).map_err(|_| Errno::INVAL)?;
    send(socket, &text, SendFlags::NOSIGNAL).map(drop)
}
