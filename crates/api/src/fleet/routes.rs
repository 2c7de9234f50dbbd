//! Routes, as rows say them.

use super::{Machine, launch, rows};
use crate::app::App;
use crate::engine::{self, Desk, Held};
use crate::error::Error;
use crate::routes::previews::{unusable, wanted_label};
use auth::Member;
use sha2::{Digest, Sha256};
use store::Tx;
use store::identity::workspaces::{self};
use store::references;
use store::resources::{self, Query, Stored};
use types::edge::{DomainRoute, Opens, PreviewAddress, PreviewRoute, RouteChange, SandboxRoute, Serving, TokenRoute};
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::custom_domain::DomainStatus;
use types::kinds::{CustomDomain, Preview, PreviewToken, Sandbox};
use types::parts::{Lifecycle, Status};
use types::{Kind, KindName};

/// The port of a preview that means the sandbox API with everything behind it; see the gateway.
const PORT_OF_LAST_RESORT: u16 = 443;
/// A preview has few tokens: clients make one for each session.
const TOKENS_MAX: i64 = 10_000;
/// Previews of one workspace that are looked through.
const PREVIEWS_MAX: i64 = 100_000;

/// The kinds of rows from which routes are made.
pub(super) const KINDS: [KindName; 3] = [KindName::Sandbox, KindName::Preview, KindName::CustomDomain];

/// The route that a row asks for; `None` for rows that ask for none.
pub(super) fn of_row(app: &App, tx: &mut Tx<'_>, row: Stored) -> Result<Option<RouteChange>, Error> {
    match row.kind {
        KindName::Sandbox => of_sandbox(app, tx, &Held::read(row)?),
        KindName::Preview => of_preview(app, tx, &Held::read(row)?),
        KindName::CustomDomain => of_domain(tx, &Held::read(row)?).map(Some),
        _ => Ok(None),
    }
}

fn of_sandbox(app: &App, tx: &mut Tx<'_>, held: &Held<Sandbox>) -> Result<Option<RouteChange>, Error> {
    let Some(workspace) = workspaces::find(tx, &held.row.workspace)? else { return Ok(None) };
    Ok(Some(RouteChange::Sandbox(SandboxRoute {
        id: held.row.id.clone(),
        workspace: workspace.id,
        workspace_name: workspace.name,
        name: held.row.name.clone(),
        serving: serving(app, held),
    })))
}

fn serving(app: &App, held: &Held<Sandbox>) -> Serving {
    let status = held.row.status.unwrap_or(Status::Deploying);
    match (status, &held.state.placed) {
        (Status::Deployed, Some(placed)) => {
            let instance = launch::instance(&held.row.id, placed.launch);
            // What this machine has lost is launched again under another name: nobody may wait for the old one.
            let lost = |machine: &dyn Machine| machine.name() == placed.machine && !machine.runs(&instance);
            match app.fleet.machine() {
                Some(machine) if lost(&**machine) => Serving::Starting,
                _ => Serving::By { machine: placed.machine.clone(), instance },
            }
        }
        (Status::Uploading | Status::Building | Status::Built | Status::Deploying | Status::Deployed, _) => {
            Serving::Starting
        }
        (Status::Deactivated | Status::Deactivating, _) => Serving::Off { why: "is disabled".into() },
        (Status::Terminated | Status::Deleting, _) => Serving::Off { why: "has ended".into() },
        (Status::Failed, _) => Serving::Off { why: format!("failed: {}", last_message(&held.state.lifecycle)) },
    }
}

fn last_message(lifecycle: &Lifecycle) -> &str {
    lifecycle.events.last().and_then(|event| event.message.as_deref()).unwrap_or("see its events")
}

/// The route of a sandbox that was just made.
pub(super) fn of_new(
    member: &Member,
    id: &ResourceId,
    name: &str,
    machine: &dyn Machine,
    instance: &str,
) -> RouteChange {
    RouteChange::Sandbox(SandboxRoute {
        id: id.clone(),
        workspace: member.workspace.clone(),
        workspace_name: member.workspace_name.clone(),
        name: name.to_owned(),
        serving: Serving::By { machine: machine.name().to_owned(), instance: instance.to_owned() },
    })
}

