//! The parts that run sandboxes and lead requests to them, if this process has those roles.

use super::addresses::Urls;
use super::doors;
use super::edge::{Hosts, Local};
use super::guard::DataPlaneGuard;
use super::machine_name::{self, NODE_FOLDER};
use super::no_machine::NoMachine;
use super::{assembly, authorities, name_servers, other_firewalls};
use crate::config::{self, Config, Role};
use crate::error::Error;
use auth::Auth;
use control::machine::Edge;
use egress::Egress;
use gateway::Gateway;
use host::{ImageBuilder, LocalMachine, MachineControl, Surroundings};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use types::World;

const TIDY_EVERY: Duration = Duration::from_secs(3600);
/// How soon a server that was started on a full disk uses the room that somebody makes.
const LOOK_AT_DISK_EVERY: Duration = Duration::from_secs(60);
const GUEST: &str = "holm-guest";
const NAMESERVER_PORT: u16 = 53;

/// The parts of this process that serve sandboxes.
pub(crate) struct Sandboxes {
    /// What the control plane needs of them.
    pub(crate) local: assembly::Local,
    pub(crate) gateway: Option<Gateway>,
    pub(crate) hosts: Option<Hosts>,
    host: Option<LocalMachine>,
}

/// Opens the parts that the roles of this process ask for.
pub(crate) async fn open(
    config: &Config,
    store: &Store,
    auth: &Auth,
    world: &World,
    urls: &Urls,
) -> Result<Sandboxes, Error> {
    // The check of the settings makes sure that a process has both roles or neither.
    if !config.server.roles.contains(&Role::Node) {
        return open_without(config, auth, world, urls);
    }
    let doors = doors::of(urls).await;
    let host = open_host(config.clone(), world.clone(), doors).await?;
    let opened = open_around(config, store, auth, world, urls, &host).await;
    if opened.is_err() {
        leave(host).await;
    }
    opened
}

/// Opens the gateway of a server that runs nothing.
fn open_without(
    config: &Config,
    auth: &Auth,
    world: &World,
    urls: &Urls,
) -> Result<Sandboxes, Error> {
    let gateway = Gateway::new(gateway::Parts {
        settings: gateway_settings(config, urls)?,
        guard: Arc::new(DataPlaneGuard(auth.clone())),
        machine: Arc::new(NoMachine),
        world: world.clone(),
    });
    let edge: Arc<dyn Edge> = Arc::new(Local::new(gateway.clone()));
    let local = assembly::Local { machine: None, edge: Some(edge), builder: None };
    Ok(Sandboxes { local, gateway: Some(gateway), hosts: None, host: None })
}

/// Opens what belongs to the machine. If that fails, what was set up on it is removed again.
async fn open_around(
    config: &Config,
    store: &Store,
    auth: &Auth,
    world: &World,
    urls: &Urls,
    host: &LocalMachine,
) -> Result<Sandboxes, Error> {
    open_egress(config, host, world, urls).await?;
    let gateway = Gateway::new(gateway::Parts {
        settings: gateway_settings(config, urls)?,
        guard: Arc::new(DataPlaneGuard(auth.clone())),
        machine: Arc::new(host.clone()),
        world: world.clone(),
    });
    tokio::spawn(tidy(host.clone()));
    tokio::spawn(look_at_disk(config.clone(), host.clone()));
    tokio::spawn(other_firewalls::watch(config.clone(), world.clone()));
    use_objects(config, store, host).await?;
    let machine = Arc::new(MachineControl::new(host.clone(), gateway.standby().clone()));
    let edge = Local::new(gateway.clone());
    let hosts = Some(edge.hosts());
    let builder = open_builder(config.clone(), host.clone(), world.clone()).await?;
    let local = assembly::Local {
        machine: Some(machine),
        edge: Some(Arc::new(edge)),
        builder: Some(Arc::new(builder)),
    };
    Ok(Sandboxes { local, gateway: Some(gateway), hosts, host: Some(host.clone()) })
}

impl Sandboxes {
    /// Removes what was set up on the machine for instances, if no instance is left.
    pub(crate) async fn leave(self) {
        if let Some(host) = self.host {
            leave(host).await;
        }
    }
}

async fn leave(host: LocalMachine) {
    if let Ok(Err(error)) = tokio::task::spawn_blocking(move || host.leave()).await {
        tracing::debug!(%error, "something of this server stays on the machine");
    }
}

async fn open_host(
    config: Config,
    world: World,
    doors: Vec<SocketAddrV4>,
) -> Result<LocalMachine, Error> {
    let opened = tokio::task::spawn_blocking(move || {
        let images = images(&config)?;
        let needed = node::probe_needed(&config.images_folder());
        for missing in needed.iter().filter(|found| !found.works) {
            tracing::error!(needed = missing.what, why = missing.detail, "no sandbox can start");
        }
        let settings = host_settings(&config, &world, doors)?;
        LocalMachine::open(settings, images, world)
            .map_err(|error| cannot("run sandboxes on this machine", &error))
    });
    opened.await.map_err(|error| cannot("run sandboxes on this machine", &error))?
}

