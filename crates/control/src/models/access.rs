//! Access tokens of connections whose provider wants one: what such a connection holds is exchanged
//! for a token, and again before the token ends.
//!
//! Tokens are kept only in memory. Each server fetches its own, so a start fetches all of them
//! anew. A service may return another refresh token each time and then refuse earlier ones, so a
//! new refresh token is sealed into the row at once, with retries while the store is away. It is
//! lost only if the server is killed in between.

use super::access_tokens::{Grant, grant, rotated, secrets};
use crate::context::Context;
use crate::control::Control;
use crate::engine::{self, Held};
use crate::error::Error;
use crate::workloads::{rows, watch};
use ::models::provider::{AccessToken, BadToken, is_exchanged, read_token, token_request};
use std::time::Duration;
use store::Tx;
use types::Timestamp;
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::IntegrationConnection;
use types::kinds::integration_connection::IntegrationConnectionSpec;
use types::parts::TextMap;

/// Pause before a refresh token that the store did not take is sealed again.
const SEAL_AGAIN: Duration = Duration::from_secs(1);
/// How long a launch waits for the first token of a connection.
const FIRST_MAX: Duration = Duration::from_secs(30);

/// Returns when a connection needs its next token; `None` if it needs none.
pub(crate) fn due(
    context: &Context,
    held: &Held<IntegrationConnection>,
) -> Result<Option<Timestamp>, Error> {
    let (control, id) = (&context.control, &held.row.id);
    let spec = engine::opened(context, held)?.spec;
    if control.edge.is_none() || !secrets(&spec).is_some_and(is_exchanged) {
        control.models.access.forget(id);
        return Ok(None);
    }
    let kept = control.models.access.kept(id, &grant(&held.row, &spec));
    let (now, uptime_ms) = (control.world.now(), control.world.uptime_ms());
    Ok(Some(kept.map_or(now, |kept| now.plus_ms(kept.next_ms.saturating_sub(uptime_ms)))))
}

/// Fetches the next token of a connection, and publishes it to everything that uses it. Returns
/// `false` if too many are being fetched, in which case it is to be tried again soon.
pub(crate) async fn renew(control: &Control, id: &ResourceId) -> Result<bool, Error> {
    let access = &control.models.access;
    let Some(alone) = access.fetching.begin_alone(id) else {
        // The task that is fetching it looks at the row again afterwards.
        return Ok(true);
    };
    let renewed = renew_alone(control, id).await;
    drop(alone);
    match renewed? {
        Renewed::Crowded => Ok(false),
        Renewed::Gone => Ok(true),
        Renewed::Done { workspace, name } => {
            watch::tell_connection(control, &workspace, (id, &name)).await.map(|()| true)
        }
    }
}

/// Checks whether nothing is known yet of the token that a connection needs, so that a launch would
/// have to wait for it with [`first`].
pub(crate) async fn is_first(
    control: &Control,
    workspace: &WorkspaceId,
    name: &str,
) -> Result<bool, Error> {
    Ok(unknown(control, workspace, name).await?.is_some())
}

/// Waits until a connection that needs a token has one, or it is known why it has none.
pub(crate) async fn first(
    control: &Control,
    workspace: &WorkspaceId,
    name: &str,
) -> Result<(), Error> {
    let Some((id, grant)) = unknown(control, workspace, name).await? else { return Ok(()) };
    let access = &control.models.access;
    // Runs on even if the launch is given up: a new refresh token must not be lost.
    let (of, connection) = (control.clone(), id.clone());
    control.workloads.tasks.spawn(async move {
        if let Err(error) = renew(&of, &connection).await {
            tracing::error!(%error, id = %connection, "an access token could not be fetched");
        }
    });
    let known = async {
        let mut changed = access.changed.subscribe();
        while access.kept(&id, &grant).is_none() && changed.changed().await.is_ok() {}
    };
    let _ = tokio::time::timeout(FIRST_MAX, known).await;
    Ok(())
}

/// Returns a connection that needs a token, and of which nothing is known yet.
async fn unknown(
    control: &Control,
    workspace: &WorkspaceId,
    name: &str,
) -> Result<Option<(ResourceId, Grant)>, Error> {
    let (of, within, name) = (control.clone(), workspace.clone(), name.to_owned());
    let find = move |tx: &mut Tx<'_>| {
        let Some((context, _)) = rows::context(&of, tx, &within)? else { return Ok(None) };
        let Some(held) = Held::<IntegrationConnection>::find(&context, tx, &[], &name)? else {
            return Ok(None);
        };
        let spec = engine::opened(&context, &held)?.spec;
        let needs = secrets(&spec).is_some_and(is_exchanged);
        let grant = grant(&held.row, &spec);
        Ok::<_, Error>(needs.then_some((held.row.id, grant)))
    };
    let found = control.store.read(find).await?;
    Ok(found.filter(|(id, grant)| control.models.access.kept(id, grant).is_none()))
}

