//! Access tokens of connections whose provider wants one: what such a connection holds is exchanged
//! for a token, and again before the token ends.
//!
//! Tokens are kept only in memory. Each server fetches its own, so a start fetches all of them
//! anew. A service may return another refresh token each time and then refuse earlier ones, so a
//! new refresh token is sealed into the row at once, with retries while the store is away. It is
//! lost only if the server is killed in between.

#[cfg(test)]
mod tests;

use crate::context::Context;
use crate::control::Control;
use crate::engine::{self, Held};
use crate::error::Error;
use crate::settings::Models;
use crate::workloads::{self, rows};
use ::models::provider::{
    ACCESS_TOKEN, AccessToken, BadToken, is_exchanged, read_token, token_request,
};
use admission::{Limits, Pool};
use auth::Identity;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use store::Tx;
use store::resources::Stored;
use tokio::sync::watch;
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::IntegrationConnection;
use types::kinds::integration_connection::IntegrationConnectionSpec;
use types::models::ModelProvider;
use types::parts::{Sensitive, TextMap};
use types::{Timestamp, World};

/// The names under which a connection may keep its refresh token, as [`token_request`] looks for
/// it.
const REFRESH_TOKEN: [&str; 3] = ["REFRESH_TOKEN", "refreshToken", "refresh_token"];
/// The name of the token in definitions of the hub.
pub(crate) const HUB_NAME: &str = "ACCESS_TOKEN";

/// Pause before a refresh token that the store did not take is sealed again.
const SEAL_AGAIN: Duration = Duration::from_secs(1);
/// How long a launch waits for the first token of a connection.
const FIRST_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Access {
    known: Mutex<Known>,
    /// Notified after every exchange.
    changed: watch::Sender<()>,
    asking: Pool<WorkspaceId>,
    retry: Duration,
    retry_max: Duration,
}

#[derive(Default)]
struct Known {
    kept: HashMap<ResourceId, Kept>,
    /// Connections whose token is being fetched at the moment.
    busy: HashSet<ResourceId>,
}

/// Digests of what a connection holds, by which its tokens are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grant {
    whole: [u8; 32],
    /// Digest without the refresh token.
    base: [u8; 32],
    /// Whether a server was the last to write its row, and not a user who may have meant another
    /// account.
    by_server: bool,
}

impl Grant {
    /// Whether a token that was given for `self` counts for what the connection holds now. It does
    /// if only the refresh token differs, because another server was given a new one: no further
    /// exchange is needed.
    fn serves(&self, now: &Self) -> bool {
        self.whole == now.whole || (now.by_server && self.base == now.base)
    }
}

/// The result of the last exchange.
#[derive(Clone)]
struct Kept {
    /// What the connection held then, and what it holds since, if it was given another refresh
    /// token.
    grants: [Grant; 2],
    token: Option<Token>,
    /// Why the last exchange gave no token, and how many have failed in a row.
    failed: Option<(String, u32)>,
    next_at: Timestamp,
}

#[derive(Clone)]
struct Token {
    value: Sensitive<String>,
    ends_at: Timestamp,
}

impl Access {
    pub(crate) fn new(settings: &Models) -> Self {
        let limits = Limits { total: settings.tokens_max, share: settings.tokens_workspace_max };
        Self {
            known: Mutex::default(),
            changed: watch::Sender::default(),
            asking: Pool::new("access tokens that are being fetched", limits),
            retry: settings.token_retry,
            retry_max: settings.token_retry_max,
        }
    }

    /// Returns the last result for a connection, unless the connection holds something else by now.
    fn kept(&self, id: &ResourceId, grant: &Grant) -> Option<Kept> {
        let counts = |kept: &&Kept| {
            let same = kept.grants.iter().any(|before| before.whole == grant.whole);
            // A failure does not count: the refresh token that the other server was given may work.
            same || (kept.failed.is_none() && kept.grants.iter().any(|it| it.serves(grant)))
        };
        self.known.lock().kept.get(id).filter(counts).cloned()
    }

    /// Returns the token of a connection that needs one, or why there is none.
    fn token(
        &self,
        id: &ResourceId,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<Sensitive<String>, String> {
        let kept = self.kept(id, grant);
        let good = |token: &Token| token.ends_at > now;
        match kept.map(|kept| (kept.token.filter(good), kept.failed)) {
            Some((Some(token), _)) => Ok(token.value),
            Some((None, Some((why, _)))) => Err(format!("which cannot get an access token: {why}")),
            Some((None, None)) | None => {
                Err("which has no access token yet; one is being fetched".to_owned())
            }
        }
    }

    pub(crate) fn forget(&self, id: &ResourceId) {
        self.known.lock().kept.remove(id);
    }
}

/// Returns the digests for a connection with this row and these opened secrets.
fn grant(row: &Stored, spec: &IntegrationConnectionSpec) -> Grant {
    let none = TextMap::new();
    grant_of(row, spec.config.as_ref().unwrap_or(&none), secrets(spec).unwrap_or(&none))
}

fn grant_of(row: &Stored, config: &TextMap, secrets: &TextMap) -> Grant {
    let lasting = secrets.iter().filter(|(name, _)| !REFRESH_TOKEN.contains(&name.as_str()));
    Grant {
        whole: digest(config.iter().chain(secrets)),
        base: digest(config.iter().chain(lasting)),
        by_server: row.updated_by == Identity::system().name,
    }
}

fn digest<'t>(fields: impl Iterator<Item = (&'t String, &'t String)>) -> [u8; 32] {
    let mut digest = Sha256::new();
    for (name, value) in fields {
        for text in [name, value] {
            digest.update(text.len().to_be_bytes());
            digest.update(text);
        }
    }
    digest.finalize().into()
}

