//! Both ends of requests over TLS, for measurements of outgoing requests from sandboxes:
//!
//! - `caller serve ADDRESS:PORT CERTIFICATE KEY` answers every request with the same 1,024 bytes;
//! - `caller load NAME ADDRESS:PORT AUTHORITY CONNECTIONS SECONDS [PROXY]` sends requests one after
//!   the other on each connection, and prints how many there were and how long they took, as JSON.
//!   If given the address of a proxy, it goes through that by `CONNECT`.
//!
//! A separate crate, because it is built as a static program that runs in any image.
#![expect(clippy::print_stdout, reason = "what was measured is read there")]

use anyhow::{Context as _, bail, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use rustls::{ConnectionCommon, SideData, StreamOwned};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const BODY_BYTES: usize = 1024;
const HEAD_BYTES_MAX: usize = 16 << 10;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", address, certificate, key] => serve(address, certificate, key),
        ["load", name, address, authority, connections, seconds, proxy @ ..] => {
            let load = Load {
                name: (*name).to_owned(),
                address: (*address).to_owned(),
                proxy: proxy.first().map(|proxy| (*proxy).to_owned()),
                tls: trusting(authority)?,
                time: Duration::from_secs_f64(seconds.parse()?),
            };
            load.run(connections.parse()?)
        }
        _ => bail!(
            "caller serve ADDRESS:PORT CERTIFICATE KEY, or caller load NAME ADDRESS:PORT AUTHORITY CONNECTIONS SECONDS [PROXY]"
        ),
    }
}

fn serve(address: &str, certificate: &str, key: &str) -> anyhow::Result<()> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    let (tls, listener) = (Arc::new(tls), TcpListener::bind(address)?);
    for stream in listener.incoming() {
        let (stream, tls) = (stream?, Arc::clone(&tls));
        // The thread ends with its connection, however that ends.
        thread::spawn(move || {
            stream.set_nodelay(true)?;
            let mut stream = StreamOwned::new(ServerConnection::new(tls)?, stream);
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {BODY_BYTES}\r\n\r\n{}",
                "x".repeat(BODY_BYTES)
            );
            while read_head(&mut stream)? {
                stream.write_all(answer.as_bytes())?;
            }
            anyhow::Ok(())
        });
    }
    Ok(())
}

/// Reads one head. Returns `false` if the connection ended before one.
fn read_head(stream: &mut impl Read) -> anyhow::Result<bool> {
    let (mut received, mut part) = (Vec::new(), [0; 4096]);
    while !received.ends_with(b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => return Ok(false),
            length => received.extend_from_slice(&part[..length]),
        }
        ensure!(received.len() <= HEAD_BYTES_MAX, "a head without an end");
    }
    Ok(true)
}

fn trusting(authority: &str) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(
        CertificateDer::pem_file_iter(authority)?.filter_map(Result::ok),
    );
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

struct Load {
    name: String,
    address: String,
    proxy: Option<String>,
    tls: Arc<ClientConfig>,
    time: Duration,
}

impl Load {
    fn run(self, connections: usize) -> anyhow::Result<()> {
        let load = Arc::new(self);
        let callers: Vec<_> = (0..connections)
            .map(|_| {
                let load = Arc::clone(&load);
                thread::spawn(move || load.call())
            })
            .collect();
        let mut times = Vec::new();
        for caller in callers {
            let seen = caller.join().map_err(|_| anyhow::anyhow!("a caller failed"))?;
            times.extend(seen?);
        }
        times.sort_unstable();
        ensure!(!times.is_empty(), "no request was answered");
        let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
        let rps = times.len() as f64 / load.time.as_secs_f64();
        println!(
            "{}",
            json!({"requests": times.len(), "rps": rps, "p50_ms": at(50), "p99_ms": at(99)})
        );
        Ok(())
    }

    fn call(&self) -> anyhow::Result<Vec<Duration>> {
        let socket = self.connect()?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from(self.name.clone())?;
        let mut stream =
            StreamOwned::new(ClientConnection::new(Arc::clone(&self.tls), name)?, socket);
        let request = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", self.name);
        // The first request includes the handshake.
        exchange(&mut stream, request.as_bytes())?;
        let (begun, mut times) = (Instant::now(), Vec::new());
        while begun.elapsed() < self.time {
            let asked = Instant::now();
            exchange(&mut stream, request.as_bytes())?;
            times.push(asked.elapsed());
        }
        Ok(times)
    }

    fn connect(&self) -> anyhow::Result<TcpStream> {
        let Some(proxy) = &self.proxy else { return Ok(TcpStream::connect(&self.address)?) };
        let mut stream = TcpStream::connect(proxy)?;
        let (address, mut head) = (&self.address, Vec::new());
        write!(stream, "CONNECT {address} HTTP/1.1\r\nhost: {address}\r\n\r\n")?;
        // Byte by byte, because what follows the head must not be consumed here.
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).context("the proxy has closed")?;
            head.push(byte[0]);
        }
        ensure!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        Ok(stream)
    }
}

/// Sends one request and reads all of its answer.
fn exchange<C, S>(stream: &mut StreamOwned<C, TcpStream>, request: &[u8]) -> anyhow::Result<()>
where
    C: DerefMut + Deref<Target = ConnectionCommon<S>>,
    S: SideData,
{
    stream.write_all(request)?;
    let (mut received, mut part) = (Vec::with_capacity(2 * BODY_BYTES), [0; 4096]);
    loop {
        let length = stream.read(&mut part)?;
        ensure!(length > 0, "the connection has ended in an answer");
        received.extend_from_slice(&part[..length]);
        let end = received.windows(4).position(|four| four == b"\r\n\r\n");
        if end.is_some_and(|end| received.len() >= end + 4 + BODY_BYTES) {
            ensure!(
                received.starts_with(b"HTTP/1.1 200"),
                "{}",
                String::from_utf8_lossy(&received)
            );
            return Ok(());
        }
    }
}
