//! Triggers of jobs that requests fire: where they answer, and what they answer.
//!
//! They have addresses of their own below the workspace's, so they are asked for when no operation
//! has taken a request.

use crate::app::App;
use crate::call::{Asked, Who, json, note_sign_in, raw_body};
use crate::engine::{Desk, Held, opened};
use crate::error::Error;
use crate::executions::{self, Asked as Wanted};
use crate::furnish::as_admin;
use crate::headers;
use crate::operation::Needs;
use crate::patience::Patience;
use crate::reply::{Answer, Reply};
use auth::{Denied, Identity, Member, Ticket};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode};
use jobs::callbacks::{report, status_code};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use store::deliveries::{self, NewDelivery};
use store::executions::{Execution, find_by_id};
use store::identity::workspaces::{self, Workspace};
use store::trigger_addresses::{self as addresses, Holder};
use store::{Tx, resources};
use tokio::time::Instant;
use types::ids::ExecutionId;
use types::kinds::Job;
use types::parts::{Trigger, TriggerType};
use types::wire::Free;
use types::{Kind, KindName, Scope};

/// How long a caller waits for the end of an execution at most.
const WAIT_MAX: Duration = Duration::from_secs(900);
/// Of the calls that wait for the end of an execution, there is the most that there may be.
const BUSY_S: u64 = 60;
/// What callers without a name of their own do is done in the name of the workspace.
const NEEDS: Needs = Needs::Scopes(&[Scope::JobsCreate]);
/// First parts of paths that are no workspaces.
const NO_WORKSPACES: [&str; 2] = ["v0", "api"];
const OTHER_BASE: &str = "/run";
/// Where triggers answer: which `trigger` a path names, only the store knows.
pub(crate) const ADDRESSES: [&str; 2] = ["/{workspace}/{trigger}", "/run/{workspace}/{trigger}"];

/// Answers what no operation has taken: perhaps a trigger does.
pub(crate) async fn answer(State(app): State<App>, request: Request) -> Response {
    match Box::pin(fire(app, request)).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn fire(app: App, request: Request) -> Result<Response, Error> {
    let (parts, body) = request.into_parts();
    let Some((workspace, address)) =
        place(parts.uri.path()).filter(|_| parts.method == Method::POST)
    else {
        return Err(Error::NoRoute);
    };
    headers::version(&parts.headers)?;
    let found = look_up(&app, workspace, address).await?;
    let waits = found.as_ref().is_some_and(|found| found.trigger.kind == Some(TriggerType::Http));
    let (holder, ticket);
    let desk = match found {
        Some(found) if found.trigger.is_public() => {
            app.limits.take_trigger(found.workspace.id.as_str(), address)?;
            (holder, ticket) = (format!("{workspace}/{address}"), None);
            Desk {
                app: app.clone(),
                member: as_admin(&Arc::new(Identity::system()), &found.workspace),
            }
        }
        // Who shows no credentials is not told whether there is something to show them for.
        _ => {
            let asked =
                Asked { token: headers::bearer(&parts.headers), workspace: Some(workspace) };
            let member = Member::admit(&app, NEEDS, &asked).await?;
            note_sign_in(&parts.extensions, member.identity());
            holder = member.who.holder().to_owned();
            ticket = asked.token.map(|token| Ticket::new(token, &member, NEEDS.scopes()));
            Desk { app: app.clone(), member }
        }
    };
    let arguments = arguments(&raw_body(body, app.settings.body_max).await?)?;
    let _place = waits.then(|| app.streams.take(&desk.member.workspace, &holder)).transpose()?;
    let (of, address) = (desk.clone(), address.to_owned());
    let execution = app.store.write(move |tx| begin(&of, tx, &address, arguments.clone())).await?;
    if !waits {
        return Ok(Reply::of(&json!({"success": true})).into_response());
    }
    if let Some(patience) = parts.extensions.get::<Patience>() {
        patience.ask();
    }
    tokio::select! {
        answer = ended(&app, execution) => answer,
        denied = outlived(&app, ticket.as_ref()) => Err(denied.into()),
    }
}

/// Whoever waits with credentials waits no longer than they are good.
async fn outlived(app: &App, ticket: Option<&Ticket>) -> Denied {
    match ticket {
        Some(ticket) => app.auth.outlived(ticket).await,
        None => std::future::pending().await,
    }
}

/// Workspace and address of a path of the inference base.
fn place(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix(OTHER_BASE).filter(|rest| rest.starts_with('/')).unwrap_or(path);
    let (workspace, address) = path.strip_prefix('/')?.split_once('/')?;
    (!workspace.is_empty() && !address.is_empty() && !NO_WORKSPACES.contains(&workspace))
        .then_some((workspace, address))
}

struct Found {
    workspace: Workspace,
    trigger: Trigger,
}

async fn look_up(app: &App, workspace: &str, address: &str) -> Result<Option<Found>, Error> {
    let (workspace, address) = (workspace.to_owned(), address.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let Some(workspace) = workspaces::find_by_name(tx, &workspace)? else { return Ok(None) };
        let Some(holder) = addresses::find(tx, &workspace.id, &address)? else { return Ok(None) };
        let Some(row) = resources::find(tx, &workspace.id, holder.kind, "", &holder.name)? else {
            return Ok(None);
        };
        let job = Held::<Job>::read(row)?;
        Ok::<_, Error>(
            trigger(&job.wish, &holder.trigger)
                .map(|trigger| Found { workspace, trigger: trigger.clone() }),
        )
    };
    app.store.read(work).await
}

fn trigger<'j>(job: &'j Job, id: &str) -> Option<&'j Trigger> {
    job.spec.triggers.iter().flatten().find(|trigger| trigger.id.as_deref() == Some(id))
}