/// Starts the proxy that carries the outgoing traffic of instances with rules, unless instances
/// have no way out at all.
async fn open_egress(
    config: &Config,
    host: &LocalMachine,
    world: &World,
    urls: &Urls,
) -> Result<(), Error> {
    let Some(address) = host.proxy_address() else { return Ok(()) };
    let usual = match config.node.nameservers.as_slice() {
        [] => name_servers::own(),
        told => told.to_vec(),
    };
    let usual: Vec<SocketAddr> =
        usual.into_iter().map(|server| SocketAddr::new(server, NAMESERVER_PORT)).collect();
    let file = config.egress.authorities.as_deref();
    let extra_roots = authorities::read("egress.authorities", file)?;
    let settings = config.egress.settings(&config.data.folder, address, &usual, hosts_of(urls));
    let settings = settings.map_err(Error::io("read egress.proxy_password_file".to_owned()))?;
    let settings = egress::Settings { extra_roots, ..settings };
    let egress = match Egress::open(settings, world.clone()) {
        Ok(egress) => egress,
        // Another server, whose instances have the same addresses as ours, listens there. Workloads
        // that need no proxy still run, as they did before there was one.
        Err(egress::OpenError::Bind { address, port, source })
            if source.kind() == ErrorKind::AddrInUse =>
        {
            tracing::error!(
                %address, port,
                "nothing is started whose network has rules: another program listens there; give \
                 each server of this machine a `node.subnet` of its own"
            );
            return Ok(());
        }
        Err(error) => return Err(cannot("lead workloads out ([egress])", &error)),
    };
    let authorities = file.map(std::fs::read_to_string).transpose();
    let authorities = authorities.map_err(Error::io("read egress.authorities".to_owned()))?;
    let (own_hosts, authorities) = (hosts_of(urls), authorities.unwrap_or_default());
    host.use_egress(egress, Surroundings { own_hosts, authorities }).await;
    Ok(())
}

/// Returns the host names of this server's URLs.
fn hosts_of(urls: &Urls) -> Vec<String> {
    let host = |url: &String| {
        reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned))
    };
    [&urls.public, &urls.content].into_iter().filter_map(host).collect()
}

/// Returns the names that the edge takes for the server's own, together with all hosts below them.
/// They are written like the hosts of requests that the edge compares with them.
pub(super) fn own_names(config: &Config, urls: &Urls) -> Vec<String> {
    let names = hosts_of(urls).into_iter().chain(["localhost".to_owned()]);
    let names = names.chain(config.gateway.domains.iter().cloned());
    names.map(|name| name.trim_end_matches('.').to_lowercase()).collect()
}

/// Connects the object service for archives and volume templates, if there is one. Nothing is sent
/// to it before it is needed.
async fn use_objects(config: &Config, store: &Store, host: &LocalMachine) -> Result<(), Error> {
    let read = config.objects.settings();
    let read = read.map_err(Error::io("read the file of objects.secret_file".to_owned()))?;
    let Some(settings) = read else { return Ok(()) };
    let objects = objects::Objects::open(&settings);
    let objects = objects.map_err(|error| cannot("use the object service ([objects])", &error))?;
    let installation = control::installation::name(store).await;
    let installation = installation.map_err(|source| Error::Store {
        act: "find the name of this installation".to_owned(),
        source,
    })?;
    let settings = config.objects.remote(config.snapshots.offload_after.0);
    host.use_objects(&objects, &installation, &settings);
    tokio::spawn(host.clone().tidy_objects(settings, store.world().clone()));
    Ok(())
}

async fn open_builder(
    config: Config,
    host: LocalMachine,
    world: World,
) -> Result<ImageBuilder, Error> {
    let opened = tokio::task::spawn_blocking(move || {
        let folder = config.data.folder.join("builds");
        let kept_mb = disk_mb(&config, config.builder.kept_mb)?;
        let kept_mb = node::divided(kept_mb, config.node.workspace_share_percent);
        let settings = config.builder.settings(&config.builds, folder, kept_mb);
        ImageBuilder::open(host, settings, world)
            .map_err(|error| cannot("build images on this machine", &error))
    });
    opened.await.map_err(|error| cannot("build images on this machine", &error))?
}

/// Regularly frees the disk space of unused images.
async fn tidy(host: LocalMachine) {
    loop {
        let host = host.clone();
        // Failures are logged where they happen.
        let _ = tokio::task::spawn_blocking(move || host.tidy()).await;
        tokio::time::sleep(TIDY_EVERY).await;
    }
}

/// Regularly looks at how much disk there is to divide.
async fn look_at_disk(config: Config, host: LocalMachine) {
    let config = Arc::new(config);
    loop {
        tokio::time::sleep(LOOK_AT_DISK_EVERY).await;
        let (config, host) = (Arc::clone(&config), host.clone());
        let look = move || {
            let pulled_mb = disk_mb(&config, config.images.disk_mb)?;
            let pushed_mb = disk_mb(&config, config.registry.disk_mb)?;
            let looked = host.look_at_disk(pulled_mb, pushed_mb);
            looked.map_err(Error::io("divide the disk".to_owned()))
        };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(look).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "how much disk there is could not be seen");
        }
    }
}

