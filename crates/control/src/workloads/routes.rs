//! The routes that follow from rows.

use super::followed::Reader;
use super::rows::Workspaces;
use super::{launch, rows};
use crate::addresses;
use crate::context::Context;
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::kinds::preview::is_usable;
use crate::kinds::preview_token;
use crate::machine::Machine;
use auth::Member;
use sha2::{Digest, Sha256};
use store::Tx;
use store::resources::{self, Query};
use store::{edge_names, references};
use types::KindName;
use types::edge::{
    DomainRoute, Fallback, Opens, PreviewRoute, RouteChange, Scale, Serving, TokenRoute,
    WorkloadRoute, label_of,
};
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::custom_domain::{DomainStatus, DomainType};
use types::kinds::sandbox::Placement;
use types::kinds::{CustomDomain, Preview, PreviewToken, Sandbox};
use types::parts::Status;

/// The port of a preview that names none. The gateway takes it to mean the sandbox API, with
/// everything behind it.
const PORT_OF_LAST_RESORT: u16 = 443;
/// Most previews of one workspace that are searched.
pub(super) const PREVIEWS_MAX: i64 = 100_000;

/// Publishes the route of a sandbox as it is now.
pub(super) async fn publish(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let _telling = control.workloads.telling.one(id).await;
    let (of, wanted) = (control.clone(), id.clone());
    let route = control.store.read(move |tx| of_row(&of, tx, &wanted)).await?;
    if let Some(route) = route {
        control.publish(route);
    }
    Ok(())
}

/// Returns the route that follows from a sandbox's row.
pub(super) fn of_row(
    control: &Control,
    tx: &mut Tx<'_>,
    id: &ResourceId,
) -> Result<Option<RouteChange>, Error> {
    let mut reader = Reader { control, workspaces: Workspaces::default(), inventory: None };
    match rows::find::<Sandbox>(tx, id)? {
        Some(held) => of_sandbox(&mut reader, tx, &held),
        None => Ok(Some(RouteChange::Gone(id.clone()))),
    }
}

pub(super) fn of_sandbox(
    reader: &mut Reader<'_>,
    tx: &mut Tx<'_>,
    held: &Held<Sandbox>,
) -> Result<Option<RouteChange>, Error> {
    let Some(workspace) = reader.workspaces.find(tx, &held.row.workspace)? else {
        return Ok(None);
    };
    let (id, name) = (&held.row.id, (held.row.name.as_str(), label(tx, &held.row.id)?));
    let serving = serving(reader.control, held);
    Ok(Some(sandbox((workspace.id, workspace.name), id, name, serving)))
}

/// Returns what follows `sbx-` in the name of the sandbox's host.
fn label(tx: &mut Tx<'_>, id: &ResourceId) -> Result<Option<String>, Error> {
    Ok(edge_names::name_of(tx, id)?.as_deref().and_then(label_of).map(str::to_owned))
}

fn serving(control: &Control, held: &Held<Sandbox>) -> Serving {
    let status = held.row.status.unwrap_or(Status::Deploying);
    let is_elsewhere = |placed: &&Placement| !control.is_here(&placed.machine);
    match (status, &held.state.placed) {
        // It starts again where it ran before, except when it comes back from its archive.
        (
            Status::Uploading
            | Status::Building
            | Status::Built
            | Status::Deploying
            | Status::Deployed,
            Some(placed),
        ) if is_elsewhere(&placed) => Serving::Off { why: control.runs_elsewhere(&placed.machine) },
        (Status::Deployed, Some(placed)) => {
            let instance = launch::placed_instance(&held.row.id, placed);
            // A lost instance is launched again under another name, so nobody may wait for the old
            // one.
            let lost = |machine: &dyn Machine| {
                machine.name() == placed.machine && !machine.runs(&instance)
            };
            match control.machine() {
                Some(machine) if lost(&**machine) => Serving::Starting,
                _ => Serving::by(placed.machine.clone(), instance.to_string()),
            }
        }
        (
            Status::Uploading
            | Status::Building
            | Status::Built
            | Status::Deploying
            | Status::Unarchiving
            | Status::Deployed,
            _,
        ) => Serving::Starting,
        (Status::Archiving | Status::Archived, _) => {
            Serving::Off { why: "is archived; unarchive it first".into() }
        }
        (Status::Deactivated | Status::Deactivating, _) => {
            Serving::Off { why: "is disabled".into() }
        }
        (Status::Terminated | Status::Deleting, _) => Serving::Off { why: "has ended".into() },
        (Status::Failed, _) => {
            Serving::Off { why: format!("failed: {}", held.state.lifecycle.last_message()) }
        }
    }
}

/// Returns the route of a sandbox that was just created.
pub(super) fn of_new(
    member: &Member,
    id: &ResourceId,
    (name, label): (&str, Option<String>),
    serving: Serving,
) -> RouteChange {
    let workspace = (member.workspace.clone(), member.workspace_name.clone());
    sandbox(workspace, id, (name, label), serving)
}

fn sandbox(
    (workspace, workspace_name): (WorkspaceId, String),
    id: &ResourceId,
    (name, label): (&str, Option<String>),
    serving: Serving,
) -> RouteChange {
    RouteChange::Workload(WorkloadRoute {
        kind: KindName::Sandbox,
        id: id.clone(),
        workspace,
        workspace_name,
        name: name.to_owned(),
        label,
        hosts: Vec::new(),
        triggers: Vec::new(),
        public: false,
        port: None,
        scale: Scale::ONE,
        timeout_s: None,
        sticky_s: 0,
        serving,
    })
}

