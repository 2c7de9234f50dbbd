//! Servers for sandboxes with network rules, and names that lead to them.

use crate::dns::NameServer;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use testing::machine;

/// Servers at an address of the machine. They cannot be on loopback, which inside a sandbox is its
/// own.
pub(crate) struct World {
    pub(crate) address: Ipv4Addr,
    pub(crate) port: u16,
    /// Hosts that were requested.
    asked: Arc<Mutex<BTreeSet<String>>>,
    pub(crate) names: NameServer,
}

impl World {
    pub(crate) fn open() -> Self {
        let subnet = machine::own().subnet();
        let subnet: Ipv4Addr = subnet.split('/').next().unwrap().parse().unwrap();
        // The last addresses of the subnet are not given to instances.
        let address = Ipv4Addr::from_bits(subnet.to_bits() + 4_094);
        ip(&["address", "replace", &format!("{address}/32"), "dev", "lo"]);
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(BTreeSet::new()));
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || answer(stream.unwrap(), &noted));
            }
        });
        Self { address, port, asked, names: NameServer::start_at(address) }
    }

    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("HOLM_EGRESS__NAMESERVERS", format!("[\"{}\"]", self.names.address)),
            ("HOLM_EGRESS__INSIDE", "[\"*.test\"]".to_owned()),
        ]
    }

    /// Returns the port of a server that speaks first. It serves until the process ends.
    pub(crate) fn greet(&self) -> u16 {
        let listener = TcpListener::bind((self.address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || {
                    let mut stream = stream.ok()?;
                    stream.write_all(b"220 hello\r\n").ok()?;
                    // Until the other side ends.
                    std::io::copy(&mut stream, &mut std::io::sink()).ok()
                });
            }
        });
        port
    }

    pub(crate) fn asked(&self, host: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|asked| asked.starts_with(host))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        ip(&["address", "delete", &format!("{}/32", self.address), "dev", "lo"]);
    }
}

fn ip(arguments: &[&str]) {
    let _ = Command::new("ip").args(arguments).status();
}

/// Answers with the request it got, and notes the host. Hosts whose names begin with `mute` do not
/// answer.
fn answer(stream: TcpStream, noted: &Mutex<BTreeSet<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (mut head, mut line) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            head.push_str(&line);
        }
        let lower = head.to_lowercase();
        let host = lower.lines().find_map(|line| line.strip_prefix("host: "))?.trim().to_owned();
        noted.lock().unwrap().insert(host.clone());
        if host.starts_with("mute") {
            continue;
        }
        let (length, mut stream) = (head.len(), &stream);
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{head}").ok()?;
    }
}

/// Returns a command that sends a request without using a proxy or a name server.
pub(crate) fn request(to: &str, host: &str, port: u16) -> String {
    let head =
        format!("GET / HTTP/1.1\\r\\nHost: {host}:{port}\\r\\nConnection: close\\r\\n\\r\\n");
    format!("printf '{head}' | nc -w 15 {to} {port}")
}
