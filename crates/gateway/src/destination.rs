//! Where an admitted request goes: decided once, from what was sent, before anything of it is
//! changed.

use crate::address::{self, Address, BadAddress, Place};
use crate::body::Body;
use crate::credentials::{self, Shown};
use crate::exchange::GUEST_PORT;
use crate::gateway::{Inner, Peer};
use crate::guard::{Caller, Refused};
use crate::origin::{self, Origin};
use crate::preview::{self, Key};
use crate::problem::Problem;
use crate::routes::{Hosted, Preview};
use crate::{headers, query};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Response};
use std::sync::Arc;
use types::edge::{DomainRoute, SandboxRoute};

/// A preview of this port is the guest itself, as one of `GUEST_PORT` is.
const WHOLE_SANDBOX_PORT: u16 = 443;
const FROM_ELSEWHERE: &str = "a page of another origin asks: the cookie of the preview does not count for it, its token does";
const BY_PREVIEW_TOKEN: &str = "preview_token";

pub(crate) struct Way {
    pub(crate) sandbox: Arc<SandboxRoute>,
    pub(crate) port: u16,
    pub(crate) target: PathAndQuery,
    pub(crate) pass: Pass,
    pub(crate) preview: Option<Arc<Preview>>,
    /// The path below which it answers, where it shares an origin with others.
    pub(crate) root: Option<String>,
    /// The domain whose fallback this is.
    pub(crate) fallback: Option<Arc<DomainRoute>>,
}

/// How the request came in.
#[derive(Default)]
pub(crate) struct Pass {
    pub(crate) caller: Option<Caller>,
    pub(crate) auth_method: Option<&'static str>,
    /// `Authorization` was for us.
    pub(crate) strips_authorization: bool,
    /// So was `?token=`.
    strips_query: bool,
    pub(crate) cookie: Option<HeaderValue>,
}

pub(crate) enum Decided {
    Way(Way),
    Answer(Response<Body>),
}

pub(crate) async fn decide(gateway: &Inner, head: &Parts, peer: Peer) -> Result<Decided, Problem> {
    let Inner { settings, routes, .. } = gateway;
    let known = |host: &str| routes.serves_host(host);
    let address = Address::parse(&head.uri, &head.headers, &settings.domains, known)?
        .ok_or(Problem::NoRoute)?;
    let Address { place, rest } = address;
    let origin = origin::of(&place, peer.site);
    if origin == Origin::Shared && head.headers.contains_key(headers::SERVICE_WORKER) {
        return Err(Problem::BadRequest(
            "a service worker would act for others: those are for hosts of a preview's own",
        ));
    }
    match place {
        Place::Sandbox { workspace, name } => {
            let pass = admit(gateway, head, workspace).await?;
            let sandbox = routes.sandbox(workspace, name).ok_or(Problem::NoWorkload)?;
            into_sandbox(head, rest, origin, (sandbox, pass))
        }
        Place::Label(label) => {
            let (sandbox, pass) = by_label(gateway, head, &label).await?;
            into_sandbox(head, rest, origin, (sandbox, pass))
        }
        Place::Preview { label, .. } if origin == Origin::Elsewhere => {
            let answer = preview::to_content(head, &settings.content_url, &label, rest);
            answer.map(Decided::Answer).ok_or(Problem::NoRoute)
        }
        Place::Preview { label, root } => {
            let preview = routes.preview(&label).ok_or(Problem::NoRoute)?;
            // Over TLS there would have to be a certificate for that host.
            let may_go_on = origin == Origin::Shared && !peer.secure;
            if let Some(answer) =
                may_go_on.then(|| preview::to_own_host(head, &label, rest)).flatten()
            {
                return Ok(Decided::Answer(answer));
            }
            into_preview(
                gateway,
                head,
                rest,
                Opened { preview, root, origin, fallback: None, peer },
            )
            .await
        }
        Place::Host(host) => {
            let (preview, fallback) = match routes.hosted(&host).ok_or(Problem::NoRoute)? {
                Hosted::Preview(preview) => (preview, None),
                Hosted::Fallback { preview, domain } => (preview, Some(domain)),
            };
            into_preview(gateway, head, rest, Opened { preview, root: "/", origin, fallback, peer })
                .await
        }
    }
}

fn into_sandbox(
    head: &Parts,
    rest: &str,
    origin: Origin,
    (sandbox, pass): (Arc<SandboxRoute>, Pass),
) -> Result<Decided, Problem> {
    let (port, rest) = address::port_of(rest, GUEST_PORT)?;
    let (target, root) = (target(head, rest, &pass)?, root(head, rest, origin));
    Ok(Decided::Way(Way { sandbox, port, target, pass, preview: None, root, fallback: None }))
}