enum Renewed {
    Gone,
    Crowded,
    Done { workspace: WorkspaceId, name: String },
}

async fn renew_alone(control: &Control, id: &ResourceId) -> Result<Renewed, Error> {
    let access = &control.models.access;
    let Some((held, spec)) = read(control, id).await? else {
        access.forget(id);
        return Ok(Renewed::Gone);
    };
    let workspace = held.row.workspace.clone();
    let Ok(_turn) = access.asking.take(&workspace, 1) else { return Ok(Renewed::Crowded) };
    let Some(fetched) = fetch(control, &workspace, &spec).await else {
        access.forget(id);
        return Ok(Renewed::Gone);
    };
    let before = grant(&held.row, &spec);
    let next = match &fetched {
        Ok(AccessToken { refresh_token: Some(next), .. }) => rotated(&spec, next),
        Ok(_) | Err(_) => None,
    };
    let after = next.as_ref().map_or(before, |next| grant(&held.row, next));
    let failures = access.kept(id, &before).and_then(|kept| kept.failed).map_or(0, |it| it.1);
    let old = access.kept(id, &before).and_then(|kept| kept.token);
    let kept = access.judge(&control.world, fetched, ([before, after], old, failures));
    // Both grants count from here on, since the row has one or the other.
    access.keep(id.clone(), kept);
    if let Some(next) = next {
        keep_refresh_token(control, id, before, &next).await?;
    }
    Ok(Renewed::Done { workspace, name: held.row.name })
}

async fn read(
    control: &Control,
    id: &ResourceId,
) -> Result<Option<(Held<IntegrationConnection>, IntegrationConnectionSpec)>, Error> {
    let (of, id) = (control.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| {
        let found = rows::find_in::<IntegrationConnection>(&of, tx, &id)?;
        let Some((context, held)) = found else { return Ok(None) };
        let spec = engine::opened(&context, &held)?.spec;
        Ok(Some((held, spec)))
    };
    control.store.read(work).await
}

/// Exchanges what a connection holds for a token. The error has the reason, without anything that
/// the connection holds, and whether trying again may help.
async fn fetch(
    control: &Control,
    workspace: &WorkspaceId,
    spec: &IntegrationConnectionSpec,
) -> Option<Result<AccessToken, (String, bool)>> {
    let none = TextMap::new();
    let integration = spec.integration.as_deref().unwrap_or_default();
    let (config, secrets) = (spec.config.as_ref().unwrap_or(&none), secrets(spec).unwrap_or(&none));
    let request = match token_request(integration, config, secrets, control.world.now())? {
        Ok(request) => request,
        Err(bad) => return Some(Err((bad.to_string(), false))),
    };
    let edge = control.edge.as_ref()?;
    Some(match edge.ask_outside(workspace, &request).await {
        Err(fault) => Err((fault.to_string(), true)),
        Ok(answer) => read_token(&answer.body.0).map_err(|bad| match bad {
            BadToken::Refused(_) => (bad.to_string(), false),
            BadToken::Unreadable => (format!("{bad}; its status is {}", answer.status), true),
        }),
    })
}

/// Seals a new refresh token, which nobody else knows, and retries for as long as the store is
/// away.
async fn keep_refresh_token(
    control: &Control,
    id: &ResourceId,
    before: Grant,
    next: &IntegrationConnectionSpec,
) -> Result<(), Error> {
    let ending = control.workloads.ending();
    loop {
        match seal(control, id, before, next.clone()).await {
            Err(Error::Store(error)) if !ending.is_cancelled() => {
                tracing::warn!(%error, %id, "a refresh token is sealed later");
                tokio::time::sleep(SEAL_AGAIN).await;
            }
            sealed => return sealed,
        }
    }
}

/// Seals it, unless somebody gave the connection other secrets meanwhile.
async fn seal(
    control: &Control,
    id: &ResourceId,
    before: Grant,
    next: IntegrationConnectionSpec,
) -> Result<(), Error> {
    let (of, id) = (control.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| {
        let found = rows::lock_in::<IntegrationConnection>(&of, tx, &id)?;
        let Some((context, held)) = found else { return Ok(()) };
        let mut wish = engine::opened(&context, &held)?;
        if grant(&held.row, &wish.spec).whole == before.whole {
            wish.spec.secret.clone_from(&next.secret);
            // It means the same, so nothing is deployed anew.
            engine::write_over(&context, tx, held, (wish, ()), None)?;
        }
        Ok(())
    };
    control.store.write(work).await
}
