//! Tests the way out between clients and servers on loopback. Addresses in 127.0.0.0/24 are
//! instances, those in 127.1.0.0/16 are the internet, and all others are inside.

mod names;
mod opened;
mod organisation;
mod proxy;
mod random;
mod servers;
mod transparent;

use crate::Known;
use crate::fixture;
use crate::settings::{Limits, Ports, Settings};
use crate::{Egress, Upstream};
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use servers::NameServer;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use types::egress::{EgressEvent, EgressRules};
use types::instance::InstanceName;
use types::parts::Sensitive;
use types::{Timestamp, World};

pub(super) const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
pub(super) const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
pub(super) const OUT_THERE: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);
pub(super) const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 2);
pub(super) const INSIDE: Ipv4Addr = Ipv4Addr::new(127, 2, 0, 1);
/// Longer than anything takes in these tests.
pub(super) const LONG: Duration = Duration::from_secs(20);

type Originals = Arc<Mutex<HashMap<SocketAddr, SocketAddrV4>>>;

pub(super) struct Net {
    pub(super) egress: Egress,
    names: NameServer,
    originals: Originals,
    _folder: tempfile::TempDir,
}

/// A world with the real time, which TLS needs.
pub(super) fn world() -> World {
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    World::new(move || Timestamp::from_ms(now().try_into().unwrap()), fixture::fill)
}

pub(super) fn limits() -> Limits {
    Limits {
        silence: Duration::from_millis(50),
        unknown_wait: Duration::from_millis(50),
        nameserver: Duration::from_millis(200),
        ..Limits::default()
    }
}

pub(super) fn instance(address: Ipv4Addr) -> InstanceName {
    InstanceName::new(format!("i-{}", address.octets()[3])).unwrap()
}

pub(super) fn credential(address: Ipv4Addr) -> Sensitive<String> {
    Sensitive(format!("secret/{address}"))
}

pub(super) fn rules(allowed: &[&str], forbidden: &[&str]) -> EgressRules {
    let texts = |list: &[&str]| list.iter().map(|&entry| entry.to_owned()).collect();
    EgressRules {
        allowed_domains: texts(allowed),
        forbidden_domains: texts(forbidden),
        ..EgressRules::default()
    }
}

impl Net {
    pub(super) async fn new() -> Self {
        Self::with(limits(), None).await
    }

    pub(super) async fn with(limits: Limits, upstream_proxy: Option<Upstream>) -> Self {
        Self::trusting(limits, upstream_proxy, None).await
    }

    pub(super) async fn trusting(
        limits: Limits,
        upstream_proxy: Option<Upstream>,
        roots: Option<&str>,
    ) -> Self {
        let names = NameServer::start().await;
        let folder = tempfile::tempdir().unwrap();
        let mut extra_roots = RootCertStore::empty();
        for root in roots.into_iter().flat_map(|pem| CertificateDer::pem_slice_iter(pem.as_bytes()))
        {
            extra_roots.add(root.unwrap()).unwrap();
        }
        let settings = Settings {
            address: Ipv4Addr::LOCALHOST,
            ports: Ports { proxy: 0, transparent: 0, names: 0 },
            folder: folder.path().to_owned(),
            nameservers: vec![names.address],
            inside: vec!["127.1.0.0/16".to_owned(), "own.example".to_owned()],
            own_hosts: vec!["holm.example".to_owned()],
            mark: None,
            upstream_proxy,
            extra_roots,
            limits,
        };
        let originals = Originals::default();
        let known = Arc::clone(&originals);
        let original = move |stream: &TcpStream| {
            let from = stream.peer_addr()?;
            known.lock().get(&from).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        let egress = Egress::open_with(settings, world(), Box::new(original)).unwrap();
        Self { egress, names, originals, _folder: folder }
    }

    pub(super) async fn set(&self, address: Ipv4Addr, rules: EgressRules) {
        let who = Known { instance: instance(address), address, owner: address.to_string() };
        let set = self.egress.set(who, rules, credential(address));
        tokio::time::timeout(LONG, set).await.expect("what was cut is gone");
    }

    /// Opens a connection as if the firewall had redirected it.
    pub(super) async fn divert(&self, from: Ipv4Addr, to: SocketAddrV4) -> TcpStream {
        self.try_divert(from, to).await.unwrap()
    }

    /// Like [`Net::divert`], but the connection may be refused before the client notices that it
    /// exists.
    pub(super) async fn try_divert(
        &self,
        from: Ipv4Addr,
        to: SocketAddrV4,
    ) -> io::Result<TcpStream> {
        let socket = bound(from);
        self.originals.lock().insert(socket.local_addr().unwrap(), to);
        socket.connect(self.at(self.egress.ports().transparent)).await
    }

    pub(super) fn at(&self, port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    /// Sends a name query over UDP from the instance with this address.
    pub(super) async fn ask(&self, from: Ipv4Addr, question: &[u8]) -> Vec<u8> {
        let socket = UdpSocket::bind((from, 0)).await.unwrap();
        socket.connect(self.at(self.egress.ports().names)).await.unwrap();
        socket.send(question).await.unwrap();
        let mut answer = vec![0; 4096];
        let received = tokio::time::timeout(LONG, socket.recv(&mut answer)).await;
        answer.truncate(received.expect("an answer").unwrap());
        answer
    }

    /// Waits for events since the last call and returns them.
    pub(super) async fn events(&self) -> Vec<EgressEvent> {
        tokio::time::timeout(LONG, self.egress.events()).await.expect("an event")
    }
}

pub(super) fn bound(from: Ipv4Addr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    socket
}

/// Sends bytes and reads the whole answer. Returns what came before a reset, and whether there was
/// one.
pub(super) async fn talk(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    bytes: &[u8],
) -> (String, bool) {
    // A reset may arrive before everything is sent.
    let _ = stream.write_all(bytes).await;
    hear(stream).await
}

pub(super) async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> (String, bool) {
    let mut heard = Vec::new();
    let mut buffer = [0; 4096];
    let was_reset = loop {
        let read = tokio::time::timeout(LONG, stream.read(&mut buffer)).await;
        match read.expect("an end") {
            Ok(0) => break false,
            Ok(count) => heard.extend_from_slice(&buffer[..count]),
            Err(_) => break true,
        }
    };
    (String::from_utf8_lossy(&heard).into_owned(), was_reset)
}
