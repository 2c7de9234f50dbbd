//! What the operator decides about the way out.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use types::parts::Sensitive;

#[derive(Debug, Clone)]
pub struct Settings {
    /// An address of the machine that instances reach. All ports are there.
    pub address: Ipv4Addr,
    pub ports: Ports,
    /// Where the authority keeps its key and certificate.
    pub folder: PathBuf,
    /// Asked for names, in this order.
    pub nameservers: Vec<SocketAddr>,
    /// Hosts, `*.suffixes`, addresses and ranges that may be reached although they are not on the
    /// internet.
    pub inside: Vec<String>,
    /// Hosts of this server itself: their names are answered whatever the rules say, and nobody is
    /// connected to them here.
    pub own_hosts: Vec<String>,
    /// Set on all packets that leave, for the machine's own routing.
    pub mark: Option<u32>,
    /// The proxy of an organisation, which everything goes through.
    pub upstream_proxy: Option<Upstream>,
    /// Certificates in PEM that are trusted besides the system's.
    pub extra_roots: Option<PathBuf>,
    pub limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// The proxy that programs are told of.
    pub proxy: u16,
    /// Where the firewall sends connections of programs that ask nobody.
    pub transparent: u16,
    /// Questions for names, over UDP and TCP.
    pub names: u16,
}

/// A proxy that connects by `CONNECT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// `http://` or `https://`, a host and maybe a port, without a path.
    pub url: String,
    pub user: Option<String>,
    pub password: Option<Sensitive<String>>,
    /// Hosts, `*.suffixes`, addresses and ranges that are reached without it.
    pub no_proxy: Vec<String>,
}

/// What instances may take of what the machine has once.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections that are open: of all instances, and of those of one owner.
    pub connections: admission::Limits,
    /// Questions for names that are under way: of all instances, and of those of one owner.
    pub questions: admission::Limits,
    /// Names that one instance was given addresses for and that count for what it connects to.
    pub names: usize,
    /// Answers of name servers that are kept for all.
    pub cached_names: usize,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// Bodies of one instance in memory, a mebibyte each, because something is put into them.
    pub bodies: usize,
    /// Requests of one connection that is opened, at once.
    pub requests: u32,
    /// Connections that one connection of an instance leads to.
    pub upstreams: usize,
    /// Certificates for hosts whose connections are opened, that are kept for all.
    pub certificates: usize,
    /// Events of one instance that nobody has fetched yet.
    pub events: usize,
    /// Events of one instance that are told in a second, in the long run.
    pub events_per_second: u32,
    /// For the head of a request, and for a connection between requests.
    pub head: Duration,
    /// For the head of an answer.
    pub answer: Duration,
    /// From the first byte of a connection until it has said where it is to go.
    pub hello: Duration,
    /// Until a client that says nothing is taken for one whose server speaks first.
    pub silence: Duration,
    /// Until the other side answers.
    pub connect: Duration,
    /// Until the next address of a host is tried beside the one before.
    pub next_address: Duration,
    /// Of TLS.
    pub handshake: Duration,
    /// Without a byte either way.
    pub idle: Duration,
    /// For the rest of requests that were refused, and how many of them are read on at a time.
    pub linger: Duration,
    pub lingering: usize,
    /// How long a connection waits for its instance to be known.
    pub unknown_wait: Duration,
    /// Until the next name server is asked.
    pub nameserver: Duration,
    /// How long a name counts for its address after the answer has expired.
    pub names_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: admission::Limits { total: 16_384, share: 1024 },
            questions: admission::Limits { total: 2048, share: 64 },
            names: 1024,
            cached_names: 4096,
            head_bytes: 64 << 10,
            bodies: 16,
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
            unknown_wait: Duration::from_secs(5),
            nameserver: Duration::from_secs(2),
            names_grace: Duration::from_secs(10 * 60),
        }
    }
}
