//! The network of an instance: a namespace with one interface, a route to the machine, and rules on
//! the machine's side. The instance's root cannot touch them, because the namespace does not belong
//! to its user namespace.
//!
//! There is no bridge: every instance has its own address and a route to it, so neighbours share no
//! link. Hardware addresses are fixed on both ends, so there are no ARP requests.

mod connections;
mod elements;
mod inside;
mod netfilter;
mod netlink;
mod occupied;
mod others;
mod proc;
mod rules;
mod table;
mod tun;
mod way_out;
mod wire;

pub use occupied::{Overlaps, Reached, overlaps};
pub(crate) use rules::Rules;
pub(crate) use table::NFT;
pub use way_out::{Other, WayOut, try_way_out};

use crate::names::Owner;
use crate::settings::{Egress, Settings, Subnet};
use crate::sys;
use proc::Proc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;
use wire::Wire;

/// The machine's own network, from which the networks of instances are made.
#[derive(Debug)]
pub(crate) struct Home {
    namespace: OwnedFd,
    interfaces: String,
    subnet: Subnet,
    connected: bool,
    proc: Proc,
}

impl Home {
    /// Takes the namespace of the calling thread as the machine's.
    pub(crate) fn open(settings: &Settings) -> io::Result<Self> {
        let connected = matches!(settings.egress, Egress::Internet { .. });
        Ok(Self { connected, ..Self::of(&settings.name, settings.subnet)? })
    }

    /// The same for a node of this name whose instances have a way out.
    fn of(node: &str, subnet: Subnet) -> io::Result<Self> {
        Ok(Self {
            namespace: File::open("/proc/thread-self/ns/net")?.into(),
            interfaces: table::interface_prefix(node),
            subnet,
            connected: true,
            proc: Proc::default(),
        })
    }

    /// Makes the network of the instance in this slot of the pool.
    pub(crate) fn make(&self, slot: u32) -> io::Result<OwnedFd> {
        let namespace = self.make_namespace()?;
        if self.connected {
            let wire = self.wire(slot);
            wire.lay(&namespace)?;
            self.within(&namespace, || inside::configure(&wire))??;
        }
        Ok(namespace)
    }

    /// Notes whose the network of a slot is from now on.
    pub(crate) fn assign(&self, slot: u32, owner: &Owner) -> io::Result<()> {
        if self.connected { self.wire(slot).assign(owner) } else { Ok(()) }
    }

    /// Disables an instance's only interface; loopback stays.
    pub(crate) fn cut(&self, namespace: &OwnedFd) -> io::Result<()> {
        match self.connected {
            true => self.within(namespace, inside::cut)?,
            false => Ok(()),
        }
    }

    fn make_namespace(&self) -> io::Result<OwnedFd> {
        let proc = self.proc.for_a_network()?;
        let _way_home = WayHome(self);
        sys::leave_network()?;
        let namespace = File::open("/proc/thread-self/ns/net")?.into();
        inside::prepare(&proc)?;
        Ok(namespace)
    }

    /// Runs `act` in another network. Sockets made there stay there.
    pub(crate) fn within<T>(&self, namespace: impl AsFd, act: impl FnOnce() -> T) -> io::Result<T> {
        let _way_home = WayHome(self);
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(act())
    }

    fn wire(&self, slot: u32) -> Wire {
        let [a, b, c, d] = slot.to_be_bytes();
        Wire {
            outer_name: format!("{}{slot:x}", self.interfaces),
            address: self.subnet.address(slot),
            outer_hardware: [0x02, 0x48, a, b, c, d],
            inner_hardware: [0x02, 0x49, a, b, c, d],
        }
    }
}

/// Returns the thread to the machine's network when dropped.
struct WayHome<'a>(&'a Home);

impl Drop for WayHome<'_> {
    fn drop(&mut self) {
        if let Err(error) =
            move_into_link_name_space(self.0.namespace.as_fd(), Some(LinkNameSpaceType::Network))
        {
            // A thread that stays in a tenant's network would serve and dial there. Restarting is
            // the safe way out, because instances outlive this process.
            tracing::error!(%error, "a thread cannot return to the machine's network");
            std::process::abort();
        }
    }
}

impl Home {
    /// Opens a TCP socket in another network. Only making it has to happen there, because a socket
    /// stays in the network where it was made.
    pub(crate) fn socket(&self, namespace: impl AsFd) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(self.within(namespace, || {
            socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
        })??)
    }

    /// Opens a listening socket in another network, on all its addresses.
    pub(crate) fn listener(&self, namespace: impl AsFd, port: u16) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let socket = self.within(namespace, || {
            socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
        })??;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    }
}

/// How many connections can wait for the first process of an instance.
const BACKLOG: i32 = 1_024;

/// Connects a non-blocking socket to a port on loopback, and makes it blocking.
pub(crate) fn connect(socket: OwnedFd, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    match rustix::net::connect(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let limit = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
            if poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&limit))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
