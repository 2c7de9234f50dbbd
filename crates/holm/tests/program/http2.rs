//! What one caller can do to a server by HTTP/2.

use crate::common::Server;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

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
const POST: u8 = 0x83;

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

/// Reads the next frame: its kind, its flags and what is in it.
fn read(stream: &mut TcpStream) -> (u8, u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let [a, b, c, kind, flags, ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload).unwrap();
    (kind, flags, payload)
}

/// Else a workload that does not read on what it is sent would stop the bodies of all other requests
/// that the caller has on the same connection.
#[test]
fn one_request_has_a_part_of_the_window_of_its_connection() {
    const WINDOW_UPDATE: u8 = 8;
    let server = Server::start_with(tempfile::tempdir().unwrap(), &[]);
    let mut stream = connect(&server);
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    let (mut of_request, mut of_connection) = (None, None);
    while of_request.is_none() || of_connection.is_none() {
        match read(&mut stream) {
            (SETTINGS, 0, settings) => {
                let window = settings.chunks(6).find(|setting| setting[..2] == [0, 4]);
                of_request = Some(window.map_or(65_535, |setting| number(&setting[2..])));
            }
            (WINDOW_UPDATE, _, more) => of_connection = Some(65_535 + number(&more)),
            _ => {}
        }
    }
    assert!(of_connection >= of_request.map(|window| 4 * window), "{of_request:?}");
}

#[test]
fn a_refused_request_ends_though_its_answer_is_not_read() {
    const STREAMS: u32 = 200;
    let folder = tempfile::tempdir().unwrap();
    let room = (1 << 20).to_string();
    let server = Server::start_with(folder, &[("HOLM_SERVER__BODIES_STRANGERS_BYTES_MAX", &room)]);
    let mut stream = connect(&server);
    const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];
    stream.write_all(&frame(SETTINGS, 0, 0, &NO_WINDOW)).unwrap();
    for request in 0..STREAMS {
        let head = head(GET, "/oauth/jwks");
        let flags = END_OF_HEADERS | END_OF_REQUEST;
        stream.write_all(&frame(HEADERS, flags, 1 + 2 * request, &head)).unwrap();
    }
    let (mut unread, mut ended) = (0, 0);
    while unread + ended < STREAMS {
        match read(&mut stream) {
            (HEADERS, flags, _) if flags & END_OF_REQUEST == 0 => unread += 1,
            (HEADERS, ..) => ended += 1,
            _ => {}
        }
    }
    // What may stay open is what there is room for.
    assert!((1..=(96 + 256) / 8).contains(&unread), "{unread}");
    assert!(ended > 0);
}

/// The value of a metric for a resource.
fn metric(server: &Server, name: &str, resource: &str) -> u64 {
    let metrics = server.get("/metrics");
    let is_it = |line: &&str| line.starts_with(name) && line.contains(resource);
    let line = metrics.lines().find(is_it);
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().trim().parse().unwrap())
}

#[test]
fn open_requests_of_a_stranger_have_a_share_of_the_memory() {
    const ROOM: u64 = 4 << 20;
    const RESOURCE: &str = "\"bytes of open requests of strangers\"";
    let folder = tempfile::tempdir().unwrap();
    let room = ROOM.to_string();
    let server = Server::start_with(folder, &[("HOLM_SERVER__BODIES_STRANGERS_BYTES_MAX", &room)]);
    let mut stream = connect(&server);
    // The first header is remembered by the other end; each further one of the same is a byte.
    let (remembered, again) = ([&[0x40, 1][..], b"a", &[0]].concat(), vec![0xbe; 1_800]);
    for request in 0..100 {
        let mut head = head(POST, "/v0/oauth/token");
        head.extend(literal("content-type", "application/x-www-form-urlencoded"));
        if request == 0 {
            head.extend(&remembered);
        }
        head.extend(&again);
        // The body never comes.
        stream.write_all(&frame(HEADERS, END_OF_HEADERS, 1 + 2 * request, &head)).unwrap();
    }
    let began = Instant::now();
    let refused = || metric(&server, "holm_admission_refused_total", RESOURCE);
    while refused() < 90 {
        assert!(began.elapsed() < PATIENCE, "only {} are refused", refused());
        std::thread::sleep(Duration::from_millis(10));
    }
    let held = || metric(&server, "holm_admission_held", RESOURCE);
    assert!((1..=ROOM / 4).contains(&held()), "{}", held());
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
    drop(stream);
    while held() > 0 {
        assert!(began.elapsed() < PATIENCE, "{} stay", held());
        std::thread::sleep(Duration::from_millis(10));
    }
}
