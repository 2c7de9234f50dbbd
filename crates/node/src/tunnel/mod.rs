//! WireGuard tunnels of instances. An instance has the inner end of its tunnel, but no rights over
//! it; the outer end, the keys and the protocol are here. Not every machine's kernel knows the
//! protocol, so this process implements it, in one thread for each tunnel. A tunnel ends with this
//! process, and whoever needs it sets it up again.

mod relay;

use crate::body::Process;
use crate::capacity::divided;
use crate::error::{Error, TunnelError};
use crate::instance::Instance;
use crate::node::Node;
use crate::settings::{EGRESS_MARK, Egress, Firewall, Level, Limits, Settings};
use crate::spec::Owner;
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
use types::instance::InstanceName;
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
    plan: Plan,
}

/// What a tunnel is made of, so that it can be made again.
#[derive(Debug, Clone)]
struct Plan {
    settings: TunnelSettings,
    endpoint: SocketAddr,
    permit: Arc<Permit<Option<Owner>>>,
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

impl Node {
    /// Gives an instance a tunnel, replacing the one that it may have. `endpoint` is the current
    /// address of the host in the settings. The tunnel exists when this returns; whether the other
    /// end answers shows only in use. If it cannot be made, the instance has the old one as before.
    pub fn set_tunnel(
        &self,
        id: &InstanceName,
        settings: &TunnelSettings,
        endpoint: SocketAddr,
    ) -> Result<(), TunnelError> {
        let instance = self.find(id).map_err(|_| TunnelError::Gone)?;
        let mut tunnel = instance.tunnel.lock();
        // While this lock is held, no firewall gets stricter and no instance is removed.
        let firewall = instance.firewall().ok_or(TunnelError::Gone)?;
        let process = instance.body.process().ok_or(TunnelError::Gone)?;
        if firewall.level == Level::Closed {
            return Err(TunnelError::Closed);
        }
        check_endpoint(&self.shared.settings, endpoint)?;
        let permit = match tunnel.as_ref() {
            Some(old) => Arc::clone(&old.plan.permit),
            None => Arc::new(self.tunnels.take(&instance.owner, 1)?),
        };
        let plan = Plan { settings: settings.clone(), endpoint, permit };
        let peer = outer_end(&firewall, endpoint)?;
        // Both would have the same interface name, so the old one ends first.
        let old = tunnel.take().map(|old| old.plan.clone());
        match self.begin(process, plan, peer) {
            Ok(new) => *tunnel = Some(new),
            Err(error) => {
                *tunnel = old.and_then(|old| self.begin_again(id, process, old, &firewall));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes the tunnel again that another was to replace.
    fn begin_again(
        &self,
        id: &InstanceName,
        process: &Process,
        plan: Plan,
        firewall: &Firewall,
    ) -> Option<Tunnel> {
        let peer = outer_end(firewall, plan.endpoint).map_err(TunnelError::from);
        let log = |error: &TunnelError| {
            let error = types::chain(error);
            tracing::error!(error, instance = %id, "a tunnel is lost: it could neither be changed nor made again");
        };
        peer.and_then(|peer| self.begin(process, plan, peer)).inspect_err(log).ok()
    }

    fn begin(&self, process: &Process, plan: Plan, peer: UdpSocket) -> Result<Tunnel, TunnelError> {
        let settings = &plan.settings;
        let mtu = settings.mtu.min(MTU_MAX);
        let kept = kept(&self.shared.settings);
        let home = &self.shared.home;
        let tun = home.make_tun(process.network(), settings, mtu, &kept).map_err(|error| {
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
        Ok(Tunnel { end, thread: Some(thread), plan })
    }

    /// Ends the tunnel of an instance. Returns whether it had one.
    pub fn remove_tunnel(&self, id: &InstanceName) -> Result<bool, Error> {
        Ok(self.find(id)?.tunnel.lock().take().is_some())
    }

    pub fn has_tunnel(&self, id: &InstanceName) -> Result<bool, Error> {
        Ok(self.find(id)?.tunnel.lock().is_some())
    }
}

impl Instance {
    /// Runs `work`, and then ends a tunnel that would bypass a firewall of this level. No tunnel
    /// can be started meanwhile.
    pub(crate) fn without_way_past<T>(&self, level: Level, work: impl FnOnce() -> T) -> T {
        let mut tunnel = self.tunnel.lock();
        let done = work();
        if level == Level::Closed {
            drop(tunnel.take());
        }
        done
    }
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

fn check_endpoint(settings: &Settings, endpoint: SocketAddr) -> Result<(), TunnelError> {
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
fn outer_end(firewall: &Firewall, endpoint: SocketAddr) -> io::Result<UdpSocket> {
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
