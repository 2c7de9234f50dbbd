//! Readers who are slow, or too many.

use crate::common::Guest;
use crate::terminals::Client;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

fn ask(guest: &Guest, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&guest.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: sandbox\r\nAccept: text/plain\r\n\r\n").unwrap();
    stream
}

/// Returns how much the process has read so far.
fn read_by(guest: &Guest) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{}/io", guest.pid())).unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn readers_who_stop_hold_little_of_a_large_file() {
    const READERS: usize = 60;
    let guest = Guest::start();
    std::fs::write(guest.path().join("large"), vec![b'x'; 32 << 20]).unwrap();
    let before = guest.peak_kib();
    let mut readers: Vec<_> = (0..READERS).map(|_| ask(&guest, "/filesystem/large")).collect();
    for reader in &mut readers {
        reader.read_exact(&mut [0; 1]).unwrap();
    }
    // Until all has been read that will be without them.
    let mut read = 0;
    while read != read_by(&guest) {
        read = read_by(&guest);
        std::thread::sleep(Duration::from_millis(200));
    }
    let each = (guest.peak_kib() - before) / READERS as u64;
    assert!(each < 2_000, "{each} KiB for each");
}

#[test]
fn only_so_many_follow_output_and_those_who_hang_up_do_not() {
    let guest = Guest::start();
    guest.post("/process", &json!({"command": "sleep 100", "name": "slow"})).ok();
    let path = "/process/slow/logs/stream";
    let following: Vec<_> = (0..256)
        .map(|_| {
            let mut stream = ask(&guest, path);
            stream.read_exact(&mut [0; 1]).unwrap();
            stream
        })
        .collect();
    assert!(guest.get(path).refused(503).contains("256"));
    let streaming = guest.send(
        "POST",
        "/process",
        &[("Content-Type", "application/json"), ("Accept", "text/event-stream")],
        br#"{"command": "true"}"#,
    );
    assert_eq!(streaming.status, 503);
    guest.get("/process/slow").ok();
    // Nothing is printed meanwhile.
    drop(following);
    while guest.open("GET", path, &[], b"").status != 200 {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn only_so_many_clients_have_terminals() {
    let guest = Guest::start();
    let mut clients: Vec<_> = (0..128).map(|_| Client::connect(&guest, "sessionId=a")).collect();
    let refused = || {
        let stream = TcpStream::connect(&guest.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let address = format!("ws://{}/terminal/ws?shell=/bin/sh&sessionId=a", guest.address);
        tokio_tungstenite::tungstenite::client(address, stream).is_err()
    };
    assert!(refused());
    clients.truncate(1);
    while refused() {
        std::thread::sleep(Duration::from_millis(10));
    }
    clients[0].type_in("echo $((40+2))\n");
    clients[0].until("42");
}
