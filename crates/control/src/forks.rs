//! Forks: a sandbox or an application that begins with the files of another sandbox, either as they
//! are now or from a snapshot.
//!
//! The fork has its own name, identity, addresses and tokens. It inherits what the sandbox runs
//! with, except for its volumes, which have a single writer.

use crate::context::Context;
use crate::control::Control;
use crate::engine::{self, Checked, Held};
use crate::error::Error;
use crate::idempotency::{JsonAnswer, RequestKey, earlier, once};
use crate::missing::Missing;
use crate::snapshots::{self, Order, Unneeded};
use crate::workloads::create::{self, NewSandbox};
use crate::workloads::rows;
use store::Tx;
use types::ids::ResourceId;
use types::kinds::application::{AppUrl, ApplicationSpec};
use types::kinds::network::Ruleset;
use types::kinds::snapshot::{Kept, Origin, State};
use types::kinds::{Application, Network, Sandbox, Snapshot};
use types::parts::{Env, MASK, Metadata, Port, RevisionConfiguration, VolumeType};
use types::wire::{ForkTarget, SandboxForkRequest, SandboxForkResponse};
use types::{KindName, Problems};

/// The port of a forked application if neither the caller nor the sandbox names one.
const PORT: i64 = 8080;

/// The source of a fork's files.
#[derive(Debug, Clone)]
pub enum Source {
    /// A sandbox as it is now, or one of its snapshots if the request names one.
    Sandbox(String),
    /// A snapshot in the workspace, even if its sandbox is gone.
    Snapshot(String),
}

/// Makes a sandbox or an application, or adds a revision to an application. With a key it runs only
/// once.
pub async fn fork(
    context: Context,
    source: Source,
    asked: SandboxForkRequest,
    key: Option<RequestKey>,
) -> Result<JsonAnswer, Error> {
    let store = context.control.store.clone();
    if let Some(answer) = earlier(&store, key.as_ref()).await? {
        return Ok(answer);
    }
    let refused = match forked(context, source, asked, key.clone()).await {
        Ok(answer) => return Ok(answer),
        Err(refused) => refused,
    };
    // A simultaneous request with the same key may have succeeded, and be the cause of the refusal.
    earlier(&store, key.as_ref()).await?.ok_or(refused)
}

async fn forked(
    context: Context,
    source: Source,
    asked: SandboxForkRequest,
    key: Option<RequestKey>,
) -> Result<JsonAnswer, Error> {
    let (target, name) = asked.target()?;
    let name = name.to_owned();
    check(&asked, target)?;
    let begin = begin(&context, source, &asked, (target, &name)).await?;
    match target {
        ForkTarget::Sandbox => {
            let wish = sandbox(&begin.origin, &asked, &name);
            let (reuse, begins) = (false, Some(begin.id));
            create::create(NewSandbox { context, wish, reuse, key, begins }).await
        }
        ForkTarget::Application => {
            let (of, taken) = (context.clone(), begin.taken.then(|| begin.id.clone()));
            let work = move |tx: &mut Tx<'_>| {
                if begin.taken {
                    list(&context, tx, &begin.id)?;
                }
                deploy(&context, tx, &begin, &asked, &name)?;
                Ok::<_, Error>(SandboxForkResponse {
                    name: Some(name.clone()),
                    snapshot_id: Some(Snapshot::id_of(&begin.id)),
                    kind: Some(target),
                })
            };
            let made = once(&of.control.store, key, work).await;
            if let Some(id) = taken.filter(|_| made.is_err()) {
                let_go(&of, id).await;
            }
            made
        }
    }
}

/// Lists the snapshot of an application from now on, because the application's revisions name it.
fn list(context: &Context, tx: &mut Tx<'_>, id: &ResourceId) -> Result<(), Error> {
    let held = Held::<Snapshot>::lock(context, tx, &[], &Snapshot::id_of(id))?;
    let state = State { kept: Kept::Asked, ..held.state.clone() };
    rows::put_state(tx, held, state).map(drop)
}

/// Deletes a snapshot that was taken for an application which is not made of it. If that fails, it
/// goes like all those that no fork begins with.
async fn let_go(context: &Context, id: ResourceId) {
    if let Err(error) = delete_unneeded(&context.control, id.clone()).await {
        tracing::warn!(%error, %id, "a snapshot that no application begins with is removed later");
    }
}

async fn delete_unneeded(control: &Control, id: ResourceId) -> Result<(), Error> {
    let Some(unneeded) = Unneeded::find(control, &id).await? else { return Ok(()) };
    let work = move |tx: &mut Tx<'_>| {
        let Some(held) = rows::lock::<Snapshot>(tx, &id)? else { return Ok(()) };
        if held.state.kept == Kept::Needed && unneeded.still_holds(tx, &held.row)? {
            let state = State { kept: Kept::Deleted, ..held.state.clone() };
            rows::put_state(tx, held, state)?;
        }
        Ok(())
    };
    control.store.write(work).await
}

