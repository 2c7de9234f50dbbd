//! The world outside: servers that say what they were asked for, and a name server that misbehaves.

use crate::hello;
use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

/// What a name server does when it is asked for a name.
#[derive(Debug, Clone)]
pub(super) enum Told {
    Addresses(Vec<Ipv4Addr>),
    Alias(&'static str, Vec<Ipv4Addr>),
    Text(usize),
    /// Over UDP, only a notice that there is more.
    Long(Vec<Ipv4Addr>),
    /// First with another id, then with another name, then correctly.
    Forged(Ipv4Addr, Vec<Ipv4Addr>),
    /// In turns.
    Changing(Vec<Ipv4Addr>, Vec<Ipv4Addr>),
    Failure,
    Silence,
}

#[derive(Clone)]
pub(super) struct NameServer {
    pub(super) address: SocketAddr,
    told: Arc<Mutex<HashMap<String, Told>>>,
    pub(super) asked: Arc<AtomicUsize>,
    _tasks: Arc<[AbortOnDropHandle<()>; 2]>,
}

impl NameServer {
    pub(super) async fn start() -> Self {
        let (tcp, udp) = loop {
            let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            match UdpSocket::bind(tcp.local_addr().unwrap()).await {
                Ok(udp) => break (tcp, udp),
                // The kernel chose a port that is free for TCP only.
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::AddrInUse),
            }
        };
        let address = tcp.local_addr().unwrap();
        let told: Arc<Mutex<HashMap<String, Told>>> = Arc::default();
        let asked = Arc::new(AtomicUsize::new(0));
        let over_udp = tokio::spawn({
            let (told, asked) = (Arc::clone(&told), Arc::clone(&asked));
            async move {
                let mut buffer = vec![0; 4096];
                loop {
                    let (length, from) = udp.recv_from(&mut buffer).await.unwrap();
                    let turn = asked.fetch_add(1, Ordering::Relaxed);
                    let now = told.lock().clone();
                    for answer in answers(&now, &buffer[..length], turn, false) {
                        udp.send_to(&answer, from).await.unwrap();
                    }
                }
            }
        });
        let over_tcp = tokio::spawn({
            let told = Arc::clone(&told);
            async move {
                loop {
                    let (mut stream, _) = tcp.accept().await.unwrap();
                    let length = stream.read_u16().await.unwrap();
                    let mut question = vec![0; length.into()];
                    stream.read_exact(&mut question).await.unwrap();
                    let told = told.lock().clone();
                    let answer = answers(&told, &question, 0, true).remove(0);
                    stream.write_u16(answer.len().try_into().unwrap()).await.unwrap();
                    stream.write_all(&answer).await.unwrap();
                }
            }
        });
        let tasks = [over_udp, over_tcp].map(AbortOnDropHandle::new);
        Self { address, told, asked, _tasks: Arc::new(tasks) }
    }

    pub(super) fn tell(&self, name: &str, told: Told) {
        self.told.lock().insert(name.to_owned(), told);
    }
}

fn answers(
    told: &HashMap<String, Told>,
    question: &[u8],
    turn: usize,
    over_tcp: bool,
) -> Vec<Vec<u8>> {
    let question = Message::from_vec(question).unwrap();
    let query = question.queries[0].clone();
    let name = query.name.to_ascii().trim_end_matches('.').to_owned();
    let mut message = Message::response(question.metadata.id, OpCode::Query);
    message.add_query(query.clone());
    let a = |owner: &Name, address: &Ipv4Addr| {
        Record::from_rdata(owner.clone(), 60, RData::A(A(*address)))
    };
    let add = |message: &mut Message, owner: &Name, addresses: &[Ipv4Addr]| {
        if query.query_type == RecordType::A {
            message.add_answers(addresses.iter().map(|address| a(owner, address)));
        }
    };
    match told.get(&name) {
        None => message.metadata.response_code = ResponseCode::NXDomain,
        Some(Told::Addresses(addresses)) => add(&mut message, &query.name, addresses),
        Some(Told::Changing(first, second)) => {
            add(&mut message, &query.name, if turn.is_multiple_of(2) { first } else { second });
        }
        Some(Told::Alias(target, addresses)) => {
            let target = Name::from_ascii(target).unwrap();
            let alias = RData::CNAME(CNAME(target.clone()));
            message.add_answer(Record::from_rdata(query.name.clone(), 60, alias));
            add(&mut message, &target, addresses);
        }
        Some(Told::Text(length)) => {
            let texts = vec!["x".repeat(200); length / 200];
            let text = RData::TXT(TXT::new(texts));
            message.add_answer(Record::from_rdata(query.name.clone(), 60, text));
        }
        Some(Told::Long(addresses)) if over_tcp => add(&mut message, &query.name, addresses),
        Some(Told::Long(_)) => message.metadata.truncation = true,
        Some(Told::Forged(wrong, right)) => {
            let mut forged = message.clone();
            add(&mut forged, &query.name, &[*wrong]);
            let mut other_number = forged.clone();
            other_number.metadata.id = other_number.metadata.id.wrapping_add(1);
            forged.queries[0].name = Name::from_ascii("other.example.").unwrap();
            add(&mut message, &query.name, right);
            return vec![
                b"nonsense".to_vec(),
                other_number.to_vec().unwrap(),
                forged.to_vec().unwrap(),
                message.to_vec().unwrap(),
            ];
        }
        Some(Told::Failure) => message.metadata.response_code = ResponseCode::ServFail,
        Some(Told::Silence) => return Vec::new(),
    }
    vec![message.to_vec().unwrap()]
}

/// A server that passes the first bytes to a handler, which writes the answer.
pub(super) struct Server {
    pub(super) address: SocketAddrV4,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    /// Starts a server that says `name` and what it was asked for, then echoes everything it gets.
    pub(super) async fn start(name: &'static str, address: SocketAddrV4) -> Self {
        Self::with(address, move |mut stream: TcpStream| async move {
            let mut first = vec![0; 4096];
            let count = stream.read(&mut first).await.unwrap_or(0);
            let asked = asked_for(&first[..count]);
            let _ = stream.write_all(format!("{name}:{asked}\n").as_bytes()).await;
            let (mut read, mut write) = stream.split();
            let _ = tokio::io::copy(&mut read, &mut write).await;
        })
        .await
    }

    pub(super) async fn with<F, W>(address: SocketAddrV4, serve: F) -> Self
    where
        F: Fn(TcpStream) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!() };
        let task = tokio::spawn(async move {
            let mut serving = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                serving.spawn(serve(stream));
                while serving.try_join_next().is_some() {}
            }
        });
        Self { address, _task: AbortOnDropHandle::new(task) }
    }

    pub(super) const fn port(&self) -> u16 {
        self.address.port()
    }
}

/// Returns what takes TLS connections as `name`, and the certificate of the authority behind it.
pub(super) fn acceptor(name: &str) -> (TlsAcceptor, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, format!("the authority of {name}"));
    let pem = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), pem)
}

/// Finds the name by which a server with many names would choose, as lenient as such servers are.
pub(super) fn asked_for(first: &[u8]) -> String {
    if let hello::Read::Hello(hello) = hello::read(first) {
        return hello.name.map_or_else(|| "-".to_owned(), |name| name.to_string());
    }
    let text = String::from_utf8_lossy(first).to_ascii_lowercase();
    let host = text.lines().find_map(|line| line.trim_start().strip_prefix("host:"));
    let host = host.map(|host| host.trim().trim_end_matches('.'));
    host.map_or("-", |host| host.split(':').next().unwrap()).to_owned()
}
