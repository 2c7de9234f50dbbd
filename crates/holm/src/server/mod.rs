//! The server: assembly, listening, observation and orderly shutdown.
//!
//! Order at start: settings, log, ports, store, first start, machine, control plane, serving. Ports
//! are opened before the store so that a second server, started by mistake, stops before it touches
//! any data; callers that connect early wait in the kernel's queue. Order at shutdown: `/ready`
//! answers 503, the ports close, requests in flight finish, traces are sent.

mod acme;
pub(crate) mod addresses;
pub(crate) mod assembly;
mod authorities;
mod busy_poll;
mod callbacks;
mod connections;
mod dns;
mod doors;
mod drives;
mod edge;
mod first_start;
mod front;
mod guard;
mod heads;
mod hub;
mod kept;
mod machine;
pub(crate) mod machine_name;
mod models;
pub(crate) mod name_servers;
mod no_machine;
mod observe;
pub(crate) mod other_firewalls;
mod probes;
mod process;
mod readers;
mod refusals;
mod serve;
pub(crate) mod setup;
mod threads;
mod tls;
mod tunnels;

pub(crate) use first_start::Greeting;
pub(crate) use process::make_room_for_files;

use crate::config::Config;
use crate::error::Error;
use crate::exit::Exit;
use crate::world;
use acme::Acme;
use addresses::Addresses;
use auth::Auth;
use auth::setup::FirstStart;
use connections::Gate;
use control::Control;
use edge::Hosts;
use front::Front;
use gateway::Gateway;
use jobs::logs::Logs;
use jobs::runners::Runners;
use kept::Kept;
use machine::Sandboxes;
use metrics_exporter_prometheus::PrometheusHandle;
use observe::Observation;
use probes::Probes;
use refusals::Refusals;
use serve::{Ending, Listener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use threads::Threads;
use tls::{Certificates, Folder, Own};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use types::World;

const TIDY_EVERY: Duration = Duration::from_secs(3600);
/// The first time comes sooner, so that a server that is started often tidies too.
const TIDY_FIRST: Duration = Duration::from_secs(60);

pub(crate) async fn run(config: Config, greeting: Greeting) -> Result<Exit, Error> {
    let begun = Instant::now();
    process::prepare();
    let _folder = setup::lock_folder(&config)?;
    let observation = Observation::start(&config).await?;
    config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let certificates = Certificates::open(&config.server)?;
    let gate = Gate::new(&config);
    tokio::spawn(gate.readers.clone().look_after());
    let busy_poll = Duration::from_micros(config.server.busy_poll_us.into());
    let (threads, running) = Threads::start(config.server.threads, busy_poll)?;
    let listener = Listener::bind(&config.server, certificates.as_ref(), gate, threads).await?;
    let addresses = Addresses::open(&config, &listener).await?;
    let world = world::system();
    let kept = Kept::find(&config, &world)?;
    kept.iter().try_for_each(|kept| kept.require_file(&config))?;
    let store = setup::open_store(&config).await?;
    if let Some(kept) = &kept {
        kept.require_known(&store).await?;
    }
    let made = first_start::make(&config, &store, &world).await?;
    let auth = assembly::auth(&config, &store, &world, &addresses.urls.public).await?;
    let ending = Ending::default();
    // Before the machine hands anything out, so that a server asked to stop while it starts gives
    // it back.
    ending.follow_signals()?;
    let sandboxes = machine::open(&config, &store, &auth, &world, &addresses.urls).await?;
    let metrics = observation.metrics.clone();
    let opened = Opened { config, store, auth, world, certificates, metrics, ending };
    let served = opened.serve(&sandboxes, (listener, addresses), (begun, made, greeting)).await;
    running.end().await;
    // After a failed start too, so that nothing of it stays on the machine.
    sandboxes.leave().await;
    served?;
    tracing::info!("stopped");
    observation.finish().await;
    Ok(Exit::Success)
}

/// What a server stands on, from the moment that its machine is open.
struct Opened {
    config: Config,
    store: Store,
    auth: Auth,
    world: World,
    certificates: Option<Arc<Certificates>>,
    metrics: Option<PrometheusHandle>,
    ending: Ending,
}

impl Opened {
    /// Starts everything else, serves until the server is asked to stop, and ends it all again.
    async fn serve(
        self,
        sandboxes: &Sandboxes,
        (listener, addresses): (Listener, Addresses),
        (begun, made, greeting): (Instant, Option<FirstStart>, Greeting),
    ) -> Result<(), Error> {
        let Self { config, store, auth, world, certificates, metrics, ending } = self;
        let (config, urls) = (&config, addresses.urls.clone());
        let logs = assembly::logs(config, &store);
        let local = sandboxes.local.clone();
        let control =
            assembly::control(config, &store, &world, &urls, &auth, local, logs.clone()).await?;
        let for_gateway = match &sandboxes.gateway {
            Some(gateway) => {
                Some(ForGateway::open(config, &store, &world, &control, gateway).await?)
            }
            None => None,
        };
        let callbacks = callbacks::open(config, &store)?;
        let runners = assembly::runners(config, &control)?;
        let (draining, request_timeout) =
            (ending.draining.clone(), config.server.request_timeout.0);
        let probes = Probes { store: store.clone(), draining, metrics, request_timeout };
        let front = front(config, &control, &runners, probes, sandboxes.gateway.clone());
        if let Some(certificates) = certificates {
            keep_certificates(config, certificates, sandboxes.hosts.clone(), &world, &ending)?;
        }
        let background = control::start(&control, &ending.draining);
        let sending = ending.draining.clone();
        let sender = tokio::spawn(async move { callbacks.run(sending).await });
        // Never becomes ready if the server was asked to stop in the meantime.
        ending.draining.run_until_cancelled(control::workloads::ready(&control)).await;
        let upkeep = Upkeep { store, auth, control, logs, world };
        tokio::spawn(upkeep.tidy(ending.draining.clone()));
        let draining = ending.draining.clone();
        tokio::spawn(async move { runners.run(draining).await });
        // Nobody is led to a server that was asked to stop while it started.
        if !ending.draining.is_cancelled() {
            addresses.tell(config)?;
            first_start::greet(config, &addresses, made, greeting);
            let (address, public_url, content_url) = (addresses.own, urls.public, urls.content);
            tracing::info!(%address, public_url, content_url, start_ms = begun.elapsed().as_millis(), "ready");
        }
        serve_all(listener, addresses.content, front, ending).await;
        addresses::forget(config);
        // Ends once draining has begun; failures inside were logged where they happened.
        let _ = background.await;
        let _ = sender.await;
        if let Some(parts) = for_gateway {
            parts.ledger.close().await;
        }
        Ok(())
    }
}

/// What the gateway asks of the control plane. It holds the first two weakly.
struct ForGateway {
    _drives: Arc<dyn gateway::Drives>,
    _tunnels: Arc<dyn gateway::Tunnels>,
    ledger: ::models::ledger::Ledger,
}

impl ForGateway {
    async fn open(
        config: &Config,
        store: &Store,
        world: &World,
        control: &Control,
        gateway: &Gateway,
    ) -> Result<Self, Error> {
        let drives: Arc<dyn gateway::Drives> = Arc::new(drives::LocalDrives(control.clone()));
        let tunnels: Arc<dyn gateway::Tunnels> = Arc::new(tunnels::LocalTunnels(control.clone()));
        // Without a machine, requests for these are refused like all others to sandboxes.
        if control.machine().is_some() {
            gateway.serve_drives(&drives);
            gateway.serve_tunnels(&tunnels);
        }
        let ledger = models::open(config, store, world, gateway).await?;
        Ok(Self { _drives: drives, _tunnels: tunnels, ledger })
    }
}

fn front(
    config: &Config,
    control: &Control,
    runners: &Runners,
    probes: Probes,
    gateway: Option<Gateway>,
) -> Front {
    let app = api::App::new(control.clone());
    let webhooks = api::webhooks(runners.clone(), &app);
    let router = probes::surround(api::router(app).merge(webhooks), probes);
    Front { router, gateway, refusals: Refusals::new(&config.log), main: Handle::current() }
}

/// Serves at both addresses until draining is over. Once it begins nothing more is started, so
/// requests that wait for that are refused rather than held.
async fn serve_all(own: Listener, content: Option<Listener>, front: Front, ending: Ending) {
    let at_content = async {
        if let Some(content) = content {
            content.serve(front.clone(), ending.clone()).await;
        }
    };
    let waiting = async {
        ending.draining.cancelled().await;
        if let Some(gateway) = &front.gateway {
            gateway.stop_waiting();
        }
    };
    tokio::join!(at_content, own.serve(front.clone(), ending.clone()), waiting);
}

/// Follows the certificates that the operator provides, and orders certificates for previews.
fn keep_certificates(
    config: &Config,
    certificates: Arc<Certificates>,
    hosts: Option<Hosts>,
    world: &World,
    ending: &Ending,
) -> Result<(), Error> {
    if let Some(own) = Own::of(&config.server) {
        tokio::spawn(own.follow(Arc::clone(&certificates), world.clone(), ending.draining.clone()));
    }
    if let Some(path) = &config.domains.certificates {
        let folder = Folder::open(path, &certificates)?;
        tokio::spawn(folder.follow(
            Arc::clone(&certificates),
            world.clone(),
            ending.draining.clone(),
        ));
    }
    let Some(hosts) = hosts else { return Ok(()) };
    if let Some(acme) = Acme::open(&config.domains.acme, &config.data.folder, &certificates, world)?
    {
        tokio::spawn(acme.run(hosts, ending.draining.clone()));
    }
    Ok(())
}

/// What the hourly tidying works on.
struct Upkeep {
    store: Store,
    auth: Auth,
    control: Control,
    logs: Logs,
    world: World,
}

impl Upkeep {
    /// Deletes expired data every hour. A failure only delays it.
    async fn tidy(self, draining: CancellationToken) {
        let mut pause = TIDY_FIRST;
        while draining.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            pause = TIDY_EVERY;
            let tidied = self.store.tidy(self.world.now()).await;
            let forgotten = self.logs.tidy(self.world.now()).await;
            if let Err(error) = self.control.forget_executions().await {
                tracing::warn!(%error, "old executions stay; it is tried again in an hour");
            }
            match self.auth.maintain().await.and(forgotten).and(tidied) {
                Ok(done) => tracing::debug!(?done, "tidied"),
                Err(error) => {
                    tracing::warn!(%error, "tidying failed; it is tried again in an hour")
                }
            }
        }
    }
}
