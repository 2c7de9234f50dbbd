//! The program in an instance that is reached when the way to it is measured. `workload PORT`, or
//! the port in the variable `PORT`, answers every request without a body with the same 1,024 bytes.
//! They are the letter in `LETTER`, so that revisions can be told apart. It uses one thread for
//! each connection, so that it costs next to nothing itself.
//!
//! A separate crate without dependencies, because it is built as a static program that runs in any
//! image.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

const BODY_BYTES: usize = 1024;
const HEAD_BYTES_MAX: usize = 16 << 10;
const STACK_BYTES: usize = 64 << 10;

fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).or_else(|| std::env::var("PORT").ok());
    let port = port.and_then(|port| port.parse().ok());
    let port = port.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "which port?"))?;
    let letter = std::env::var("LETTER").unwrap_or_else(|_| "x".to_owned());
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {BODY_BYTES}\r\n\r\n{}",
        letter.repeat(BODY_BYTES / letter.len().max(1))
    );
    let answer: &'static [u8] = answer.leak().as_bytes();
    for stream in listener.incoming() {
        let stream = stream?;
        thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(stream, answer))?;
    }
    Ok(())
}

/// Serves a connection until it ends.
fn serve(mut stream: TcpStream, answer: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::with_capacity(HEAD_BYTES_MAX);
    let mut part = [0; 4096];
    loop {
        let length = stream.read(&mut part)?;
        if length == 0 || received.len() + length > HEAD_BYTES_MAX {
            return Ok(());
        }
        received.extend_from_slice(&part[..length]);
        if received.ends_with(b"\r\n\r\n") {
            stream.write_all(answer)?;
            received.clear();
        }
    }
}
