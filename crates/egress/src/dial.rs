//! Connections to what is out there.

use crate::client::Client;
use crate::host::Host;
use std::future::Future;
use std::io;
use std::pin::Pin;
use tokio::net::TcpStream;

/// An answer that takes a moment.
pub(crate) type Wait<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whoever makes connections for instances.
pub(crate) trait Dial: Send + Sync {
    /// Connects to a host that the rules of `client` have let pass, with the address that its traffic
    /// leaves with. What is not on the internet is refused here, whatever the rules say.
    fn dial<'a>(
        &'a self,
        client: &'a Client,
        host: &'a Host,
        port: u16,
    ) -> Wait<'a, Result<TcpStream, DialError>>;
}

/// Why a connection cannot be. The texts are for whoever wanted it.
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
}