/// The body is the arguments of the one task.
fn arguments(raw: &[u8]) -> Result<Free, Error> {
    if raw.is_empty() {
        return Ok(Free::new());
    }
    match json(raw)? {
        Value::Object(arguments) => Ok(arguments),
        _ => Err(Error::Malformed(
            "the body must be a JSON object: the arguments of the task".into(),
        )),
    }
}

/// Starts the execution, and notes whom to tell of its end.
fn begin(
    desk: &Desk,
    tx: &mut Tx<'_>,
    address: &str,
    arguments: Free,
) -> Result<ExecutionId, Error> {
    let workspace = &desk.member.workspace;
    let holder = addresses::find(tx, workspace, address)?.ok_or(Error::NoRoute)?;
    let job = Held::<Job>::lock(desk, tx, &[], &holder.name)?;
    let wish = opened(desk, &job)?;
    let trigger = trigger(&wish, &holder.trigger).ok_or(Error::NoRoute)?;
    if !trigger.is_on() {
        return Err(Error::Malformed(
            "the trigger is disabled; set its `enabled` to true first".into(),
        ));
    }
    let set = trigger.configuration.clone().unwrap_or_default();
    let name = format!(
        "{}-{}",
        holder.trigger.chars().take(40).collect::<String>(),
        desk.world().random_text(12)
    );
    let wanted = Wanted {
        name: Some(name),
        tasks: vec![arguments],
        timeout_s: set.timeout,
        ..Wanted::default()
    };
    let begun = executions::start(desk, tx, &job, &wanted)?;
    if let Some(url) = set.callback().filter(|_| trigger.kind == Some(TriggerType::HttpAsync)) {
        let new = NewDelivery {
            workspace: workspace.clone(),
            kind: Job::NAME.name().to_owned(),
            name: job.row.name.clone(),
            execution: Some(begun.name.clone()),
            url: url.to_owned(),
            secret: set.callback_secret.clone(),
            attempts_max: set.retry.map(|retries| retries.saturating_add(1)),
        };
        deliveries::enqueue_at_end(tx, &new, &begun.id)?
            .ok_or(Error::TooMany { retry_after_s: BUSY_S })?;
    }
    Ok(begun.id)
}

/// The execution when it has ended, or as it is when the caller has waited for too long.
async fn ended(app: &App, id: ExecutionId) -> Result<Response, Error> {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        let wanted = id.clone();
        let execution = app.store.read(move |tx| find_by_id(tx, &wanted)).await?;
        let gone = || Error::NotFound("the execution is gone: its workspace was deleted".into());
        let execution = execution.ok_or_else(gone)?;
        if execution.phase.has_ended() {
            return Ok(told(&execution, status_code(&execution)));
        }
        if Instant::now() >= deadline {
            return Ok(told(&execution, StatusCode::ACCEPTED.as_u16()));
        }
        tokio::time::sleep(app.settings.feed_poll).await;
    }
}

fn told(execution: &Execution, status: u16) -> Response {
    let mut response = Reply::of(&report(execution)).into_response();
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response
}

/// Takes the addresses of the triggers that a job has now, and gives back those that it had.
pub(crate) fn take_addresses(desk: &Desk, tx: &mut Tx<'_>, job: &Job) -> Result<(), Error> {
    let (workspace, name) = (&desk.member.workspace, job.name());
    addresses::give_back(tx, workspace, KindName::Job, name)?;
    for trigger in job.spec.triggers.iter().flatten() {
        let Some(address) = trigger.address(KindName::Job, name) else { continue };
        let id = trigger.id.clone().unwrap_or_default();
        let holder = Holder { kind: KindName::Job, name: name.to_owned(), trigger: id };
        if !addresses::take(tx, workspace, &address, &holder)? {
            return Err(Error::Conflict(format!(
                "a trigger of another object answers at `{address}` already; choose another `configuration.path`"
            )));
        }
    }
    Ok(())
}

pub(crate) fn give_back_addresses(
    desk: &Desk,
    tx: &mut Tx<'_>,
    job: &Held<Job>,
) -> Result<(), Error> {
    Ok(addresses::give_back(tx, &desk.member.workspace, KindName::Job, &job.row.name)?)
}