/// Makes an error that lists all causes and a hint at what to do.
fn cannot(act: &str, error: &dyn std::error::Error) -> Error {
    let message = types::chain(error);
    let hint =
        "`holm doctor` says what this machine lacks; `holm up --role api` serves without sandboxes";
    Error::Start { act: act.to_owned(), message: format!("{message}\n  {hint}") }
}

fn images(config: &Config) -> Result<images::Store, Error> {
    images::Store::open(&config.images_folder(), config::Images::settings())
        .map_err(|error| cannot("open the image store", &error))
}

fn host_settings(
    config: &Config,
    world: &World,
    doors: Vec<SocketAddrV4>,
) -> Result<host::Settings, Error> {
    let name = machine_name::read(&config.data.folder, world)?;
    let file = guest(config)?;
    let guest = std::fs::read(&file)
        .and_then(|bytes| program(&bytes))
        .map_err(Error::io(format!("read {} (node.guest)", file.display())))?;
    let node = node_settings(config, &name, guest, doors)?;
    Ok(host::Settings {
        name,
        node,
        registries_inside: config.images.inside.clone(),
        pulled_mb: disk_mb(config, config.images.disk_mb)?,
        registry: config.registry.settings(
            disk_mb(config, config.registry.disk_mb)?,
            config.node.workspace_share_percent,
        ),
        image_mb_max: config.images.image_mb_max,
        pids_max: config.node.pids_max,
        start_millicores: config.deployments.start_millicores,
        takes_max: config.snapshots.takes_max as usize,
    })
}

/// Copies the guest's program. What is none would only be noticed by the first sandbox.
fn program(bytes: &[u8]) -> std::io::Result<node::Program> {
    const ELF: &[u8] = b"\x7fELF";
    match bytes.starts_with(ELF) {
        true => node::Program::new(bytes),
        false => Err(std::io::Error::other("it is no program for Linux (ELF)")),
    }
}

/// The images that workspaces pull may take a quarter of the disk space that is free at the start,
/// those that they push another quarter, and what builds keep a third one, unless the settings say
/// otherwise.
const FREE_PART: u64 = 4;

fn disk_mb(config: &Config, set: u64) -> Result<u64, Error> {
    let free = || {
        node::free_disk_mb(&config.images_folder())
            .map_err(Error::io("look for free disk".to_owned()))
    };
    Ok(if set > 0 { set } else { free()? / FREE_PART })
}

fn node_settings(
    config: &Config,
    name: &str,
    first: node::Program,
    doors: Vec<SocketAddrV4>,
) -> Result<node::Settings, Error> {
    let wishes = &config.node;
    let subnet = wishes.subnet.parse().map_err(|error| cannot("use node.subnet", &error))?;
    let egress = match wishes.egress {
        config::Egress::Internet => node::Egress::internet_only(doors),
        config::Egress::Nothing => node::Egress::Nothing,
    };
    Ok(node::Settings {
        folder: config.data.folder.join(NODE_FOLDER),
        name: machine_name::of_node(name),
        subnet,
        egress,
        nameservers: nameservers(wishes),
        first_uid: wishes.first_uid,
        limits: wishes.limits(),
        first,
        backend: match wishes.backend {
            config::Backend::Direct => node::Backend::Direct,
            config::Backend::Runc => node::Backend::Runc { program: wishes.runc.clone() },
        },
    })
}

/// Returns the name servers of sandboxes, and says so if there are none.
fn nameservers(wishes: &config::Node) -> Vec<IpAddr> {
    let why = match name_servers::of_sandboxes(wishes) {
        Ok(found) if !found.is_empty() => return found,
        Ok(_) => "this machine has none that they can reach".to_owned(),
        Err(error) => format!("those of this machine cannot be read: {error}"),
    };
    if wishes.egress == config::Egress::Internet {
        tracing::warn!(
            why,
            "sandboxes without network rules resolve no names: set `node.nameservers`"
        );
    }
    Vec::new()
}

fn guest(config: &Config) -> Result<PathBuf, Error> {
    if let Some(file) = &config.node.guest {
        return Ok(file.clone());
    }
    let own = std::env::current_exe().map_err(Error::io("find this program's own file"))?;
    Ok(own.with_file_name(GUEST))
}

fn gateway_settings(config: &Config, urls: &Urls) -> Result<gateway::Settings, Error> {
    let file = config.models.authorities.as_deref();
    let authorities = authorities::read("models.authorities", file)?;
    let models = gateway::ModelSettings { authorities, ..config.models.settings() };
    Ok(gateway::Settings {
        domains: own_names(config, urls),
        content_url: urls.content.clone(),
        docs_url: format!("{}{}", urls.public, api::EDGE_ERRORS),
        ..config.gateway.settings(models)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_is_no_program_is_refused() {
        assert!(program(b"root:x:0:0").is_err() && program(b"").is_err());
        program(&std::fs::read("/proc/self/exe").unwrap()).unwrap();
    }
}
