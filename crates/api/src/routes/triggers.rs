//! Triggers that are fired by requests: where they answer, and what they answer.
//!
//! Their addresses are below that of the workspace, so they are only tried after no operation has
//! taken a request.

use crate::app::App;
use crate::http::bodies::{Gathered, gather};
use crate::http::call::{Credentials, Who, note_sign_in};
use crate::http::error::Error;
use crate::http::headers;
use crate::http::json_body::json;
use crate::http::long_request::LongRequest;
use crate::http::malformed::Malformed;
use crate::http::operation::Needs;
use crate::http::reply::{Answer, Reply};
use admission::Room;
use auth::{Denied, Identity, Member, Ticket};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use control::Context;
use control::context::as_admin;
use control::error::Absent;
use control::executions::{calls, triggers};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use jobs::callbacks::{report, status_code};
use jobs::{Call, Caller};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use store::Tx;
use store::executions::{Execution, find_by_id};
use tokio::time::Instant;
use types::ids::ExecutionId;
use types::parts::TriggerType;
use types::wire::Free;
use types::{KindName, Verb};

/// Longest time that a caller waits for the end of an execution.
const WAIT_MAX: Duration = Duration::from_secs(900);
/// First parts of paths that cannot be workspaces.
const NO_WORKSPACES: [&str; 3] = ["v0", "v2", "api"];
/// Headers that are not kept when a workload is called without waiting: the recorder is not a
/// browser, and reads the answer uncompressed. The edge drops headers that concern itself and
/// single connections.
const NOT_KEPT: [HeaderName; 2] = [header::COOKIE, header::ACCEPT_ENCODING];
/// Query parameter by which a caller asks a deployment, at its own address, not to wait for the
/// result.
const LATER: &str = "async=true";
const OTHER_BASE: &str = "/run";

