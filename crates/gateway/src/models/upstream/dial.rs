//! Connects to providers. Names are resolved here, and addresses inside our own network are refused
//! at the moment of connecting, so that a name cannot lead elsewhere after it was checked.

use super::errors::Unreachable;
use crate::models::settings::ModelSettings;
use admission::{Turn, Turns, is_own_address};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::{CertificateResult, load_native_certs};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use types::parts::hosts::{Host, Places};

/// Most addresses of one name that are tried, one after the other.
const ADDRESSES_MAX: usize = 8;

/// Where connections lead. Requests may share connections to the same place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ProviderAddress {
    pub(crate) secure: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
}

pub(super) struct Dialer {
    inside: Places,
    authorities: RootCertStore,
    tls: OnceLock<TlsConnector>,
    /// Turns for lookups of names, whose name servers users choose.
    lookups: Turns,
    connect: Duration,
}

/// The transport of a connection.
pub(super) type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

impl Dialer {
    pub(super) fn new(settings: &ModelSettings) -> Self {
        Self {
            inside: settings.inside.clone(),
            authorities: settings.authorities.clone(),
            tls: OnceLock::new(),
            lookups: Turns::from(settings.lookups),
            connect: settings.connect_timeout,
        }
    }

    /// Opens a connection for `owner`, and returns whether it speaks HTTP/2.
    pub(super) async fn dial(
        &self,
        provider: &ProviderAddress,
        owner: &str,
    ) -> Result<(Stream, bool), Unreachable> {
        let dialled = timeout(self.connect, self.reach(provider, owner)).await;
        dialled.map_err(|_| Unreachable::TooSlow(provider.host.clone()))?
    }

    async fn reach(
        &self,
        provider: &ProviderAddress,
        owner: &str,
    ) -> Result<(Stream, bool), Unreachable> {
        let stream = self.connect(provider, owner).await?;
        stream.set_nodelay(true).map_err(|error| failed(provider, error))?;
        if !provider.secure {
            return Ok((Either::Left(stream), false));
        }
        let tls = self.tls().map_err(|why| failed(provider, io::Error::other(why)))?;
        let bare = provider.host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(bare)
            .map_err(|error| failed(provider, io::Error::other(error)))?;
        let stream = tls.connect(name, stream).await.map_err(|error| failed(provider, error))?;
        let is_two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((Either::Right(Box::new(stream)), is_two))
    }

    /// Only success is kept: what cannot be read now may be readable for the next connection.
    fn tls(&self) -> Result<&TlsConnector, String> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls);
        }
        let made = connector(&self.authorities, load_native_certs())?;
        Ok(self.tls.get_or_init(|| made))
    }

    async fn connect(
        &self,
        provider: &ProviderAddress,
        owner: &str,
    ) -> Result<TcpStream, Unreachable> {
        let addresses = self.addresses(provider, owner).await?;
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let share = self.connect / u32::try_from(addresses.len().max(1)).unwrap_or(1);
        for address in addresses {
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::Error::from(io::ErrorKind::TimedOut),
            }
        }
        Err(match last.kind() {
            io::ErrorKind::TimedOut => Unreachable::TooSlow(provider.host.clone()),
            _ => failed(provider, last),
        })
    }

    async fn addresses(
        &self,
        provider: &ProviderAddress,
        owner: &str,
    ) -> Result<Vec<SocketAddr>, Unreachable> {
        let host = provider.host.trim_matches(['[', ']']);
        let found: Vec<SocketAddr> = match host.parse() {
            Ok(address) => vec![SocketAddr::new(address, provider.port)],
            Err(_) => {
                let turn = self.lookups.take(owner).await;
                let looked = looked_up(host.to_owned(), provider.port, turn).await;
                looked.map_err(|error| failed(provider, error))?
            }
        };
        let Some(named) = Host::parse(host) else {
            return Err(Unreachable::Inside(provider.host.clone()));
        };
        let permit = |at: &SocketAddr| self.inside.permit(&named, at.ip(), is_own_address);
        let mut permitted: Vec<SocketAddr> = found.into_iter().filter(permit).collect();
        permitted.truncate(ADDRESSES_MAX);
        match permitted.is_empty() {
            true => Err(Unreachable::Inside(provider.host.clone())),
            false => Ok(permitted),
        }
    }
}

/// Looks a name up. A thread is busy for as long as the name server takes, even when nobody waits
/// any more, so the turn lasts that long too.
async fn looked_up(host: String, port: u16, turn: Turn) -> io::Result<Vec<SocketAddr>> {
    let looking = tokio::spawn(async move {
        let found = lookup_host((host, port)).await.map(Iterator::collect);
        drop(turn);
        found
    });
    looking.await.map_err(io::Error::other)?
}

fn failed(provider: &ProviderAddress, error: io::Error) -> Unreachable {
    Unreachable::Failed { host: provider.host.clone(), error }
}

/// Trusts the authorities of this machine, and those of the settings.
fn connector(
    authorities: &RootCertStore,
    of_machine: CertificateResult,
) -> Result<TlsConnector, String> {
    let mut roots = authorities.clone();
    for error in &of_machine.errors {
        tracing::warn!(%error, "some certificates of this machine cannot be read");
    }
    roots.add_parsable_certificates(of_machine.certs);
    if roots.is_empty() {
        return Err("this server can read no certificates of authorities".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls_native_certs::load_certs_from_paths;
    use std::path::Path;

    #[test]
    fn certificates_that_cannot_be_read_are_not_taken_for_none() {
        let unreadable = || load_certs_from_paths(Some(Path::new("/nowhere/bundle.pem")), None);
        let why = connector(&RootCertStore::empty(), unreadable()).err().unwrap();
        assert!(why.contains("no certificates"), "{why}");
        let own = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let mut told = RootCertStore::empty();
        told.add(own.cert.der().clone()).unwrap();
        assert!(connector(&told, unreadable()).is_ok(), "these are enough");
    }
}
