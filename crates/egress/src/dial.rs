//! Connections to hosts on behalf of instances.

mod stream;
mod upstream;

use crate::client::Client;
use crate::names::Resolver;
use crate::settings::{Limits, Settings};
use crate::tcp;
use admission::is_own_address;
use futures_util::future::BoxFuture;
use rustls::ClientConfig;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
pub(crate) use stream::HostStream;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use types::parts::addresses::is_public;
use types::parts::hosts::{Host, Places};
pub use upstream::BadUpstream;
use upstream::{ProxyError, Way};

/// Makes connections for instances.
pub(crate) trait Dial: Send + Sync {
    /// Connects to a host that the rules of `client` have let pass, from the address that its
    /// traffic leaves from. Hosts that are not on the internet are refused here, whatever the rules
    /// say.
    fn dial<'a>(
        &'a self,
        client: &'a Client,
        host: &'a Host,
        port: u16,
    ) -> BoxFuture<'a, Result<HostStream, DialError>>;
}

/// Why a connection was not made. The texts are shown to the program that asked for it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("{0} has no address")]
    NoAddress(Host),
    #[error("{0} is not on the internet")]
    Inside(Host),
    #[error("{host} did not answer in time")]
    TooSlow { host: Host },
    #[error("{host} cannot be reached: {error}")]
    Failed { host: Host, error: io::Error },
    #[error("{host} cannot be reached: {error}")]
    Proxy { host: Host, error: ProxyError },
}

impl DialError {
    pub(crate) const fn is_too_slow(&self) -> bool {
        match self {
            Self::TooSlow { .. } => true,
            Self::Proxy { error, .. } => error.is_too_slow(),
            Self::NoAddress(_) | Self::Inside(_) | Self::Failed { .. } => false,
        }
    }
}

/// How many addresses of a host are tried.
const ADDRESSES_MAX: usize = 8;

pub(crate) struct Dialer {
    resolver: Arc<Resolver>,
    inside: Arc<Places>,
    way: Option<Way>,
    mark: Option<u32>,
    has_v6: bool,
    connect: Duration,
    next_address: Duration,
}

impl Dialer {
    /// `tls` is for an organisation's proxy.
    pub(crate) fn new(
        settings: &Settings,
        tls: &Arc<ClientConfig>,
        resolver: Arc<Resolver>,
        inside: Arc<Places>,
    ) -> Result<Self, BadUpstream> {
        let Limits { connect, next_address, .. } = settings.limits;
        let way = settings.upstream_proxy.as_ref();
        let way = way.map(|it| Way::new(it, tls, &settings.limits)).transpose()?;
        let mark = settings.mark;
        Ok(Self { resolver, inside, way, mark, has_v6: has_v6(), connect, next_address })
    }

    async fn reach(
        &self,
        client: &Client,
        host: &Host,
        port: u16,
    ) -> Result<HostStream, DialError> {
        let connecting = tokio::time::timeout(self.connect, self.connect(client, host, port));
        let slow = || DialError::TooSlow { host: host.clone() };
        match connecting.await.map_err(|_| slow())?? {
            (stream, None) => Ok(HostStream::Plain(stream)),
            // Has its own limits, so that the error says what of it took too long.
            (stream, Some(way)) => way
                .through(stream, host, port)
                .await
                .map_err(|error| DialError::Proxy { host: host.clone(), error }),
        }
    }

    /// Connects to a host, or to the proxy that leads to it.
    async fn connect(
        &self,
        client: &Client,
        host: &Host,
        port: u16,
    ) -> Result<(TcpStream, Option<&Way>), DialError> {
        let policy = client.policy();
        let source = policy.source();
        let addresses = self.addresses(host, source).await?;
        let failed = |error| DialError::Failed { host: host.clone(), error };
        if let Some(way) = self.way.as_ref().filter(|way| way.leads_to(host, &addresses)) {
            let proxy = self.proxy(way).await?;
            let stream = self.race(proxy, way.port(), &[]).await.map_err(failed)?;
            return Ok((stream, Some(way)));
        }
        let stream = self.race(addresses, port, source).await.map_err(failed)?;
        Ok((stream, None))
    }

    /// Returns the addresses of a host that may be reached.
    async fn addresses(&self, host: &Host, source: &[IpAddr]) -> Result<Vec<IpAddr>, DialError> {
        let with_v6 = match source {
            [] => self.has_v6,
            source => source.iter().any(IpAddr::is_ipv6),
        };
        let found = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.resolver.resolve(name, with_v6).await,
        };
        if found.is_empty() {
            return Err(DialError::NoAddress(host.clone()));
        }
        let permit = |address: &IpAddr| self.inside.permit(host, *address, is_own_address);
        let permitted: Vec<IpAddr> = found.into_iter().filter(permit).collect();
        if permitted.is_empty() {
            return Err(DialError::Inside(host.clone()));
        }
        // If the instance has an outgoing address of one family, its traffic must not leave through
        // the other.
        let fits = |address: &IpAddr| {
            source.is_empty() || source.iter().any(|own| own.is_ipv4() == address.is_ipv4())
        };
        let usable: Vec<IpAddr> = permitted.into_iter().filter(fits).take(ADDRESSES_MAX).collect();
        if usable.is_empty() { Err(DialError::NoAddress(host.clone())) } else { Ok(usable) }
    }

    /// Returns the addresses of the organisation's proxy, which may be anywhere.
    async fn proxy(&self, way: &Way) -> Result<Vec<IpAddr>, DialError> {
        let found = match way.host() {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.resolver.resolve(name, self.has_v6).await,
        };
        if found.is_empty() { Err(DialError::NoAddress(way.host().clone())) } else { Ok(found) }
    }

    /// Connects to the address that answers first. Each one gets a head start before the next.
    async fn race(
        &self,
        addresses: Vec<IpAddr>,
        port: u16,
        source: &[IpAddr],
    ) -> io::Result<TcpStream> {
        let mut attempts = JoinSet::new();
        let mut addresses = addresses.into_iter();
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let mut is_more = true;
        loop {
            match addresses.next() {
                Some(address) => {
                    let own = source.iter().find(|own| own.is_ipv4() == address.is_ipv4()).copied();
                    // The machine's firewall also restricts marked packets to the internet. Hosts
                    // inside were permitted by their names, which the firewall does not know.
                    let mark = self.mark.filter(|_| is_public(address));
                    let to = SocketAddr::new(address, port);
                    attempts.spawn(tcp::connect(to, own, mark));
                }
                None => is_more = false,
            }
            loop {
                let next = async {
                    if is_more {
                        tokio::time::sleep(self.next_address).await;
                    } else {
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    ended = attempts.join_next() => match ended {
                        None if is_more => break,
                        None => return Err(last),
                        Some(Ok(Ok(stream))) => return Ok(stream),
                        Some(Ok(Err(error))) => last = error,
                        Some(Err(error)) => last = io::Error::other(error),
                    },
                    () = next => break,
                }
            }
        }
    }
}

impl Dial for Dialer {
    fn dial<'a>(
        &'a self,
        client: &'a Client,
        host: &'a Host,
        port: u16,
    ) -> BoxFuture<'a, Result<HostStream, DialError>> {
        Box::pin(self.reach(client, host, port))
    }
}

/// Returns whether the machine has a route to the IPv6 internet. Nothing is sent to find out.
fn has_v6() -> bool {
    const OUT_THERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888);
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
        .is_ok_and(|socket| socket.connect((OUT_THERE, 53)).is_ok())
}
