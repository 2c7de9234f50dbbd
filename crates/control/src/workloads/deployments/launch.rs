//! How a revision becomes the launches of its replicas.

use super::deployable::{Deployable, Image, Program};
use crate::billing;
use crate::context::Context;
use crate::egress;
use crate::engine::{self, Held};
use crate::error::Error;
use crate::hub::{self, Server};
use crate::machine::{Launch, Work};
use crate::volumes;
use crate::workload_identity::Access;
use crate::workloads::workload::{HOST, variables};
use bytes::Bytes;
use std::time::Duration;
use store::Tx;
use store::identity::workspaces::Workspace;
use types::egress::EgressRules;
use types::instance::InstanceName;

/// Grace period of a program that is asked to end.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// Why a revision cannot run that names no image.
pub(super) const NO_IMAGE: &str = "it has no image: deploy a folder, or name one in its spec";

/// What all replicas of a revision are launched with.
pub(super) struct Revision {
    pub(super) port: u16,
    launch: Launch,
}

impl Revision {
    pub(super) fn replica(&self, instance: InstanceName) -> Launch {
        Launch { instance, ..self.launch.clone() }
    }

    pub(super) fn rules(&self) -> EgressRules {
        self.launch.egress.clone()
    }

    pub(super) fn memory_mb(&self) -> u32 {
        self.launch.memory_mb
    }
}

/// Returns what a replica of a revision needs, or why there cannot be one.
pub(super) fn revision<K: Deployable>(
    context: &Context,
    tx: &mut Tx<'_>,
    (workspace, held): (&Workspace, &Held<K>),
    revision: &str,
) -> Result<Result<Revision, String>, Error> {
    let id = &held.row.id;
    let Some(wish) = engine::wish_of::<K>(context, tx, id, revision)? else {
        return Ok(Err("it is not kept any more".to_owned()));
    };
    let Some(program) = wish.program(id)? else {
        return Ok(Err(NO_IMAGE.to_owned()));
    };
    let volumes = match (wish.holder(), context.control.machine()) {
        (Some(holder), Some(machine)) => volumes::mounts(context, tx, &holder, machine.name())?,
        _ => Ok(Vec::new()),
    };
    let volumes = match volumes {
        Ok(volumes) => volumes,
        Err(why) => return Ok(Err(why)),
    };
    let Some(identity) = &held.state.identity else {
        return Ok(Err("it has no identity yet".to_owned()));
    };
    let Server { image, arguments, environment: of_hub } = match server(context, tx, &program)? {
        Ok(server) => server,
        Err(why) => return Ok(Err(why)),
    };
    let access = Access::of(context, identity);
    let launch = Launch {
        // A placeholder: each replica is given its own name.
        instance: InstanceName::of_sandbox(id, 0),
        workspace: workspace.id.to_string(),
        again: false,
        hostname: wish.name().to_owned(),
        image,
        granted: None,
        registries: program.registries.map(|registries| registries.0.clone()),
        memory_mb: program.memory_mb,
        storage_mb: program.storage_mb,
        root: None,
        environment: environment(context, &wish, &program, (of_hub, access)),
        keeps_logs: true,
        grace: GRACE,
        work: Some(Work { arguments, data: Bytes::new(), timeout: None }),
        serves: Some(program.port),
        scratch: program.scratch,
        volumes,
        drives: Vec::new(),
        egress: egress::plain(program.network),
        snapshot: program.snapshot.clone(),
    };
    Ok(Ok(Revision { port: program.port, launch }))
}

/// Returns the image, arguments and variables of a program.
fn server(
    context: &Context,
    tx: &mut Tx<'_>,
    program: &Program<'_>,
) -> Result<Result<Server, String>, Error> {
    match program.image {
        Image::Named(image) => {
            let (image, arguments, environment) = (image.to_owned(), Vec::new(), Vec::new());
            Ok(Ok(Server { image, arguments, environment }))
        }
        // Whoever may use a connection must not learn its secrets, and a variable could send them
        // anywhere, for example by naming a proxy or a module to load first.
        Image::OfHub(_) if !program.envs.is_empty() => {
            let why = "a server of the hub takes no `spec.runtime.envs`: its connection says all";
            Ok(Err(why.to_owned()))
        }
        Image::OfHub(connections) => hub::server(context, tx, connections),
    }
}

/// Checks the budget: whether a workspace may have one more replica, or why not.
pub(super) fn allowed(context: &Context, tx: &mut Tx<'_>) -> Result<Result<(), String>, Error> {
    match billing::allow(context, tx) {
        Err(spent @ Error::Spent { .. }) => Ok(Err(spent.to_string())),
        other => other.map(Ok),
    }
}

/// Returns the environment. Later entries win: what the user set comes before most of ours.
fn environment<K: Deployable>(
    context: &Context,
    wish: &K,
    program: &Program<'_>,
    (of_hub, access): (Vec<(String, String)>, Access),
) -> Vec<(String, String)> {
    let region = context.region(wish.region());
    let mut ours = wish.common_environment(context, region, program.generation);
    ours.extend([
        ("HOST", HOST.to_owned()),
        ("PORT", program.port.to_string()),
        ("BL_SERVER_HOST", HOST.to_owned()),
        ("BL_SERVER_PORT", program.port.to_string()),
        access.credentials,
    ]);
    let named = |(name, value): (&str, String)| (name.to_owned(), value);
    let theirs = variables(program.envs).chain(of_hub);
    access
        .addresses
        .into_iter()
        .map(named)
        .chain(theirs)
        .chain(ours.into_iter().map(named))
        .collect()
}
