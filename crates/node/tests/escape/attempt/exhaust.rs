//! Takes as much of one resource as possible, reports how much that was, and keeps it.

use super::say;
use std::fs::{self, File};
use std::io::{self, Write};
use std::process::{Child, Command};

pub(super) fn hoard(what: &str) -> io::Result<()> {
    match what {
        "processes" => keep(&take(processes)),
        "memory" => keep(&take(memory)),
        "disk" => keep(&[fill_disk()?]),
        "inodes" => keep(&take(|number| File::create(format!("/tmp/{number}")).map(drop))),
        "open-files" => keep(&take(|_| File::open("/dev/null"))),
        "watches" => keep(&take(|_| super::system::watch())),
        "aio" => keep(&take(|_| super::system::asynchronous_io())),
        "terminals" => keep(&take(|_| File::options().read(true).write(true).open("/dev/ptmx"))),
        "open-sockets" => keep(&take(|_| std::net::UdpSocket::bind("127.0.0.1:0"))),
        "output" => loop {
            // When there is no room left, printing fails, which must not end the program.
            let _ = io::stdout().write_all(&[b'x'; 65_536]);
        },
        other => Err(io::Error::other(format!("nothing is called `{other}`"))),
    }
}

/// How many times it tries to take one: no limit may be higher.
const TRIES: usize = 300_000;

fn take<T>(mut one: impl FnMut(usize) -> io::Result<T>) -> Vec<T> {
    let mut taken = Vec::new();
    while taken.len() < TRIES
        && let Ok(next) = one(taken.len())
    {
        taken.push(next);
    }
    taken
}

fn keep<T>(taken: &[T]) -> io::Result<()> {
    say(&format!(
        "took {}",
        if taken.len() == TRIES { "everything".to_owned() } else { taken.len().to_string() }
    ))?;
    loop {
        std::thread::park();
    }
}

fn processes(_: usize) -> io::Result<Child> {
    Command::new("/bin/sleep").arg("1000").spawn()
}

/// Takes memory until the kernel kills us.
fn memory(_: usize) -> io::Result<Vec<u8>> {
    Ok(vec![1_u8; 1 << 20])
}

fn fill_disk() -> io::Result<File> {
    let mut file = File::create("/big")?;
    while file.write_all(&[1; 65_536]).is_ok() {}
    fs::metadata("/big")?;
    Ok(file)
}
