//! WireGuard tunnels of instances. An instance has the inner end of its tunnel, but no rights over
//! it; the outer end, the keys and the protocol are here. Not every machine's kernel knows the
//! protocol, so this process implements it, in one thread for each tunnel. A tunnel ends with this
//! process, and whoever needs it sets it up again.

mod relay;

use crate::body::Process;
use crate::capacity::divided;
use crate::error::TunnelError;
use crate::names::Owner;
use crate::settings::{EGRESS_MARK, Egress, Firewall, Limits, Settings};
use crate::shared::Shared;
use crate::sys;
use admission::{Permit, Pool};
use boringtun::noise::Tunn;
use boringtun::x25519::{PublicKey, StaticSecret};
use relay::Relay;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use types::parts::addresses::is_public;
use types::tunnel::TunnelSettings;

/// The largest packets that any link carries. A tunnel keeps a few hundred packets that wait for a
/// key, so this limits memory.
const MTU_MAX: u16 = 9_000;

/// A running tunnel, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Tunnel {
    end: OwnedFd,
    thread: Option<JoinHandle<()>>,
    pub(crate) plan: Plan,
}

/// What a tunnel is made of, so that it can be made again.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) settings: TunnelSettings,
    pub(crate) endpoint: SocketAddr,
    pub(crate) permit: Arc<Permit<Option<Owner>>>,
}

impl Tunnel {
    /// Begins a tunnel from the instance of this process to the peer.
    pub(crate) fn begin(
        shared: &Shared,
        process: &Process,
        plan: Plan,
        peer: UdpSocket,
    ) -> Result<Self, TunnelError> {
        let settings = &plan.settings;
        let mtu = settings.mtu.min(MTU_MAX);
        let kept = kept(&shared.settings);
        let tun =
            shared.home.make_tun(process.network(), settings, mtu, &kept).map_err(|error| {
                match error.kind() {
                    // The parser has checked that the interface name is not taken.
                    io::ErrorKind::InvalidInput | io::ErrorKind::NetworkUnreachable => {
                        TunnelError::Unfit(error)
                    }
                    _ => TunnelError::Machine(error),
                }
            })?;
        let end = eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
        let own = StaticSecret::from(settings.own_key.expose());
        let noise =
            Tunn::new(own, PublicKey::from(settings.peer_key), None, settings.keepalive, 1, None);
        let (plain, sealed) = Relay::buffers(mtu);
        let relay = Relay {
            tun,
            peer,
            end: end.try_clone()?,
            noise,
            allowed: settings.allowed.clone(),
            plain,
            sealed,
        };
        let thread =
            std::thread::Builder::new().name("tunnel".into()).spawn(move || relay.run())?;
        Ok(Self { end, thread: Some(thread), plan })
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // The write cannot block, because nothing else was written to the eventfd.
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How many tunnels each owner has.
pub(crate) type Tunnels = Pool<Option<Owner>>;

pub(crate) fn pool(limits: &Limits) -> Tunnels {
    Pool::new("tunnels", divided(limits.tunnels.into(), limits.share_percent))
}

/// Returns the addresses that stay reachable as before even if everything else goes through the
/// tunnel: those of the machine that the instance is on.
fn kept(settings: &Settings) -> Vec<Ipv4Addr> {
    let Egress::Internet { doors, .. } = &settings.egress else { return Vec::new() };
    let doors = doors.iter().map(|door| *door.ip());
    let resolvers = settings.nameservers.iter().filter_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    });
    doors.chain(resolvers).chain([settings.subnet.proxy()]).collect()
}

/// Refuses an end that is neither on the internet nor named by the machine's own settings.
pub(crate) fn check_endpoint(settings: &Settings, endpoint: SocketAddr) -> Result<(), TunnelError> {
    let Egress::Internet { inside, .. } = &settings.egress else {
        return Err(TunnelError::Endpoint(endpoint));
    };
    let named = |address| inside.iter().any(|network| network.contains(address));
    let fits =
        is_public(endpoint.ip()) || matches!(endpoint.ip(), IpAddr::V4(address) if named(address));
    if fits { Ok(()) } else { Err(TunnelError::Endpoint(endpoint)) }
}

/// Opens a socket of the machine that is connected to the peer, with the same source address as the
/// instance's own traffic.
pub(crate) fn outer_end(firewall: &Firewall, endpoint: SocketAddr) -> io::Result<UdpSocket> {
    let from: IpAddr = match endpoint {
        SocketAddr::V4(_) => firewall.source.unwrap_or(Ipv4Addr::UNSPECIFIED).into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((from, 0))?;
    sys::mark(socket.as_fd(), EGRESS_MARK)?;
    socket.connect(endpoint)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
