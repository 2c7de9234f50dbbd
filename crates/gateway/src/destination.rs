//! Decides where an admitted request goes: once, from what was sent, before any of it is changed.

use crate::address::{self, Address, BadAddress, Endpoint};
use crate::body::Body;
use crate::context::Context;
use crate::credentials::{self, Shown};
use crate::guard::{Caller, Refused};
use crate::origin::{self, Origin};
use crate::peer::{Peer, Site};
use crate::preview::{self, Key};
use crate::problem::Problem;
use crate::routes::{Hosted, Preview, Routes};
use crate::{headers, query};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use std::sync::Arc;
use types::edge::{DomainRoute, Serving, WorkloadRoute};
use types::instance::GUEST_PORT;
use types::{KindName, hosts};

/// A preview of this port leads to the guest itself, like one of `GUEST_PORT`.
const WHOLE_WORKLOAD_PORT: u16 = 443;
const FROM_ELSEWHERE: &str = "a page of another origin asks: the cookie of the preview does not count for it, its token does";
const BY_PREVIEW_TOKEN: &str = "preview_token";

pub(crate) struct Destination {
    pub(crate) workload: Arc<WorkloadRoute>,
    pub(crate) port: u16,
    pub(crate) target: PathAndQuery,
    pub(crate) pass: Pass,
    pub(crate) preview: Option<Arc<Preview>>,
    /// The path below which the workload answers, if it shares its origin with others.
    pub(crate) root: Option<String>,
    pub(crate) fallback: Option<Fallback>,
}

impl Destination {
    /// Returns whether the server may answer in place of the sandbox; see `answered`. A request
    /// through a preview, whose caller is not known, is left to the sandbox, which refuses it.
    pub(crate) fn may_be_answered_here(&self) -> bool {
        let own = self.port == GUEST_PORT && self.workload.kind == KindName::Sandbox;
        own && self.pass.caller.is_some()
    }
}

/// Says that a custom domain leads here because nothing else has the host.
pub(crate) struct Fallback {
    pub(crate) domain: Arc<DomainRoute>,
    /// The name by which the domain's owner knows the preview or application.
    pub(crate) name: String,
}

/// How the request was let in.
#[derive(Default)]
pub(crate) struct Pass {
    pub(crate) caller: Option<Caller>,
    pub(crate) auth_method: Option<&'static str>,
    /// Whether `Authorization` held our credentials, and so must not be passed on.
    pub(crate) strips_authorization: bool,
    /// Whether `?token=` held them.
    strips_query: bool,
    pub(crate) cookie: Option<HeaderValue>,
}

impl Pass {
    /// Returns whether the caller showed no credentials, at something that is open to everybody.
    pub(crate) fn is_stranger(&self) -> bool {
        self.caller.is_none() && self.auth_method.is_none()
    }
}

pub(crate) enum Decision {
    Forward(Destination),
    Respond(Response<Body>),
}

impl Decision {
    fn with_fallback(self, fallback: Fallback) -> Self {
        match self {
            Self::Forward(to) => Self::Forward(Destination { fallback: Some(fallback), ..to }),
            respond @ Self::Respond(_) => respond,
        }
    }
}

/// Decides on a request. `address` must have been parsed from `head`.
pub(crate) async fn decide(
    context: &Context,
    head: &Parts,
    address: &Address,
    peer: Peer,
) -> Result<Decision, Problem> {
    let routes = &context.routes;
    let origin = origin::of(&address.endpoint, peer.site);
    if origin == Origin::Shared && head.headers.contains_key(headers::SERVICE_WORKER) {
        return Err(Problem::BadRequest(
            "a service worker would act for others: those are for hosts of a preview's own",
        ));
    }
    let is_sandbox = matches!(
        address.endpoint,
        Endpoint::Workload { kind: KindName::Sandbox, .. }
            | Endpoint::Label { kind: KindName::Sandbox, .. }
    );
    if let Some(answer) = is_sandbox.then(|| may_be_called(head)).flatten() {
        return Ok(Decision::Respond(answer));
    }
    let (prefix, rest) = address.split(&head.uri);
    match &address.endpoint {
        Endpoint::Workload { kind, workspace, name } => {
            let workload = routes.workload(*kind, workspace, name);
            let pass = match &workload {
                Some(workload) if is_public(workload) => Pass::default(),
                _ => admit(context, head, rest, workspace, *kind).await?,
            };
            let workload = workload.ok_or(Problem::NoWorkload)?;
            to_workload(routes, head, rest, origin, (workload, pass))
        }
        Endpoint::Label { kind, label, by_path } => {
            if *by_path && let Some(answer) = elsewhere(context, head, (*kind, label), peer, rest)?
            {
                return Ok(Decision::Respond(answer));
            }
            let found = routes.workload_by_label(*kind, label);
            let admitted = by_label(context, (head, rest), *kind, label, found).await?;
            to_workload(routes, head, rest, origin, admitted)
        }
        Endpoint::Trigger(path) => {
            let (workload, trigger) = routes.trigger(path).ok_or(Problem::NoRoute)?;
            let pass = match trigger.public || is_public(&workload) {
                true => Pass::default(),
                false => {
                    admit(context, head, NO_GUEST, &workload.workspace_name, workload.kind).await?
                }
            };
            to_workload(routes, head, rest, origin, (workload, pass))
        }
        Endpoint::Preview { label, by_path } => {
            let root = if *by_path { prefix } else { "/" };
            by_preview_label(context, head, (label, rest), (root, origin), peer).await
        }
        Endpoint::Host(host) => by_own_host(context, head, (host, rest), origin, peer).await,
        // No instance runs behind a model: see `models`.
        Endpoint::Model { .. } => Err(Problem::NoRoute),
    }
}

