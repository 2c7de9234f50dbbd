//! Opens the sockets of the way out, and passes what arrives there to whatever serves it.

use crate::authority::{Authority, AuthorityError};
use crate::clients::Clients;
use crate::dial::{BadUpstream, Dialer};
use crate::events::{EventLimits, Events};
use crate::intercept;
use crate::names::{self, Resolver};
use crate::service::{Original, Service};
use crate::settings::{Limits, Ports, Settings};
use crate::upstream_tls::{RootsError, UpstreamTls};
use crate::{explicit, tcp, transparent};
use admission::{Linger, Permit, Pool};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio_util::sync::CancellationToken;
use types::World;
use types::parts::hosts::{BadPlace, Places};

/// How many connections can wait to be accepted. The kernel may allow fewer.
const BACKLOG: u32 = 4096;
/// How many ports are tried for TCP and UDP together where the kernel chooses the port.
const PORT_TRIES: u32 = 16;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot listen at {address}:{port} for instances")]
    Bind { address: Ipv4Addr, port: u16, source: io::Error },
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Roots(#[from] RootsError),
    #[error(transparent)]
    Inside(#[from] BadPlace),
    #[error(transparent)]
    Upstream(#[from] BadUpstream),
}

struct Sockets {
    proxy: TcpListener,
    transparent: TcpListener,
    names_tcp: TcpListener,
    names_udp: UdpSocket,
}

pub(crate) fn open(
    settings: Settings,
    world: World,
    original: Box<Original>,
    closing: CancellationToken,
) -> Result<Arc<Service>, OpenError> {
    let (sockets, ports) = bind(&settings)?;
    let inside = Arc::new(Places::parse(&settings.inside)?);
    let own_hosts = Places::parse(&settings.own_hosts)?;
    let resolver = Arc::new(Resolver::new(&settings, world.clone()));
    let upstream_tls = UpstreamTls::of_machine(&settings.extra_roots)?;
    let tls = &upstream_tls.one;
    let dialer = Dialer::new(&settings, tls, Arc::clone(&resolver), Arc::clone(&inside))?;
    let dialer = Arc::new(dialer);
    let limits = &settings.limits;
    let authority = Authority::open(&settings.folder, world.clone(), limits.certificates)?;
    let authority = Arc::new(authority);
    let event_limits =
        EventLimits { kept_max: limits.events, per_second: limits.events_per_second };
    let events = Arc::new(Events::new(world.clone(), event_limits));
    let intercept = Arc::new(intercept::Shared::new(
        Arc::clone(&authority),
        Arc::clone(&dialer) as _,
        upstream_tls,
        world.clone(),
        Arc::clone(&events),
        of_requests(limits),
    ));
    let service = Arc::new(Service {
        connections: Pool::new("connections of instances", limits.connections),
        questions: Pool::new("questions for names", limits.questions),
        clients: Clients::default(),
        settings,
        ports,
        world,
        resolver,
        inside,
        own_hosts,
        dialer,
        authority,
        events,
        intercept,
        original,
        wake: OnceLock::new(),
        closing,
    });
    serve(&service, sockets);
    Ok(service)
}

/// For how many bytes of open requests each connection that there may be counts, beyond what every
/// one has.
const OPEN_BYTES: u64 = 16 << 10;

fn of_requests(limits: &Limits) -> intercept::Limits {
    intercept::Limits {
        head_bytes_max: limits.head_bytes,
        head_timeout: limits.head,
        handshake_timeout: limits.handshake,
        answer_timeout: limits.answer,
        idle_timeout: limits.idle,
        streams_max: limits.requests,
        upstreams_max: limits.upstreams,
        bodies_max: limits.bodies,
        bodies_shared: limits.bodies_shared,
        heads_shared: admission::Limits {
            total: limits.connections.total.saturating_mul(OPEN_BYTES),
            share: limits.connections.share.saturating_mul(OPEN_BYTES),
        },
        linger: Linger::new(limits.linger, limits.lingering),
    }
}

fn serve(service: &Arc<Service>, sockets: Sockets) {
    let Sockets { proxy, transparent, names_tcp, names_udp } = sockets;
    let accepted = accept(Arc::clone(service), proxy, explicit::serve);
    service.spawn(accepted);
    let accepted = accept(Arc::clone(service), transparent, |service, stream, from, permit| {
        held(permit, transparent::serve(service, stream, from))
    });
    service.spawn(accepted);
    let accepted = accept(Arc::clone(service), names_tcp, |service, stream, from, permit| {
        held(permit, names::serve_tcp(service, stream, from))
    });
    service.spawn(accepted);
    service.spawn(names::serve_udp(Arc::clone(service), names_udp));
}

async fn held(permit: Permit<String>, work: impl Future<Output = ()>) {
    work.await;
    drop(permit);
}

async fn accept<W: Future<Output = ()> + Send + 'static>(
    service: Arc<Service>,
    listener: TcpListener,
    serve: impl Fn(Arc<Service>, TcpStream, Ipv4Addr, Permit<String>) -> W,
) {
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                service.pause_after(&error).await;
                continue;
            }
        };
        let IpAddr::V4(address) = from.ip() else { continue };
        // An owner with too many connections has new ones closed, so that its neighbours keep
        // theirs.
        let Ok(permit) = service.connections.take(&service.clients.owner(address), 1) else {
            continue;
        };
        // If it is already gone, whatever reads it will notice.
        let _ = tcp::tune(&stream);
        service.spawn(serve(Arc::clone(&service), stream, address, permit));
    }
}

fn bind(settings: &Settings) -> Result<(Sockets, Ports), OpenError> {
    let Ports { proxy, transparent, names } = settings.ports;
    let failed = |port| move |source| OpenError::Bind { address: settings.address, port, source };
    let tcp = |port| listener((settings.address, port).into());
    let port_of = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
    let proxy_socket = tcp(proxy).map_err(failed(proxy))?;
    let transparent_socket = tcp(transparent).map_err(failed(transparent))?;
    let (names_tcp, names_udp) = both(settings.address, names).map_err(failed(names))?;
    let ports = Ports {
        proxy: port_of(&proxy_socket).map_err(failed(proxy))?,
        transparent: port_of(&transparent_socket).map_err(failed(transparent))?,
        names: port_of(&names_tcp).map_err(failed(names))?,
    };
    let sockets =
        Sockets { proxy: proxy_socket, transparent: transparent_socket, names_tcp, names_udp };
    Ok((sockets, ports))
}

/// Listens over TCP and UDP at the same port.
fn both(address: Ipv4Addr, port: u16) -> io::Result<(TcpListener, UdpSocket)> {
    let mut tries = 1..PORT_TRIES;
    loop {
        let tcp = listener((address, port).into())?;
        match datagrams(tcp.local_addr()?) {
            Ok(udp) => return Ok((tcp, udp)),
            // The kernel chose a port that is free for TCP only.
            Err(error)
                if port == 0
                    && error.kind() == io::ErrorKind::AddrInUse
                    && tries.next().is_some() => {}
            Err(error) => return Err(error),
        }
    }
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}
