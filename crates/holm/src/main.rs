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

/// Requests and SQLite ask for much memory in small pieces; measured, this is what they wait for
/// least.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    keep_pages_small();
    let cli = cli::Cli::parse();
    // Fails only when a provider is there already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(Box::pin(cli.run())),
        Err(source) => Err(Error::Io { act: "start the threads of the program".into(), source }),
    };
    result.unwrap_or_else(|error| explain(&error)).into()
}

/// The allocator asks for huge pages, of which one small object keeps 2 MiB: after a burst most of
/// the memory would stay. Programs that this one starts inherit this; in instances the guest takes
/// it back.
fn keep_pages_small() {
    // A kernel that does not know the question has no huge pages to refuse, or keeps them.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

fn explain(error: &Error) -> Exit {
    term::note(format!("{} {error}", term::styled_note(Style::Bad, "error:")));
    let mut cause = error.source();
    while let Some(inner) = cause {
        term::note(format!("  because: {inner}"));
        cause = inner.source();
    }
    if let Some(next) = error.next() {
        term::note(format!("  next: {next}"));
    }
    error.exit()
}
