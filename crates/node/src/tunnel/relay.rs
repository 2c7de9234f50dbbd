//! Moves packets between the two ends of a tunnel.

use boringtun::noise::{Tunn, TunnResult};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use types::tunnel::Network;

/// How many packets go in one direction before it is the other direction's turn.
const BURST: usize = 64;
/// How often to check whether something has to be sent again, or a key is too old.
const TICK: Duration = Duration::from_millis(250);
/// More than the protocol adds to a packet, and at least as large as its own messages. Its code
/// panics, which ends the thread, if a buffer is too small.
const ADDED_BYTES: usize = 256;

/// Everything that a tunnel's thread works with.
pub(super) struct Relay {
    /// The inner end.
    pub(super) tun: OwnedFd,
    /// The outer end, connected to the peer.
    pub(super) peer: UdpSocket,
    /// Readable when the tunnel is to end.
    pub(super) end: OwnedFd,
    pub(super) noise: Tunn,
    pub(super) allowed: Vec<Network>,
    pub(super) plain: Vec<u8>,
    pub(super) sealed: Vec<u8>,
}

/// Whether the tunnel's interface still exists.
#[derive(PartialEq, Eq)]
enum Device {
    Lives,
    Gone,
}

impl Relay {
    /// Makes buffers for packets of this size. A datagram that fits into one of them also fits into
    /// the other, encrypted or not.
    pub(super) fn buffers(mtu: u16) -> (Vec<u8>, Vec<u8>) {
        let size = usize::from(mtu) + 2 * ADDED_BYTES;
        (vec![0; size], vec![0; size])
    }

    /// Runs until the tunnel is to end, or the instance's network is gone.
    pub(super) fn run(mut self) {
        // The protocol logs each message that a peer does not answer, and tenants choose their
        // peers.
        let _silence =
            tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::default());
        let first = self.noise.format_handshake_initiation(&mut self.sealed, false);
        send(&self.peer, first);
        let mut ticked = Instant::now();
        while self.waits() {
            if self.leave() == Device::Gone || self.arrive() == Device::Gone {
                return;
            }
            if ticked.elapsed() >= TICK {
                send(&self.peer, self.noise.update_timers(&mut self.sealed));
                ticked = Instant::now();
            }
        }
    }

    /// Waits for a packet or a tick. Returns `false` when the tunnel is to end.
    fn waits(&self) -> bool {
        let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
        let mut files =
            [&self.end, &self.tun].map(|file| PollFd::new(file, PollFlags::IN)).to_vec();
        files.push(PollFd::new(&self.peer, PollFlags::IN));
        match poll(&mut files, Some(&tick)) {
            Ok(_) => files.first().is_some_and(|end| end.revents().is_empty()),
            Err(Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Sends packets of the instance to the peer.
    fn leave(&mut self) -> Device {
        for _ in 0..BURST {
            let room = self.plain.len() - ADDED_BYTES;
            let Some(plain) = self.plain.get_mut(..room) else { return Device::Gone };
            let length = match rustix::io::read(&self.tun, plain) {
                Ok(length) => length,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(_) => return Device::Gone,
            };
            let packet = self.plain.get(..length).unwrap_or_default();
            let to = Tunn::dst_address(packet);
            if to.is_some_and(|to| self.allowed.iter().any(|network| network.contains(to))) {
                send(&self.peer, self.noise.encapsulate(packet, &mut self.sealed));
            }
        }
        Device::Lives
    }

    /// Passes datagrams of the peer to the instance.
    fn arrive(&mut self) -> Device {
        for _ in 0..BURST {
            // If the peer is not there, this fails once for each datagram that it did not get.
            let Ok(length) = self.peer.recv(&mut self.sealed) else { break };
            let datagram = self.sealed.get(..length).unwrap_or_default();
            match self.noise.decapsulate(None, datagram, &mut self.plain) {
                TunnResult::WriteToNetwork(answer) => {
                    let _ = self.peer.send(answer);
                    self.send_waiting();
                }
                TunnResult::WriteToTunnelV4(packet, from) => {
                    if give(&self.tun, &self.allowed, packet, from.into()) == Device::Gone {
                        return Device::Gone;
                    }
                }
                TunnResult::WriteToTunnelV6(packet, from) => {
                    if give(&self.tun, &self.allowed, packet, from.into()) == Device::Gone {
                        return Device::Gone;
                    }
                }
                // A peer that sends invalid datagrams gets no answer.
                TunnResult::Done | TunnResult::Err(_) => {}
            }
        }
        Device::Lives
    }

    /// Sends the packets that had to wait for a key.
    fn send_waiting(&mut self) {
        while let TunnResult::WriteToNetwork(datagram) =
            self.noise.decapsulate(None, &[], &mut self.plain)
        {
            let _ = self.peer.send(datagram);
        }
    }
}

/// Sends a datagram. One that cannot be sent is lost, which is normal for datagrams.
fn send(peer: &UdpSocket, result: TunnResult<'_>) {
    if let TunnResult::WriteToNetwork(datagram) = result {
        let _ = peer.send(datagram);
    }
}

/// Passes a packet to the instance if its source is among the networks of the peer.
fn give(tun: &OwnedFd, allowed: &[Network], packet: &[u8], from: std::net::IpAddr) -> Device {
    if !allowed.iter().any(|network| network.contains(from)) {
        return Device::Lives;
    }
    match rustix::io::write(tun, packet) {
        // A packet that the kernel rejects is dropped.
        Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::INVAL | Errno::NOBUFS | Errno::IO) => {
            Device::Lives
        }
        Err(_) => Device::Gone,
    }
}