/// Answers a request that no operation has taken, because a trigger may match it.
pub(crate) async fn answer(State(app): State<App>, request: Request) -> Response {
    match Box::pin(fire(app, request)).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn fire(app: App, request: Request) -> Result<Response, Error> {
    let (parts, body) = request.into_parts();
    // A browser's preflight request for a call across origins is not a call.
    let asked = place(parts.uri.path()).filter(|_| parts.method != Method::OPTIONS);
    let Some((workspace, address)) = asked else {
        return Err(Error::NoRoute);
    };
    if let Some(called) = later(&app, workspace, address, parts.uri.query()).await? {
        headers::version(&parts.headers)?;
        return call_deployment(&app, called, &parts, body).await;
    }
    headers::version(&parts.headers)?;
    let found = triggers::look_up(&app, workspace, address).await?;
    let kind = found.as_ref().map_or(KindName::Job, |found| found.kind);
    let waits = found.as_ref().is_some_and(|found| found.trigger.kind == Some(TriggerType::Http));
    if parts.method != Method::POST && found.is_none() {
        return Err(Error::NoRoute);
    }
    let public = found.filter(|found| found.trigger.is_public());
    let Admitted { member, caller, holder, ticket } =
        admit(&app, (workspace, address), &parts, needs(kind), public).await?;
    let context = Context { control: app.control().clone(), member };
    let room = match caller {
        Caller::Member => app.bodies.of_caller(context.member.workspace.as_str()),
        Caller::Stranger => app.bodies.of_stranger(&parts.extensions),
    };
    let mut body = content(&app, body, room, ticket.as_ref()).await?;
    if kind != KindName::Job {
        return call(&context, address, &parts, (caller, &body), waits).await;
    }
    body.as_values()?;
    let arguments = arguments(&body)?;
    let _open = waits.then(|| app.streams.take(&context.member.workspace, &holder)).transpose()?;
    let (of, address) = (context.clone(), address.to_owned());
    let begin =
        move |tx: &mut Tx<'_>| triggers::begin(&of, tx, &address, (caller, arguments.clone()));
    let execution = app.store.write(begin).await?.ok_or(Error::NoRoute)?;
    if !waits {
        return Ok(Reply::of(&json!({"success": true})).into_response());
    }
    if let Some(request) = parts.extensions.get::<LongRequest>() {
        request.announce();
    }
    tokio::select! {
        answer = ended(&app, execution) => answer,
        denied = outlived(&app, ticket.as_ref()) => Err(denied.into()),
    }
}

/// The caller of a trigger, and in whose name it acts.
struct Admitted {
    member: Member,
    caller: Caller,
    /// Whom the wait for the end is counted for.
    holder: String,
    /// The caller may wait only as long as this is valid.
    ticket: Option<Ticket>,
}

/// Admits callers with valid credentials, and everybody if the trigger is `public`.
async fn admit(
    app: &App,
    (workspace, address): (&str, &str),
    parts: &Parts,
    needs: Needs,
    public: Option<triggers::Found>,
) -> Result<Admitted, Error> {
    match (admitted(app, workspace, needs, parts).await, public) {
        (Err(_), Some(found)) => {
            app.limits.take_trigger(found.workspace.id.as_str(), address)?;
            Ok(Admitted {
                member: as_admin(&Arc::new(Identity::system()), &found.workspace),
                caller: Caller::Stranger,
                holder: format!("{workspace}/{address}"),
                ticket: None,
            })
        }
        // A caller without credentials must not learn whether there is anything here: with POST,
        // credentials are always missing, and with other methods there is never anything.
        (Err(_), None) if parts.method != Method::POST => Err(Error::NoRoute),
        (member, _) => {
            let member = member?;
            let ticket = ticket(&member, needs, parts);
            let holder = member.who.holder().to_owned();
            Ok(Admitted { member, caller: Caller::Member, holder, ticket })
        }
    }
}

/// Identifies the member who calls by their credentials.
async fn admitted(
    app: &App,
    workspace: &str,
    needs: Needs,
    parts: &Parts,
) -> Result<Member, Error> {
    let token = headers::bearer(&parts.headers);
    let credentials = Credentials { token, workspace: Some(workspace) };
    let member = Member::admit(app, needs, &credentials).await?;
    note_sign_in(&parts.extensions, member.identity());
    Ok(member)
}

fn ticket(member: &Member, needs: Needs, parts: &Parts) -> Option<Ticket> {
    headers::bearer(&parts.headers).map(|token| Ticket::new(token, member, needs.scopes()))
}

/// Reads the body of a call. It may come long after the head, and the caller may have lost the
/// right since.
async fn content(
    app: &App,
    body: Body,
    room: Room<String>,
    ticket: Option<&Ticket>,
) -> Result<Gathered, Error> {
    let body = gather(body, app.settings.body_max, room).await?;
    if let Some(ticket) = ticket {
        app.auth.still_admits(ticket).await?;
    }
    Ok(body)
}

/// A deployment that is called at its own address without waiting for the result.
struct Later {
    called: Option<triggers::Called>,
    kind: KindName,
    workspace: String,
    address: String,
    /// Path and query as the deployment sees them.
    target: String,
}

async fn later(
    app: &App,
    workspace: &str,
    address: &str,
    query: Option<&str>,
) -> Result<Option<Later>, Error> {
    let (plural, behind) = address.split_once('/').unwrap_or((address, ""));
    let mut kinds = [KindName::Agent, KindName::Function].into_iter();
    let Some(kind) = kinds.find(|kind| kind.plural() == plural) else { return Ok(None) };
    let (name, path) = behind.split_once('/').unwrap_or((behind, ""));
    let pairs: Vec<&str> = query.unwrap_or_default().split('&').collect();
    if !pairs.contains(&LATER) {
        return Ok(None);
    }
    let rest: Vec<&str> = pairs.into_iter().filter(|pair| *pair != LATER).collect();
    let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    Ok(Some(Later {
        called: triggers::look_up_deployment(app, workspace, (kind, name)).await?,
        kind,
        workspace: workspace.to_owned(),
        address: address.to_owned(),
        target: format!("/{path}{query}"),
    }))
}

/// Calls a deployment. A caller without credentials must not learn whether it exists.
async fn call_deployment(
    app: &App,
    later: Later,
    parts: &Parts,
    body: Body,
) -> Result<Response, Error> {
    let needs = needs(later.kind);
    let member = admitted(app, &later.workspace, needs, parts).await;
    let (caller, ticket) = match (member, &later.called) {
        (Err(_), Some(called)) if called.public => {
            app.limits.take_trigger(called.workspace.id.as_str(), &later.address)?;
            (Caller::Stranger, None)
        }
        (member, _) => (Caller::Member, ticket(&member?, needs, parts)),
    };
    let called = later.called.ok_or(Error::NoRoute)?;
    let room = match caller {
        Caller::Member => app.bodies.of_caller(called.workspace.id.as_str()),
        Caller::Stranger => app.bodies.of_stranger(&parts.extensions),
    };
    let body = content(app, body, room, ticket.as_ref()).await?;
    let call = (caller, asked(parts, later.target, &body));
    calls::accept(app, (called.kind, &called.id), call).await?;
    Ok(Reply::of(&json!({"success": true})).into_response())
}

fn asked(parts: &Parts, target: String, body: &[u8]) -> Call {
    // A token is meant for this server, whether it was valid here or not.
    let token = headers::bearer(&parts.headers);
    let is_token = |value: &str| {
        token.is_some() && value.split_once(' ').map(|(_, shown)| shown.trim()) == token
    };
    let kept = |(name, value): (&HeaderName, &HeaderValue)| {
        let value = value.to_str().ok()?;
        let dropped =
            NOT_KEPT.contains(name) || (*name == header::AUTHORIZATION && is_token(value));
        (!dropped).then(|| (name.as_str().to_owned(), value.to_owned()))
    };
    Call {
        method: parts.method.to_string(),
        target,
        headers: parts.headers.iter().filter_map(kept).collect(),
        body: STANDARD.encode(body),
    }
}

/// Fires the trigger of a workload without waiting for the answer. Calls that wait go through the
/// data plane.
async fn call(
    context: &Context,
    address: &str,
    parts: &Parts,
    (caller, body): (Caller, &[u8]),
    waits: bool,
) -> Result<Response, Error> {
    if waits {
        return Err(Error::NoRoute);
    }
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let call = (caller, asked(parts, format!("/{query}"), body));
    let (of, address) = (context.clone(), address.to_owned());
    let accept = move |tx: &mut Tx<'_>| triggers::call(&of, tx, &address, call.clone());
    context.control.store.write(accept).await?.ok_or(Error::NoRoute)?;
    Ok(Reply::of(&json!({"success": true})).into_response())
}

/// Returns what a caller needs to fire the triggers of a kind: a job starts an execution, and all
/// others are called. A caller without an identity acts in the name of the workspace.
fn needs(kind: KindName) -> Needs {
    let verb = if kind == KindName::Job { Verb::Create } else { Verb::Get };
    Needs::all_of(kind.scope(verb).alone())
}

/// Waits until the caller's credentials are no longer valid.
async fn outlived(app: &App, ticket: Option<&Ticket>) -> Denied {
    match ticket {
        Some(ticket) => app.auth.outlived(ticket).await,
        None => std::future::pending().await,
    }
}

/// Splits a path of the inference base into workspace and address.
fn place(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix(OTHER_BASE).filter(|rest| rest.starts_with('/')).unwrap_or(path);
    let (workspace, address) = path.strip_prefix('/')?.split_once('/')?;
    (!workspace.is_empty() && !address.is_empty() && !NO_WORKSPACES.contains(&workspace))
        .then_some((workspace, address))
}

/// Parses the body as the arguments of the only task.
fn arguments(raw: &[u8]) -> Result<Free, Error> {
    if raw.is_empty() {
        return Ok(Free::new());
    }
    match json(raw)? {
        Value::Object(arguments) => Ok(arguments),
        _ => Err(Malformed::TriggerBody.into()),
    }
}

/// Returns the execution when it has ended, or its current state when the caller has waited too
/// long.
async fn ended(app: &App, id: ExecutionId) -> Result<Response, Error> {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        let wanted = id.clone();
        let execution = app.store.read(move |tx| find_by_id(tx, &wanted)).await?;
        let gone = || Error::from(Absent::ExecutionOfGoneWorkspace);
        let execution = execution.ok_or_else(gone)?;
        if execution.phase.has_ended() {
            return Ok(shown(&execution, status_code(&execution)));
        }
        if Instant::now() >= deadline {
            return Ok(shown(&execution, StatusCode::ACCEPTED.as_u16()));
        }
        tokio::time::sleep(app.settings.feed_poll).await;
    }
}

#[expect(clippy::expect_used, reason = "both callers take it from the statuses of HTTP")]
fn shown(execution: &Execution, status: u16) -> Response {
    let mut response = Reply::of(&report(execution)).into_response();
    *response.status_mut() = StatusCode::from_u16(status).expect("a status of HTTP");
    response
}
