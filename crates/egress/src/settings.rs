//! The operator's settings of the way out.

use rustls::RootCertStore;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use types::parts::Sensitive;

#[derive(Debug, Clone)]
pub struct Settings {
    /// An address of the machine that instances can reach. All ports are on it.
    pub address: Ipv4Addr,
    pub ports: Ports,
    /// The folder in which the authority keeps its key and certificate.
    pub folder: PathBuf,
    /// Name servers to ask, in this order.
    pub nameservers: Vec<SocketAddr>,
    /// Hosts, `*.suffixes`, addresses and ranges that may be reached although they are not on the
    /// internet.
    pub inside: Vec<String>,
    /// Hosts of this server itself. Their names are resolved whatever the rules say, but
    /// connections to them are not made here.
    pub own_hosts: Vec<String>,
    /// A mark for all packets that leave, for the machine's own routing.
    pub mark: Option<u32>,
    /// A proxy of the organisation that everything goes through.
    pub upstream_proxy: Option<Upstream>,
    /// Authorities to trust in addition to the system's.
    pub extra_roots: RootCertStore,
    pub limits: Limits,
}

/// The ports to listen on. With 0 the machine chooses one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// The proxy that programs are configured to use.
    pub proxy: u16,
    /// Where the firewall redirects the connections of programs that do not use the proxy.
    pub transparent: u16,
    /// Name queries, over UDP and TCP.
    pub names: u16,
}

/// A proxy that makes connections on `CONNECT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// `http://` or `https://`, a host and optionally a port, without a path. TLS is checked like
    /// that of hosts.
    pub url: String,
    pub user: Option<String>,
    pub password: Option<Sensitive<String>>,
    /// Hosts, `*.suffixes`, addresses and ranges that are reached without the proxy.
    pub no_proxy: Vec<String>,
}

/// Limits on what instances may take of the machine's shared resources, and timeouts.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Open connections, in total and per owner.
    pub connections: admission::Limits,
    /// Name queries in progress, in total and per owner.
    pub questions: admission::Limits,
    /// How many pairs of a name and its address are remembered of what an instance was told. Later
    /// connections to the address are judged by the name.
    pub names: usize,
    /// Cached answers of name servers, shared by all instances.
    pub cached_names: usize,
    /// Size of a request's head.
    pub head_bytes: usize,
    /// Request bodies of one instance that are held in memory, up to a mebibyte each, because
    /// something is injected into them.
    pub bodies: usize,
    /// The same of one owner, and of all together.
    pub bodies_shared: admission::Limits,
    /// Concurrent requests on one intercepted connection.
    pub requests: u32,
    /// Connections to hosts that one connection of an instance may use at the same time.
    pub upstreams: usize,
    /// Cached certificates for hosts whose connections are intercepted, shared by all instances.
    pub certificates: usize,
    /// Events of one instance that wait to be fetched.
    pub events: usize,
    /// Average number of events per second that are kept for one instance.
    pub events_per_second: u32,
    /// Time for the head of a request, and for an idle connection between requests.
    pub head: Duration,
    /// Time for the head of an answer.
    pub answer: Duration,
    /// Time from the first byte of a connection until it is known where it should go.
    pub hello: Duration,
    /// How long a client may be silent before the server is assumed to speak first.
    pub silence: Duration,
    /// Time to establish a connection, and then for the answer of an organisation's proxy.
    pub connect: Duration,
    /// Time until the next address of a host is tried in parallel.
    pub next_address: Duration,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// How long a connection may go without a byte in either direction.
    pub idle: Duration,
    /// How long the rest of a refused request is read, and for how many requests at a time.
    pub linger: Duration,
    pub lingering: usize,
    /// How long a connection waits for its instance to become known.
    pub unknown_wait: Duration,
    /// Time until the next name server is asked.
    pub nameserver: Duration,
    /// How long a name still counts for its address after the answer has expired.
    pub names_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: admission::Limits { total: 16_384, share: 4096 },
            questions: admission::Limits { total: 2048, share: 256 },
            names: 1024,
            cached_names: 4096,
            head_bytes: 64 << 10,
            bodies: 16,
            bodies_shared: admission::Limits { total: 512, share: 64 },
            requests: 100,
            upstreams: 16,
            certificates: 1024,
            events: 128,
            events_per_second: 20,
            head: Duration::from_secs(60),
            answer: Duration::from_secs(300),
            hello: Duration::from_secs(10),
            silence: Duration::from_millis(150),
            connect: Duration::from_secs(10),
            next_address: Duration::from_millis(250),
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(15 * 60),
            linger: Duration::from_secs(5),
            lingering: 256,
            unknown_wait: Duration::from_secs(10),
            nameserver: Duration::from_secs(2),
            names_grace: Duration::from_secs(10 * 60),
        }
    }
}