fn secrets(spec: &IntegrationConnectionSpec) -> Option<&TextMap> {
    spec.secret.as_ref().map(|Sensitive(secrets)| secrets)
}

/// Adds the token to the secrets of a provider that needs one, or returns why there is none.
pub(super) fn complete(
    control: &Control,
    row: &Stored,
    mut provider: ModelProvider,
) -> Result<ModelProvider, String> {
    if is_exchanged(&provider.secrets.0) {
        let grant = grant_of(row, &provider.config, &provider.secrets.0);
        let Sensitive(token) = control.models.access.token(&row.id, &grant, control.world.now())?;
        provider.secrets.0.insert(ACCESS_TOKEN.to_owned(), token);
    }
    Ok(provider)
}

/// The same for a hub server, whose secrets are opened.
pub(crate) fn complete_hub(
    control: &Control,
    row: &Stored,
    spec: &mut IntegrationConnectionSpec,
) -> Result<(), String> {
    if !secrets(spec).is_some_and(is_exchanged) {
        return Ok(());
    }
    let grant = grant(row, spec);
    let Sensitive(token) = control.models.access.token(&row.id, &grant, control.world.now())?;
    spec.secret.get_or_insert_default().0.insert(HUB_NAME.to_owned(), token);
    Ok(())
}

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
    Ok(Some(kept.map_or_else(|| control.world.now(), |kept| kept.next_at)))
}

/// Fetches the next token of a connection, and publishes it to everything that uses it. Returns
/// `false` if too many are being fetched, in which case it is to be tried again soon.
pub(crate) async fn renew(control: &Control, id: &ResourceId) -> Result<bool, Error> {
    let access = &control.models.access;
    let Some(alone) = Alone::begin(access, id) else {
        // The task that is fetching it looks at the row again afterwards.
        return Ok(true);
    };
    let renewed = renew_alone(control, id).await;
    drop(alone);
    match renewed? {
        Renewed::Crowded => Ok(false),
        Renewed::Gone => Ok(true),
        Renewed::Done { workspace, name } => {
            workloads::tell_connection(control, &workspace, (id, &name)).await.map(|()| true)
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

/// While this is held, nobody else fetches the token of the connection.
struct Alone<'a> {
    access: &'a Access,
    id: &'a ResourceId,
}

impl<'a> Alone<'a> {
    fn begin(access: &'a Access, id: &'a ResourceId) -> Option<Self> {
        let alone = access.known.lock().busy.insert(id.clone());
        // Not `then_some`: it would create and drop a second value, which ends the turn of the
        // other task.
        alone.then(|| Self { access, id })
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.access.known.lock().busy.remove(self.id);
    }
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
    access.known.lock().kept.insert(id.clone(), kept);
    access.changed.send_replace(());
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
        let Some(held) = rows::find::<IntegrationConnection>(tx, &id)? else { return Ok(None) };
        let Some((context, _)) = rows::context(&of, tx, &held.row.workspace)? else {
            return Ok(None);
        };
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

impl Access {
    /// Decides what the result of an exchange means. A token counts until its end, and the next one
    /// is fetched when most of its life is over. After failures the pauses grow. Random jitter
    /// separates connections that began together.
    fn judge(
        &self,
        world: &World,
        fetched: Result<AccessToken, (String, bool)>,
        (grants, old, failures): ([Grant; 2], Option<Token>, u32),
    ) -> Kept {
        let now = world.now();
        let [jitter] = world.random_bytes();
        let parted = |ms: u64| ms - ms / 5 * u64::from(jitter) / 255;
        let after = |ms: u64| now.plus_ms(i64::try_from(ms).unwrap_or(i64::MAX / 4));
        match fetched {
            Ok(token) => {
                let life_ms = token.expires_in_s.clamp(1, 30 * 86_400) * 1000;
                // A service whose tokens last only a moment must not be asked all the time.
                let next_at = after(parted(life_ms / 10 * 9).max(pause_ms(self.retry)));
                let token = Token { value: token.value, ends_at: after(life_ms) };
                Kept { grants, token: Some(token), failed: None, next_at }
            }
            Err((why, helps)) => {
                let doubled = self.retry.saturating_mul(1 << failures.min(16));
                let pause = if helps { doubled.min(self.retry_max) } else { self.retry_max };
                let failed = Some((why, failures.saturating_add(1)));
                Kept { grants, token: old, failed, next_at: after(parted(pause_ms(pause))) }
            }
        }
    }
}

fn pause_ms(pause: Duration) -> u64 {
    u64::try_from(pause.as_millis()).unwrap_or(u64::MAX / 4)
}

/// Returns the wish with the new refresh token, if it differs from the old one.
fn rotated(
    spec: &IntegrationConnectionSpec,
    next: &Sensitive<String>,
) -> Option<IntegrationConnectionSpec> {
    let mut spec = spec.clone();
    let Sensitive(secrets) = spec.secret.as_mut()?;
    let name = REFRESH_TOKEN
        .iter()
        .find(|name| secrets.get(**name).is_some_and(|value| !value.trim().is_empty()))?;
    let before = secrets.insert((*name).to_owned(), next.0.clone());
    (before.as_ref() != Some(&next.0)).then_some(spec)
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
        let Some(held) = rows::lock::<IntegrationConnection>(tx, &id)? else { return Ok(()) };
        let Some((context, _)) = rows::context(&of, tx, &held.row.workspace)? else {
            return Ok(());
        };
        let mut wish = engine::opened(&context, &held)?;
        if grant(&held.row, &wish.spec).whole == before.whole {
            wish.spec.secret.clone_from(&next.secret);
            engine::rewrite(&context, tx, held, wish)?;
        }
        Ok(())
    };
    control.store.write(work).await
}