pub(super) fn of_preview(
    control: &Control,
    tx: &mut Tx<'_>,
    held: &Held<Preview>,
) -> Result<Option<RouteChange>, Error> {
    let Some((context, _)) = rows::context(control, tx, &held.row.workspace)? else {
        return Ok(None);
    };
    let Some(sandbox) = context.find(tx, KindName::Sandbox, &[], &held.row.parent)? else {
        return Ok(None);
    };
    let spec = &held.wish.spec;
    if let Some(domain) = spec.custom_domain.as_deref()
        && !is_usable(&context, tx, domain)?
    {
        return Ok(Some(RouteChange::Gone(held.row.id.clone())));
    }
    let Some(at) = held.state.at.clone() else { return Ok(None) };
    if !addresses::has(tx, &held.row.id, &at)? {
        return Ok(Some(RouteChange::Gone(held.row.id.clone())));
    }
    let opens = if spec.public == Some(true) {
        Opens::ToAll
    } else {
        Opens::ToTokens(tokens(&context, tx, held)?)
    };
    Ok(Some(RouteChange::Preview(PreviewRoute {
        id: held.row.id.clone(),
        workspace: held.row.workspace.clone(),
        name: held.row.name.clone(),
        workload: sandbox.id,
        at,
        port: spec.port.and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT_OF_LAST_RESORT),
        opens,
        request_headers: spec.request_headers.clone().unwrap_or_default(),
        response_headers: spec.response_headers.clone().unwrap_or_default(),
        expires_at: held.wish.expires_at(held.row.created_at),
    })))
}

/// Returns the previews below a domain, whose routes change with it.
pub(super) fn previews_below(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    domain: &str,
) -> Result<Vec<ResourceId>, Error> {
    // Cheap to rule out: most domains change before they have previews.
    let users = references::users(tx, workspace, KindName::CustomDomain, domain)?;
    if !users.iter().any(|(kind, _)| *kind == KindName::Preview) {
        return Ok(Vec::new());
    }
    let query = Query { limit: PREVIEWS_MAX, ..Query::new(workspace, KindName::Preview, None) };
    let mut below = Vec::new();
    for row in resources::list(tx, &query)? {
        let held = Held::<Preview>::read(row)?;
        if held.wish.spec.custom_domain.as_deref() == Some(domain) {
            below.push(held.row.id);
        }
    }
    Ok(below)
}

/// Returns the applications at hosts below a domain.
pub(super) fn applications_below(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    domain: &str,
) -> Result<Vec<ResourceId>, Error> {
    let mut below = Vec::new();
    for (kind, name) in references::users(tx, workspace, KindName::CustomDomain, domain)? {
        if kind == KindName::Application
            && let Some(row) = resources::find(tx, workspace, kind, "", &name)?
        {
            below.push(row.id);
        }
    }
    Ok(below)
}

fn tokens(
    context: &Context,
    tx: &mut Tx<'_>,
    preview: &Held<Preview>,
) -> Result<Vec<TokenRoute>, Error> {
    let place = [preview.row.parent.clone(), preview.row.name.clone()];
    let route = |token: PreviewToken| {
        let digest = Sha256::digest(token.spec.token?.0.as_bytes()).into();
        Some(TokenRoute { digest, expires_at: token.spec.expires_at })
    };
    Ok(preview_token::tokens(context, tx, &place)?
        .into_iter()
        .filter_map(|(_, token)| route(token))
        .collect())
}

/// Returns the route of a domain. An unverified domain routes nothing, and neither does the
/// read-only copy of a shared one.
pub(super) fn of_domain(
    control: &Control,
    tx: &mut Tx<'_>,
    held: &Held<CustomDomain>,
) -> Result<RouteChange, Error> {
    if held.state.status != DomainStatus::Verified || held.state.shared_from_workspace.is_some() {
        return Ok(RouteChange::Gone(held.row.id.clone()));
    }
    let spec = &held.wish.spec;
    let fallback = match (spec.fallback_preview_id.as_deref(), spec.domain_type) {
        (None, _) => None,
        (Some(name), Some(DomainType::Applications)) => {
            let workspace = rows::context(control, tx, &held.row.workspace)?;
            workspace.map(|(_, workspace)| Fallback::Application {
                workspace_name: workspace.name,
                name: name.to_owned(),
            })
        }
        (Some(name), _) => preview_named(tx, held, name)?.map(Fallback::Preview),
    };
    Ok(RouteChange::Domain(DomainRoute {
        id: held.row.id.clone(),
        workspace: held.row.workspace.clone(),
        name: held.row.name.clone(),
        fallback,
    }))
}

fn preview_named(
    tx: &mut Tx<'_>,
    domain: &Held<CustomDomain>,
    name: &str,
) -> Result<Option<ResourceId>, Error> {
    let query =
        Query { limit: PREVIEWS_MAX, ..Query::new(&domain.row.workspace, KindName::Preview, None) };
    let found = resources::list(tx, &query)?.into_iter().find(|row| row.name == name);
    Ok(found.map(|row| row.id))
}