fn of_preview(app: &App, tx: &mut Tx<'_>, held: &Held<Preview>) -> Result<Option<RouteChange>, Error> {
    let Some((desk, _)) = rows::desk(app, tx, &held.row.workspace)? else { return Ok(None) };
    let Some(sandbox) = desk.find(tx, KindName::Sandbox, &[], &held.row.parent)? else { return Ok(None) };
    let spec = &held.wish.spec;
    if let Some(domain) = spec.custom_domain.as_deref()
        && !is_usable(&desk, tx, domain)?
    {
        return Ok(Some(RouteChange::Gone(held.row.id.clone())));
    }
    let opens = if spec.public == Some(true) { Opens::ToAll } else { Opens::ToTokens(tokens(&desk, tx, held)?) };
    Ok(Some(RouteChange::Preview(PreviewRoute {
        id: held.row.id.clone(),
        workspace: held.row.workspace.clone(),
        name: held.row.name.clone(),
        sandbox: sandbox.id,
        at: address(&desk, held),
        port: spec.port.and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT_OF_LAST_RESORT),
        opens,
        request_headers: spec.request_headers.clone().unwrap_or_default(),
        response_headers: spec.response_headers.clone().unwrap_or_default(),
        expires_at: held.wish.expires_at(held.row.created_at),
    })))
}

/// What a preview was allowed once ends with the domain, and with the sharing of it.
fn is_usable(desk: &Desk, tx: &mut Tx<'_>, domain: &str) -> Result<bool, Error> {
    let held = Held::<CustomDomain>::find(desk, tx, &[], domain)?;
    Ok(held.is_some_and(|held| unusable(&held.wish, &held.state).is_none()))
}

/// The previews that name a domain: what happens to it happens to them.
pub(super) fn previews_below(tx: &mut Tx<'_>, workspace: &WorkspaceId, domain: &str) -> Result<Vec<ResourceId>, Error> {
    // Most domains change before there are previews: the references say so at once.
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

fn address(desk: &Desk, held: &Held<Preview>) -> PreviewAddress {
    let own = held.row.id.as_str().trim_start_matches("res_").to_owned();
    match (wanted_label(desk, &held.wish), held.wish.spec.custom_domain.as_deref()) {
        (Some(host), Some(_)) => PreviewAddress::Host(host),
        (None, Some(domain)) => PreviewAddress::Host(format!("{own}.{domain}")),
        (label, None) => PreviewAddress::Label(label.unwrap_or(own)),
    }
}

fn tokens(desk: &Desk, tx: &mut Tx<'_>, preview: &Held<Preview>) -> Result<Vec<TokenRoute>, Error> {
    let (workspace, path) = (&preview.row.workspace, preview.row.path());
    let query = Query { limit: TOKENS_MAX, ..Query::new(workspace, PreviewToken::NAME, Some(path.as_str())) };
    let mut routes = Vec::new();
    for row in resources::list(tx, &query)? {
        let token = engine::opened(desk, &Held::<PreviewToken>::read(row)?)?.spec;
        if let Some(text) = token.token {
            routes.push(TokenRoute { digest: Sha256::digest(text.0.as_bytes()).into(), expires_at: token.expires_at });
        }
    }
    Ok(routes)
}

/// A domain that was not seen to be the user's routes nothing. What is shared of a domain is no domain of its own.
fn of_domain(tx: &mut Tx<'_>, held: &Held<CustomDomain>) -> Result<RouteChange, Error> {
    if held.state.status != DomainStatus::Verified || held.state.shared_from_workspace.is_some() {
        return Ok(RouteChange::Gone(held.row.id.clone()));
    }
    let fallback = match held.wish.spec.fallback_preview_id.as_deref() {
        Some(name) => preview_named(tx, held, name)?,
        None => None,
    };
    Ok(RouteChange::Domain(DomainRoute { id: held.row.id.clone(), name: held.row.name.clone(), fallback }))
}

fn preview_named(tx: &mut Tx<'_>, domain: &Held<CustomDomain>, name: &str) -> Result<Option<ResourceId>, Error> {
    let query = Query { limit: PREVIEWS_MAX, ..Query::new(&domain.row.workspace, KindName::Preview, None) };
    let found = resources::list(tx, &query)?.into_iter().find(|row| row.name == name);
    Ok(found.map(|row| row.id))
}
