//! A hostile program. It prints what it got but should not have, and at last how many things it
//! tried.

mod exhaust;
mod files;
#[expect(unsafe_code, reason = "most attempts are system calls that no safe interface offers")]
mod system;

use std::io;

/// `Ok` says what it got.
type Outcome = io::Result<String>;
type Attempt = (&'static str, fn() -> Outcome);

fn main() -> io::Result<()> {
    let what = std::env::args().nth(1).unwrap_or_default();
    let attempts = match what.as_str() {
        "system-calls" => system::CALLS,
        "sockets" => system::SOCKETS,
        "files" => files::FILES,
        "first-program" => files::FIRST_PROGRAM,
        hoard => return exhaust::hoard(hoard),
    };
    for (name, attempt) in attempts {
        if let Ok(got) = attempt() {
            say(&format!("GOT {name}: {got}"))?;
        }
    }
    say(&format!("tried {}", attempts.len()))
}

fn say(line: &str) -> io::Result<()> {
    io::Write::write_all(&mut io::stdout(), format!("{line}\n").as_bytes())
}

fn refused() -> io::Error {
    io::ErrorKind::PermissionDenied.into()
}