/// Refuses options that only the other type of target can have.
fn check(asked: &SandboxForkRequest, target: ForkTarget) -> Result<(), Error> {
    let mut problems = Problems::default();
    let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    match target {
        ForkTarget::Sandbox => {
            let why = "is for applications: a sandbox has previews";
            problems.require(!given(&asked.custom_domain), "customDomain", why);
            problems.require(!given(&asked.prefix), "prefix", why);
        }
        ForkTarget::Application => {
            problems.require(asked.lifecycle.is_none(), "lifecycle", "is for sandboxes");
            let lost = given(&asked.prefix) && !given(&asked.custom_domain);
            problems.require(!lost, "prefix", "goes with `customDomain`");
        }
    }
    Ok(problems.into_result()?)
}

/// The snapshot that a fork begins with, and what its sandbox ran with.
#[derive(Clone)]
struct Begin {
    id: ResourceId,
    origin: Origin,
    /// Whether it was taken for this fork.
    taken: bool,
}

/// Finds the snapshot to begin with, or has one taken.
async fn begin(
    context: &Context,
    source: Source,
    asked: &SandboxForkRequest,
    (target, name): (ForkTarget, &str),
) -> Result<Begin, Error> {
    let store = &context.control.store;
    let (of, name) = (context.clone(), name.to_owned());
    let snapshot = asked.snapshot_id.clone().filter(|id| !id.is_empty());
    let (from, wanted) = (source.clone(), snapshot.clone());
    // If the target's name is taken, refuses before a snapshot is taken for it.
    let look = move |tx: &mut Tx<'_>| {
        let sandbox = match &from {
            Source::Sandbox(sandbox) => Some(Held::<Sandbox>::get(&of, tx, &[], sandbox)?.row.id),
            Source::Snapshot(_) => None,
        };
        let found = match (&from, &wanted) {
            (Source::Snapshot(id), _) | (_, Some(id)) => {
                Some(snapshots::find(&of, tx, sandbox.as_ref(), id)?.row.id)
            }
            (Source::Sandbox(_), None) => None,
        };
        if target == ForkTarget::Sandbox
            && of.find(tx, KindName::Sandbox, &[], &name)?.is_some_and(|row| !row.is_terminated())
        {
            return Err(Error::Exists { kind: KindName::Sandbox, name: name.clone() });
        }
        if of.control.snapshot_store().is_none() {
            return Err(Error::Missing(Missing::Fork));
        }
        Ok::<_, Error>((sandbox, found))
    };
    let (id, taken) = match (store.read(look).await?, source) {
        ((_, Some(found)), _) => (found, false),
        ((Some(sandbox), None), Source::Sandbox(name)) => {
            (live(context, (sandbox, name), target).await?, true)
        }
        ((None, None), _) | (_, Source::Snapshot(_)) => {
            return Err(Error::Snapshot("there is nothing to begin with".to_owned()));
        }
    };
    let (of, row) = (context.clone(), id.clone());
    let read = move |tx: &mut Tx<'_>| {
        let held = Held::<Snapshot>::get(&of, tx, &[], &Snapshot::id_of(&row))?;
        let origin = engine::opened(&of, &held)?.origin;
        origin.ok_or_else(|| engine::corrupt(&row, "it does not say what it was taken of"))
    };
    let origin = *store.read(read).await?;
    Ok(Begin { id, origin, taken })
}

/// Takes a snapshot of a sandbox as it is now. Nobody sees it until something is made of it.
async fn live(
    context: &Context,
    (id, sandbox): (ResourceId, String),
    target: ForkTarget,
) -> Result<ResourceId, Error> {
    let take = snapshots::take(context, Order { sandbox, name: None, kept: Kept::Needed });
    match target {
        ForkTarget::Application => take.await,
        ForkTarget::Sandbox => context.control.workloads.live.share(&id, take).await,
    }
}

/// Returns the wish of a forked sandbox.
fn sandbox(origin: &Origin, asked: &SandboxForkRequest, name: &str) -> Sandbox {
    let mut spec = origin.spec.clone();
    spec.enabled = Some(true);
    let ephemeral = |volumes: Vec<types::parts::VolumeAttachment>| {
        let own = volumes.into_iter().filter(|one| one.kind == Some(VolumeType::Ephemeral));
        own.collect::<Vec<_>>()
    };
    spec.volumes = spec.volumes.map(ephemeral).filter(|volumes| !volumes.is_empty());
    let runtime = spec.runtime.get_or_insert_default();
    runtime.memory = asked.memory.or(runtime.memory);
    runtime.envs = merged(runtime.envs.take(), asked.envs.as_deref());
    if let Some(port) = asked.port {
        let ports = runtime.ports.get_or_insert_default();
        if ports.iter().all(|declared| declared.target != port) {
            ports.push(Port { target: port, ..Port::default() });
        }
    }
    if let Some(lifecycle) = &asked.lifecycle {
        (runtime.ttl, runtime.expires) = (None, None);
        spec.lifecycle = Some(lifecycle.clone());
    }
    Sandbox::new(Metadata { name: name.to_owned(), ..Metadata::default() }, spec)
}

