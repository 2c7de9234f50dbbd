//! Holm: the server and its command line in one program.

mod characters;
mod cli;
mod client;
mod commands;
mod config;
mod duration;
mod error;
mod exit;
mod output;
mod project;
mod server;
mod shell;
mod signals;
mod term;
mod terminal;
mod world;

use clap::Parser;
use error::Error;
use exit::Exit;
use std::error::Error as _;
use std::process::ExitCode;
use term::Style;

/// Requests and SQLite make many small allocations; of the allocators we measured, this one costs
/// them the least time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    keep_pages_small();
    let cli = cli::Cli::parse();
    if cli.serves() {
        server::make_room_for_files();
    }
    // Fails only when a provider is already installed, which is just as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(Box::pin(cli.run())),
        Err(source) => Err(Error::Io { act: "start the threads of the program".into(), source }),
    };
    let result = result.and_then(|exit| term::written().map(|()| exit));
    result.unwrap_or_else(|error| explain(&error)).into()
}

/// Turns off transparent huge pages. The allocator would ask for them, and a single small object
/// keeps all 2 MiB of one, so most memory would stay in use after a burst. Child processes inherit
/// this setting; inside instances the guest undoes it.
fn keep_pages_small() {
    // A kernel that does not know this call has no huge pages, or keeps using them.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Returns the causes of an error that help to mend it. What the HTTP client says of a server that
/// cannot be reached is how it tried; only the innermost says why that failed.
fn causes(error: &Error) -> Vec<&(dyn std::error::Error + 'static)> {
    let all = std::iter::successors(error.source(), |cause| (*cause).source());
    match error {
        Error::Unreachable { .. } => all.last().into_iter().collect(),
        _ => all.collect(),
    }
}

fn explain(error: &Error) -> Exit {
    term::note(format!("{} {error}", term::styled_note(Style::Bad, "error:")));
    for cause in causes(error) {
        term::note(format!("  because: {cause}"));
    }
    if let Some(next) = error.next() {
        term::note(format!("  next: {next}"));
    }
    error.exit()
}
