//! The small static program inside each instance: it serves the sandbox API and is the parent of
//! every process that runs there.
//!
//! In an instance it is a fork of the starter ([`starter`]). By itself it is started in one of two
//! ways. `holm-guest --listen ADDRESS` opens its own socket and prints
//! the address that it got. With `HOLM_GUEST_FD=3` in the environment it serves the listening
//! socket on descriptor 3, so that clients can connect before it runs. With
//! `HOLM_GUEST_CONFIG_FD=4` it reads its settings as JSON from descriptor 4.

mod blocking;
mod carried;
mod drives;
mod environment;
mod files;
mod guest;
mod handover;
mod http;
mod http_client;
mod instance;
mod mcp;
mod network;
mod processes;
mod program;
mod proxy;
mod raw;
mod reaper;
mod reference;
mod route;
mod serve;
mod settings;
mod shell;
mod shutdown;
mod start;
mod starter;
mod system;
mod terminals;
mod trust;
mod upgrade;
mod utf8;
mod work;
mod world;

use guest::Guest;
use handover::State;
use raw::HandedOver;
use settings::Settings;
use starter::Entered;
use std::io::Write;
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::Runtime;

const USAGE: &str = "usage: holm-guest --listen ADDRESS, or HOLM_GUEST_FD=3 with a listening socket as descriptor 3";

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{USAGE}")]
    Usage,
    #[error("failed to listen")]
    Listen(#[source] std::io::Error),
    #[error("failed to start")]
    Start(#[source] std::io::Error),
    #[error(transparent)]
    Settings(#[from] settings::Error),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let cause = std::error::Error::source(&error)
                .map(|cause| format!(": {cause}"))
                .unwrap_or_default();
            // Nothing can be done about a closed error stream.
            let _ = writeln!(std::io::stderr(), "holm-guest: {error}{cause}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    if std::env::args().skip(1).eq(["--version"]) {
        let line = upgrade::version_line(env!("CARGO_PKG_VERSION"));
        return writeln!(std::io::stdout(), "{line}").map_err(Error::Start);
    }
    let entered = match starter::is_wanted().then(starter::run).transpose().map_err(Error::Start)? {
        Some(None) => return Ok(()),
        entered => entered.flatten(),
    };
    // The parent may have a mask that keeps its own files private; files created in here get the
    // usual modes.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    raw::restore_ignored_signals();
    // The server refuses huge pages for itself, and its children inherit that. Programs in here
    // decide for themselves, as on any machine.
    let _ = rustix::thread::disable_transparent_huge_pages(false);
    let state = State::take().transpose().map_err(Error::Start)?;
    let (handed_over, given, runtime) = match (&state, entered) {
        (Some(state), _) => {
            (Some(state.listener().map_err(Error::Listen)?), state.given().into(), None)
        }
        (None, Some(Entered { listener, config, runtime })) => {
            (listener, settings::Given::read(config)?, Some(runtime))
        }
        (None, None) => {
            let (listener, config) = (HandedOver::Listener.take(), HandedOver::Settings.take());
            (listener, settings::Given::read(config)?, None)
        }
    };
    let settings = settings::Settings::new(given)?;
    let listener = match handed_over {
        Some(listener) => TcpListener::from(listener),
        None => listen()?,
    };
    let runtime = runtime.map_or_else(serve::runtime, Ok).map_err(Error::Start)?;
    begin(&runtime, listener, settings, state)
}

fn begin(
    runtime: &Runtime,
    listener: TcpListener,
    settings: Settings,
    state: Option<State>,
) -> Result<(), Error> {
    listener.set_nonblocking(true).map_err(Error::Listen)?;
    // While nothing else runs in here that could leave no room for its thread.
    blocking::begin();
    runtime.block_on(async move {
        // Before anything starts that could send signals: see `HANDLED_SIGNALS`.
        let asked_to_end = shutdown::Asked::listen().map_err(Error::Start)?;
        let copy = listener.try_clone().map_err(Error::Listen)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::Listen)?;
        let reaper = reaper::Reaper::start().map_err(Error::Start)?;
        let guest = Arc::new(Guest::new(world::real(), settings, reaper, copy.into()));
        proxy::begin(&guest);
        if let Some(work) = &guest.work {
            return serve_work(&guest, work, listener).await;
        }
        match state {
            Some(state) => state.resume(&guest).map_err(Error::Start)?,
            None => {
                environment::write_file(&guest.instance.settings, &guest.instance.environment());
                guest.start.start(&guest.instance, &guest.processes);
            }
        }
        tokio::select! {
            () = serve::run(guest.clone(), listener) => {}
            () = asked_to_end.wait() => shutdown::run(&guest.processes).await,
        }
        Ok(())
    })
}

/// Runs the work, and serves requests about it until the machine kills this program. Nothing acts on
/// requests to end: the work is ended by whoever started it.
async fn serve_work(
    guest: &Arc<Guest>,
    work: &Arc<work::Work>,
    listener: tokio::net::TcpListener,
) -> Result<(), Error> {
    // Even root inside the instance must not find this program's secrets in its memory.
    let hidden =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    hidden.map_err(|error| Error::Start(error.into()))?;
    tokio::spawn(work::run(guest.clone(), work.clone()));
    serve::run(guest.clone(), listener).await;
    Ok(())
}

/// Opens the socket that the command line asks for. The address is printed, so that a caller can
/// ask for port 0.
fn listen() -> Result<TcpListener, Error> {
    let mut arguments = std::env::args().skip(1);
    let (Some("--listen"), Some(address), None) =
        (arguments.next().as_deref(), arguments.next(), arguments.next())
    else {
        return Err(Error::Usage);
    };
    let listener = TcpListener::bind(address).map_err(Error::Listen)?;
    let local = listener.local_addr().map_err(Error::Listen)?;
    writeln!(std::io::stdout(), "{local}").map_err(Error::Listen)?;
    Ok(listener)
}