/// Merges environment variables; those `on_top` win, except where a mask stands for a secret that
/// is inherited.
fn merged(inherited: Option<Vec<Env>>, on_top: Option<&[Env]>) -> Option<Vec<Env>> {
    let Some(on_top) = on_top.filter(|envs| !envs.is_empty()) else { return inherited };
    let mut envs = inherited.unwrap_or_default();
    let is_kept = |other: &Env| {
        let is_stored = |env: &Env| env.name == other.name && env.secret == Some(true);
        other.value.as_deref() == Some(MASK) && envs.iter().any(is_stored)
    };
    let set: Vec<Env> = on_top.iter().filter(|env| !is_kept(env)).cloned().collect();
    envs.retain(|env| set.iter().all(|other| other.name != env.name));
    envs.extend(set);
    Some(envs)
}

/// Creates the application, or adds a revision to the existing one.
fn deploy(
    context: &Context,
    tx: &mut Tx<'_>,
    begin: &Begin,
    asked: &SandboxForkRequest,
    name: &str,
) -> Result<(), Error> {
    let wanted = application(begin, asked)?;
    let Some(held) = Held::<Application>::find(context, tx, &[], name)? else {
        let metadata = Metadata { name: name.to_owned(), ..Metadata::default() };
        let wish = Checked::fork(context, Application::new(metadata, wanted))?;
        let id = ResourceId::new(context.world());
        return engine::create_checked(context, tx, &[], wish, id, |_| {}).map(drop);
    };
    let mut wish = engine::opened(context, &held)?;
    take_over(&mut wish.spec, wanted);
    let canary = asked.traffic.filter(|percent| *percent < 100);
    if canary.is_none() {
        // The new revision takes all requests, even if there was a canary.
        let revision = wish.spec.revision.get_or_insert_default();
        let kept = revision.sticky_session_ttl;
        *revision = RevisionConfiguration { sticky_session_ttl: kept, ..Default::default() };
    }
    engine::add_revision(context, tx, held, wish, canary).map(drop)
}

/// Returns the spec of an application that begins with a snapshot. An application has no gateway.
fn application(begin: &Begin, asked: &SandboxForkRequest) -> Result<ApplicationSpec, Error> {
    let Origin { spec, .. } = &begin.origin;
    let mut problems = Problems::default();
    let is_dedicated = |network: &Network| network.has_ruleset(Ruleset::DedicatedIp);
    problems.require(
        !spec.network.as_ref().is_some_and(is_dedicated),
        "targetType",
        "must be `sandbox`: the ruleset `dedicated-ip` demands addresses of its own, and \
         applications leave with those of the machine",
    );
    problems.into_result()?;
    let runtime = spec.runtime.clone().unwrap_or_default();
    let first = runtime.ports.iter().flatten().map(|port| port.target).next();
    let domain = asked.custom_domain.clone().filter(|domain| !domain.is_empty());
    let subdomain = asked.prefix.clone().filter(|prefix| !prefix.is_empty());
    Ok(ApplicationSpec {
        image: runtime.image,
        memory: asked.memory.or(runtime.memory),
        envs: merged(runtime.envs, asked.envs.as_deref()),
        port: Some(asked.port.or(first).unwrap_or(PORT)),
        snapshot: Some(Snapshot::id_of(&begin.id)),
        // What the sandbox may not reach, the same files must not reach as an application.
        network: spec.network.clone().map(|network| Network { egress: None, ..network }),
        region: spec.region.clone(),
        urls: domain.map(|domain| vec![AppUrl { domain, subdomain }]),
        ..ApplicationSpec::default()
    })
}

/// Makes an existing application run what a fork brings. It keeps its other addresses.
fn take_over(spec: &mut ApplicationSpec, wanted: ApplicationSpec) {
    let ApplicationSpec { image, memory, envs, port, snapshot, network, urls, .. } = wanted;
    (spec.image, spec.memory, spec.envs) = (image, memory, envs);
    (spec.port, spec.snapshot, spec.network) = (port, snapshot, network);
    (spec.extensions, spec.proxy) = (None, None);
    for url in urls.into_iter().flatten() {
        let urls = spec.urls.get_or_insert_default();
        if !urls.contains(&url) {
            urls.push(url);
        }
    }
}
