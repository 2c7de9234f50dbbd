//! The server: assembly, listening, observation and the orderly end.
//!
//! Order of the start: settings, log, port, store, first start, machine, API, serve. The port comes before the store so that
//! a second server by mistake ends before it touches data; callers that come early wait in the kernel's queue.
//! Order of the end: `/ready` says 503, the port closes, requests in flight finish, traces are sent.

mod acme;
pub(crate) mod assembly;
mod callbacks;
mod dns;
mod edge;
mod first_start;
mod front;
mod guard;
mod hub;
mod machine;
mod observe;
mod probes;
mod process;
mod serve;
pub(crate) mod setup;
mod tls;

use crate::config::Config;
use crate::error::Error;
use crate::exit::Exit;
use crate::world;
use acme::Acme;
use api::App;
use auth::Auth;
use edge::Hosts;
use front::Front;
use jobs::logs::Logs;
use observe::Observation;
use probes::Probes;
use serve::{Ending, Listener};
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use tls::{Certificates, Folder};
use tokio_util::sync::CancellationToken;
use types::World;

/// Holds the bound address while the server runs.
const ADDRESS_FILE: &str = "address";
const TIDY_EVERY: Duration = Duration::from_secs(3600);

pub(crate) async fn run(config: Config) -> Result<Exit, Error> {
    let started = Instant::now();
    process::prepare();
    let observation = Observation::start(&config).await?;
    let certificates = Certificates::open(&config.server)?;
    let listener = Listener::bind(&config.server, certificates.as_ref()).await?;
    let store = setup::open_store(&config).await?;
    let address = listener.address()?;
    let public_url = public_url(&config, listener.scheme(), address);
    let world = world::system();
    first_start::greet(&config, &store, &world, &public_url).await?;
    let auth = assembly::auth(&config, &store, &world, &public_url).await?;
    let logs = assembly::logs(&config, &store);
    let sandboxes = machine::open(&config, &auth, &world, &public_url).await?;
    let app = assembly::api(&config, &store, &world, &public_url, &auth, sandboxes.fleet.clone(), logs.clone()).await?;

    let callbacks = callbacks::open(&config, &store)?;

    let ending = Ending::default();
    let probes = Probes {
        store: store.clone(),
        draining: ending.draining.clone(),
        metrics: observation.metrics.clone(),
        request_timeout: config.server.request_timeout.0,
    };
    let front =
        Front { router: probes::surround(api::router(app.clone()), probes), gateway: sandboxes.gateway.clone() };
    if let Some(certificates) = certificates {
        keep_certificates(&config, certificates, sandboxes.hosts.clone(), &world, &ending)?;
    }
    let fleet = tokio::spawn(api::fleet::run(app.clone(), ending.draining.clone()));
    let sending = ending.draining.clone();
    let sender = tokio::spawn(async move { callbacks.run(sending).await });
    api::fleet::ready(&app).await;
    let upkeep = Upkeep { store, auth, app: app.clone(), logs, world };
    tokio::spawn(upkeep.tidy(ending.draining.clone()));
    tokio::spawn(follow_signals(ending.clone()));
    write_address(&config, address)?;
    tracing::info!(%address, public_url, start_ms = started.elapsed().as_millis(), "ready");
    listener.serve(front, ending).await;
    forget_address(&config);
    // It ends with the draining, which is over; a failure in it was logged where it happened.
    let _ = fleet.await;
    let _ = sender.await;
    sandboxes.leave().await;
    tracing::info!("stopped");
    observation.finish().await;
    Ok(Exit::Success)
}

/// Follows what the operator gives, and orders what previews need.
fn keep_certificates(
    config: &Config,
    certificates: Arc<Certificates>,
    hosts: Option<Hosts>,
    world: &World,
    ending: &Ending,
) -> Result<(), Error> {
    if let Some(path) = &config.domains.certificates {
        let folder = Folder::open(path, &certificates)?;
        tokio::spawn(folder.follow(Arc::clone(&certificates), ending.draining.clone()));
    }
    let Some(hosts) = hosts else { return Ok(()) };
    if let Some(acme) = Acme::open(&config.domains.acme, &config.data.folder, &certificates, world)? {
        tokio::spawn(acme.run(hosts, ending.draining.clone()));
    }
    Ok(())
}

/// Where callers reach the server, unless it is told: on this machine.
fn public_url(config: &Config, scheme: &str, address: SocketAddr) -> String {
    match config.server.public_url.as_str() {
        "" if address.ip().is_unspecified() => format!("{scheme}://localhost:{}", address.port()),
        "" => format!("{scheme}://{address}"),
        told => told.trim_end_matches('/').to_owned(),
    }
}

fn write_address(config: &Config, address: SocketAddr) -> Result<(), Error> {
    let file = config.data.folder.join(ADDRESS_FILE);
    let new = file.with_extension("new");
    // Renamed, so that a reader never sees half an address.
    let written = fs::write(&new, format!("{address}\n")).and_then(|()| fs::rename(&new, &file));
    written.map_err(Error::io(format!("write {}", file.display())))
}

fn forget_address(config: &Config) {
    if let Err(error) = fs::remove_file(config.data.folder.join(ADDRESS_FILE)) {
        tracing::debug!(%error, "the address file could not be removed");
    }
}

/// A server that nobody can ask to stop would have to be killed, so it rather ends.
async fn follow_signals(ending: Ending) {
    if let Err(error) = ending.clone().follow_signals().await {
        tracing::error!(%error, "signals cannot be received; the server ends");
        ending.draining.cancel();
    }
}

/// What needs tidying.
struct Upkeep {
    store: Store,
    auth: Auth,
    app: App,
    logs: Logs,
    world: World,
}

impl Upkeep {
    /// Removes what need not be kept, now and then. A failure is only late work.
    async fn tidy(self, draining: CancellationToken) {
        while draining.run_until_cancelled(tokio::time::sleep(TIDY_EVERY)).await.is_some() {
            let tidied = self.store.tidy(self.world.now()).await;
            let forgotten = self.logs.tidy(self.world.now()).await;
            if let Err(error) = self.app.forget_executions().await {
                tracing::warn!(%error, "old executions stay; it is tried again in an hour");
            }
            match self.auth.maintain().await.and(forgotten).and(tidied) {
                Ok(done) => tracing::debug!(?done, "tidied"),
                Err(error) => tracing::warn!(%error, "tidying failed; it is tried again in an hour"),
            }
        }
    }
}