/// What stands in front of what the workload is asked for.
fn root(head: &Parts, rest: &str, origin: Origin) -> Option<String> {
    (origin == Origin::Shared)
        .then(|| head.uri.path().strip_suffix(rest).unwrap_or_default().to_owned())
}

/// A stranger must not learn from the answer whether there is such a sandbox: refused and missing
/// read the same.
async fn by_label(
    gateway: &Inner,
    head: &Parts,
    label: &str,
) -> Result<(Arc<SandboxRoute>, Pass), Problem> {
    let found = gateway.routes.sandbox_by_label(label);
    let likely = || label.rsplit_once('-').map_or(label, |(_, workspace)| workspace);
    let workspace = found.as_ref().map_or_else(likely, |route| &route.workspace_name);
    match admit(gateway, head, workspace).await {
        Ok(pass) => found.map(|route| (route, pass)).ok_or(Problem::NoWorkload),
        Err(Problem::Refused(Refused::Forbidden { .. })) => Err(Problem::NoWorkload),
        Err(problem) => Err(problem),
    }
}

async fn admit(gateway: &Inner, head: &Parts, workspace: &str) -> Result<Pass, Problem> {
    let Shown { token, in_authorization, in_query } =
        credentials::shown(head).ok_or(Problem::NoCredentials)?;
    let caller = gateway.guard.admit(&token, workspace).await?;
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
    fallback: Option<Arc<DomainRoute>>,
    peer: Peer,
}

async fn into_preview(
    gateway: &Inner,
    head: &Parts,
    rest: &str,
    opened: Opened<'_>,
) -> Result<Decided, Problem> {
    let Opened { preview, root: place, origin, fallback, peer } = opened;
    if preview.route.expires_at.is_some_and(|end| end <= gateway.world.now()) {
        return Err(Problem::NoRoute);
    }
    if let Some(answer) = preview::preflight(head, &preview) {
        return Ok(Decided::Answer(answer));
    }
    let sandbox = gateway.routes.sandbox_by_id(&preview.route.sandbox).ok_or(Problem::NoRoute)?;
    let mut pass = open(gateway, head, &preview, &sandbox, place, peer).await?;
    if preview::fetch(head).wants_page()
        && let Some(cookie) = pass.cookie.take()
    {
        return preview::without_token(head, cookie)
            .map(Decided::Answer)
            .ok_or(Problem::BadAddress(BadAddress::Path));
    }
    // A preview of one port takes the whole path: no spelling of it leads to another port.
    let (port, rest) = match preview.route.port {
        WHOLE_SANDBOX_PORT | GUEST_PORT => address::port_of(rest, GUEST_PORT)?,
        port => (port, rest),
    };
    let (target, root) = (target(head, rest, &pass)?, root(head, rest, origin));
    Ok(Decided::Way(Way { sandbox, port, target, pass, preview: Some(preview), root, fallback }))
}

async fn open(
    gateway: &Inner,
    head: &Parts,
    preview: &Preview,
    sandbox: &SandboxRoute,
    root: &str,
    peer: Peer,
) -> Result<Pass, Problem> {
    // A public preview is an app on the internet: whatever `Authorization` says is said to the app.
    let Some(tokens) = preview::tokens(&preview.route.opens) else { return Ok(Pass::default()) };
    let by_token = |cookie| Pass { auth_method: Some(BY_PREVIEW_TOKEN), cookie, ..Pass::default() };
    match preview::key(head, tokens, gateway.world.now()) {
        Key::Kept => Ok(by_token(None)),
        Key::InQuery { token } => Ok(by_token(preview::cookie(head, &token, root, peer.secure))),
        Key::None => admit(gateway, head, &sandbox.workspace_name).await,
        Key::FromElsewhere => match admit(gateway, head, &sandbox.workspace_name).await {
            Err(Problem::NoCredentials) => {
                Err(Problem::Refused(Refused::Forbidden { why: FROM_ELSEWHERE.into() }))
            }
            end => end,
        },
        Key::Wrong => match admit(gateway, head, &sandbox.workspace_name).await {
            Err(Problem::NoCredentials) => Err(Problem::Refused(Refused::Unknown)),
            end => end,
        },
    }
}

/// What the workload is asked for: the rest of the path as it was sent, and the query without what
/// was ours.
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