/// Answers a browser that asks whether a page of another origin may call a sandbox. Browsers ask
/// without credentials, so the answer is the same for every name, and it wakes nothing.
fn may_be_called(head: &Parts) -> Option<Response<Body>> {
    if head.method != Method::OPTIONS || credentials::shown(head, false).is_some() {
        return None;
    }
    let mut response = Response::new(Body::own(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, DELETE, HEAD, OPTIONS"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "Content-Type, Authorization"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

async fn by_preview_label(
    context: &Context,
    head: &Parts,
    (label, rest): (&str, &str),
    (root, origin): (&str, Origin),
    peer: Peer,
) -> Result<Decision, Problem> {
    if origin == Origin::Elsewhere {
        let url = hosts::preview_url(&context.settings.content_url, label);
        let answer = preview::to_content(head, &url, rest);
        return answer.map(Decision::Respond).ok_or(Problem::NoRoute);
    }
    let preview = context.routes.preview(label).ok_or(Problem::NoRoute)?;
    // With TLS that host would need a certificate.
    let may_redirect = origin == Origin::Shared && !peer.secure;
    let to_own_host = || preview::to_own_host(head, &format!("{label}.preview"), rest);
    if let Some(answer) = may_redirect.then(to_own_host).flatten() {
        return Ok(Decision::Respond(answer));
    }
    let opened = Opened { preview, root, origin, fallback: None, peer };
    to_preview(context, head, rest, opened).await
}

/// Decides on a request to a host below a custom domain.
async fn by_own_host(
    context: &Context,
    head: &Parts,
    (host, rest): (&str, &str),
    origin: Origin,
    peer: Peer,
) -> Result<Decision, Problem> {
    let routes = &context.routes;
    let (preview, domain) = match routes.hosted(host).ok_or(Problem::NoRoute)? {
        Hosted::Workload(workload) => {
            let kind = workload.kind;
            let admitted = by_label(context, (head, rest), kind, host, Some(workload)).await?;
            return to_workload(routes, head, rest, origin, admitted);
        }
        Hosted::WorkloadFallback { workload, domain } => {
            let (kind, name) = (workload.kind, workload.name.clone());
            let admitted = by_label(context, (head, rest), kind, host, Some(workload)).await?;
            let decision = to_workload(routes, head, rest, origin, admitted)?;
            return Ok(decision.with_fallback(Fallback { domain, name }));
        }
        Hosted::Preview(preview) => (preview, None),
        Hosted::Fallback { preview, domain } => (preview, Some(domain)),
    };
    let named = |domain| Fallback { domain, name: preview.route.name.clone() };
    let fallback = domain.map(named);
    let opened = Opened { preview, root: "/", origin, fallback, peer };
    to_preview(context, head, rest, opened).await
}

/// Returns whether a request may call the trigger at a path.
pub(crate) async fn may_trigger<B>(context: &Context, request: &Request<B>, path: &str) -> bool {
    let Some((workload, trigger)) = context.routes.trigger(path) else { return false };
    if trigger.public || is_public(&workload) {
        return true;
    }
    let Some(token) = credentials::token(request.headers()) else { return false };
    let admitted = context.guard.admit(token, &workload.workspace_name, workload.kind).await;
    admitted.is_ok()
}

fn to_workload(
    routes: &Routes,
    head: &Parts,
    rest: &str,
    origin: Origin,
    (workload, pass): (Arc<WorkloadRoute>, Pass),
) -> Result<Decision, Problem> {
    let (port, rest) = match workload.port {
        // The program gets the whole path.
        Some(port) => (port, rest),
        None => address::port_of(rest, GUEST_PORT)?,
    };
    let (target, root) = (target(head, rest, &pass)?, root(head, rest, origin));
    let (preview, fallback) = (None, None);
    let workload = standing_for(routes, workload)?;
    Ok(Decision::Forward(Destination { workload, port, target, pass, preview, root, fallback }))
}

/// Returns the sandbox that a workload stands for, or else the workload itself.
fn standing_for(
    routes: &Routes,
    workload: Arc<WorkloadRoute>,
) -> Result<Arc<WorkloadRoute>, Problem> {
    let Serving::Sandbox(name) = &workload.serving else { return Ok(workload) };
    let sandbox = routes.workload(KindName::Sandbox, &workload.workspace_name, name);
    sandbox.ok_or_else(|| Problem::Unavailable {
        kind: workload.kind,
        why: format!("stands for the sandbox `{name}`, which is not there"),
    })
}

/// Returns the part of the path before `rest`, which must be the end of the path.
fn root(head: &Parts, rest: &str, origin: Origin) -> Option<String> {
    let path = head.uri.path();
    (origin == Origin::Shared).then(|| path[..path.len() - rest.len()].to_owned())
}

/// Returns whether everybody may use it. If so, `Authorization` is meant for its program.
fn is_public(workload: &WorkloadRoute) -> bool {
    workload.public || workload.kind == KindName::Application
}

/// Redirects a request by the path of a label to the place where it is answered, if that is not
/// here.
fn elsewhere(
    context: &Context,
    head: &Parts,
    (kind, label): (KindName, &str),
    peer: Peer,
    rest: &str,
) -> Result<Option<Response<Body>>, Problem> {
    let front = address::host_front(kind, label).ok_or(Problem::NoRoute)?;
    match peer.site {
        Site::Management => {
            let url = hosts::findable_url(&context.settings.content_url, &front);
            preview::to_content(head, &url, rest).map(Some).ok_or(Problem::NoRoute)
        }
        // With TLS that host would need a certificate.
        Site::Content if peer.secure => Ok(None),
        Site::Content => Ok(preview::to_own_host(head, &front, rest)),
    }
}

/// Admits a request by label. A stranger must not learn from the answer whether the workload
/// exists, so being refused and being missing look the same.
async fn by_label(
    context: &Context,
    (head, rest): (&Parts, &str),
    kind: KindName,
    label: &str,
    found: Option<Arc<WorkloadRoute>>,
) -> Result<(Arc<WorkloadRoute>, Pass), Problem> {
    match found {
        Some(route) if is_public(&route) => return Ok((route, Pass::default())),
        // All applications are public.
        None if kind == KindName::Application => return Err(Problem::NoWorkload),
        _ => {}
    }
    let likely = || label.rsplit_once('-').map_or(label, |(_, workspace)| workspace);
    let workspace = found.as_ref().map_or_else(likely, |route| &route.workspace_name);
    match admit(context, head, rest, workspace, kind).await {
        Ok(pass) => found.map(|route| (route, pass)).ok_or(Problem::NoWorkload),
        Err(Problem::Refused(Refused::Forbidden { .. })) => Err(Problem::NoWorkload),
        Err(problem) => Err(problem),
    }
}

/// The rest of a path that leads past the guest program of a sandbox.
const NO_GUEST: &str = "";

/// Admits a request by its credentials. `rest` is the path as the guest program gets it.
async fn admit(
    context: &Context,
    head: &Parts,
    rest: &str,
    workspace: &str,
    kind: KindName,
) -> Result<Pass, Problem> {
    let is_terminal = credentials::is_terminal(head, kind, rest);
    let Shown { token, in_authorization, in_query } =
        credentials::shown(head, is_terminal).ok_or(Problem::NoCredentials)?;
    let caller = context.guard.admit(&token, workspace, kind).await?;
    Ok(Pass {
        auth_method: Some(caller.auth_method),
        caller: Some(caller),
        strips_authorization: in_authorization,
        strips_query: in_query,
        cookie: None,
    })
}

struct Opened<'r> {
    preview: Arc<Preview>,
    root: &'r str,
    origin: Origin,
    fallback: Option<Fallback>,
    peer: Peer,
}

async fn to_preview(
    context: &Context,
    head: &Parts,
    rest: &str,
    opened: Opened<'_>,
) -> Result<Decision, Problem> {
    let Opened { preview, root: opened_at, origin, fallback, peer } = opened;
    if preview.route.expires_at.is_some_and(|end| end <= context.world.now()) {
        return Err(Problem::NoRoute);
    }
    if let Some(answer) = preview::preflight(head, &preview, root(head, rest, origin)) {
        return Ok(Decision::Respond(answer));
    }
    let workload = context.routes.workload_by_id(&preview.route.workload);
    let workload = workload.ok_or(Problem::NoRoute)?;
    let leads_to_guest =
        workload.port.is_none() && matches!(preview.route.port, WHOLE_WORKLOAD_PORT | GUEST_PORT);
    let of_guest = if leads_to_guest { rest } else { NO_GUEST };
    // A session of a browser is a preview of the sandbox's own interface, which answers at the
    // address of the sandbox in the same way.
    let tokens = preview::tokens(&preview.route.opens);
    let asks = |tokens| preview::key(head, tokens, context.world.now()) == Key::None;
    if leads_to_guest
        && tokens.is_some_and(asks)
        && let Some(answer) = may_be_called(head)
    {
        return Ok(Decision::Respond(answer));
    }
    let mut pass = open(context, (head, of_guest), &preview, &workload, opened_at, peer).await?;
    if preview::fetch(head).wants_page()
        && let Some(cookie) = pass.cookie.take()
    {
        return preview::without_token(head, cookie)
            .map(Decision::Respond)
            .ok_or(Problem::BadAddress(BadAddress::Path));
    }
    // A preview of one port takes the whole path, so no spelling of the path leads to another port.
    let (port, rest) = match (workload.port, preview.route.port) {
        (Some(port), _) => (port, rest),
        (None, WHOLE_WORKLOAD_PORT | GUEST_PORT) => address::port_of(rest, GUEST_PORT)?,
        (None, port) => (port, rest),
    };
    let (target, root) = (target(head, rest, &pass)?, root(head, rest, origin));
    let preview = Some(preview);
    Ok(Decision::Forward(Destination { workload, port, target, pass, preview, root, fallback }))
}

async fn open(
    context: &Context,
    (head, rest): (&Parts, &str),
    preview: &Preview,
    workload: &WorkloadRoute,
    root: &str,
    peer: Peer,
) -> Result<Pass, Problem> {
    // A public preview is an app on the internet: `Authorization` is for the app.
    let Some(tokens) = preview::tokens(&preview.route.opens) else { return Ok(Pass::default()) };
    let by_token = |cookie| Pass { auth_method: Some(BY_PREVIEW_TOKEN), cookie, ..Pass::default() };
    let by_member = || admit(context, head, rest, &workload.workspace_name, workload.kind);
    match preview::key(head, tokens, context.world.now()) {
        Key::Kept => Ok(by_token(None)),
        Key::InQuery { token } => Ok(by_token(preview::cookie(head, &token, root, peer.secure))),
        Key::None => by_member().await,
        Key::FromElsewhere => match by_member().await {
            Err(Problem::NoCredentials) => {
                Err(Problem::Refused(Refused::Forbidden { why: FROM_ELSEWHERE.into() }))
            }
            end => end,
        },
        Key::Wrong => match by_member().await {
            Err(Problem::NoCredentials) => Err(Problem::Refused(Refused::Unknown)),
            end => end,
        },
    }
}

/// Returns what is requested of the workload: the rest of the path as it was sent, and the query
/// without our own parameters.
fn target(head: &Parts, rest: &str, pass: &Pass) -> Result<PathAndQuery, Problem> {
    let ours = |name: &str| {
        name == preview::TOKEN_PARAMETER
            || (pass.strips_query && name == credentials::TOKEN_PARAMETER)
    };
    let query = head.uri.query().map(|query| query::without(query, ours));
    let whole = head.uri.path_and_query().filter(|whole| whole.path() == rest);
    if let (Some(whole), true) = (whole, query.as_deref() == head.uri.query()) {
        return Ok(whole.clone());
    }
    let slash = if rest.starts_with('/') { "" } else { "/" };
    let text = match query.as_deref() {
        None | Some("") => format!("{slash}{rest}"),
        Some(query) => format!("{slash}{rest}?{query}"),
    };
    PathAndQuery::from_maybe_shared(bytes::Bytes::from(text)).map_err(|_| BadAddress::Path.into())
}
