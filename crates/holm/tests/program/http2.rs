//! What one caller can do to a server by HTTP/2.

use crate::common::Server;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than any test machine needs; it only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(30);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_OF_HEADERS: u8 = 4;
const END_OF_REQUEST: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

/// A header with its text, which the other end does not remember.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| vec![u8::try_from(text.len()).unwrap()];
    [vec![0], length(name), name.into(), length(value), value.into()].concat()
}

/// The head of a request. The first byte is `:method`, as HTTP/2 numbers it.
fn head(method: u8, path: &str) -> Vec<u8> {
    const HTTP: u8 = 0x86;
    [vec![method, HTTP], literal(":path", path), literal(":authority", "holm")].concat()
}

const GET: u8 = 0x82;

fn connect(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
    stream
}

#[test]
fn who_only_steers_a_connection_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing else ends the connection.
    let server = Server::start_with(folder, &[("HOLM_SERVER__HEADER_TIMEOUT", "1h")]);
    let mut stream = connect(&server);
    let request = frame(HEADERS, END_OF_HEADERS | END_OF_REQUEST, 1, &head(GET, "/health"));
    stream.write_all(&request).unwrap();
    const WINDOW: [u8; 2] = [0, 4];
    let steering: Vec<u8> = (0..2_000)
        .flat_map(|size: u32| {
            frame(SETTINGS, 0, 0, &[&WINDOW[..], &(size % 2).to_be_bytes()].concat())
        })
        .collect();
    let gone = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    let written = stream.write_all(&steering);
    let read = stream.read_to_end(&mut Vec::new()).map(drop);
    for outcome in [written, read] {
        assert!(outcome.as_ref().err().is_none_or(|e| gone.contains(&e.kind())), "{outcome:?}");
    }
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
}
