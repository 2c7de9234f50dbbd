//! The access tokens of connections, as this run of the program knows them, and what a connection
//! holds that they were given for.

#[cfg(test)]
mod tests;

use crate::settings::Models;
use crate::workloads::locks::InProgress;
use ::models::provider::{ACCESS_TOKEN, AccessToken, is_exchanged};
use admission::{Limits, Pool};
use auth::Identity;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::time::Duration;
use store::resources::Stored;
use tokio::sync::watch;
use types::World;
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::integration_connection::IntegrationConnectionSpec;
use types::models::ModelProvider;
use types::parts::{Sensitive, TextMap};

/// The names under which a connection may keep its refresh token, as
/// [`token_request`](::models::provider::token_request) looks for it.
const REFRESH_TOKEN: [&str; 3] = ["REFRESH_TOKEN", "refreshToken", "refresh_token"];
/// The name of the token in definitions of the hub.
pub(crate) const HUB_NAME: &str = "ACCESS_TOKEN";

/// The tokens of all connections.
pub(crate) struct AccessTokens {
    kept: Mutex<HashMap<ResourceId, Kept>>,
    /// Connections whose token is being fetched.
    pub(super) fetching: InProgress,
    /// Notified after every exchange.
    pub(super) changed: watch::Sender<()>,
    pub(super) asking: Pool<WorkspaceId>,
    retry: Duration,
    retry_max: Duration,
}

/// Digests of what a connection holds, by which its tokens are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) whole: [u8; 32],
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
pub(super) struct Kept {
    /// What the connection held then, and what it holds since, if it was given another refresh
    /// token.
    grants: [Grant; 2],
    pub(super) token: Option<Token>,
    /// Why the last exchange gave no token, and how many have failed in a row.
    pub(super) failed: Option<(String, u32)>,
    /// When the next exchange is due, by [`World::uptime_ms`]: a token ends after a time, whatever
    /// the calendar says meanwhile.
    pub(super) next_ms: i64,
}

#[derive(Clone)]
pub(super) struct Token {
    value: Sensitive<String>,
    /// By the same clock.
    ends_ms: i64,
}

impl AccessTokens {
    pub(crate) fn new(settings: &Models) -> Self {
        let limits = Limits { total: settings.tokens_max, share: settings.tokens_workspace_max };
        Self {
            kept: Mutex::default(),
            fetching: InProgress::default(),
            changed: watch::Sender::default(),
            asking: Pool::new("access tokens that are being fetched", limits),
            retry: settings.token_retry,
            retry_max: settings.token_retry_max,
        }
    }

    /// Returns the last result for a connection, unless the connection holds something else by now.
    pub(super) fn kept(&self, id: &ResourceId, grant: &Grant) -> Option<Kept> {
        let counts = |kept: &&Kept| {
            let same = kept.grants.iter().any(|before| before.whole == grant.whole);
            // A failure does not count: the refresh token that the other server was given may work.
            same || (kept.failed.is_none() && kept.grants.iter().any(|it| it.serves(grant)))
        };
        self.kept.lock().get(id).filter(counts).cloned()
    }

    /// Returns the token of a connection that needs one, or why there is none.
    fn token(
        &self,
        id: &ResourceId,
        grant: &Grant,
        now_ms: i64,
    ) -> Result<Sensitive<String>, String> {
        let kept = self.kept(id, grant);
        let good = |token: &Token| token.ends_ms > now_ms;
        match kept.map(|kept| (kept.token.filter(good), kept.failed)) {
            Some((Some(token), _)) => Ok(token.value),
            Some((None, Some((why, _)))) => Err(format!("which cannot get an access token: {why}")),
            Some((None, None)) | None => {
                Err("which has no access token yet; one is being fetched".to_owned())
            }
        }
    }

    /// Adds the token to the secrets of a provider that needs one, or returns why there is none.
    pub(super) fn complete(
        &self,
        row: &Stored,
        mut provider: ModelProvider,
        world: &World,
    ) -> Result<ModelProvider, String> {
        if is_exchanged(&provider.secrets.0) {
            let grant = grant_of(row, &provider.config, &provider.secrets.0);
            let Sensitive(token) = self.token(&row.id, &grant, world.uptime_ms())?;
            provider.secrets.0.insert(ACCESS_TOKEN.to_owned(), token);
        }
        Ok(provider)
    }

    /// The same for a hub server, whose secrets are opened.
    pub(crate) fn complete_hub(
        &self,
        row: &Stored,
        spec: &mut IntegrationConnectionSpec,
        world: &World,
    ) -> Result<(), String> {
        if !secrets(spec).is_some_and(is_exchanged) {
            return Ok(());
        }
        let grant = grant(row, spec);
        let Sensitive(token) = self.token(&row.id, &grant, world.uptime_ms())?;
        spec.secret.get_or_insert_default().0.insert(HUB_NAME.to_owned(), token);
        Ok(())
    }

    /// Keeps the result of an exchange, and wakes whoever waits for it.
    pub(super) fn keep(&self, id: ResourceId, kept: Kept) {
        self.kept.lock().insert(id, kept);
        self.changed.send_replace(());
    }

    /// The ids of all connections of which something is kept.
    pub(crate) fn ids(&self) -> Vec<ResourceId> {
        self.kept.lock().keys().cloned().collect()
    }

    pub(crate) fn forget(&self, id: &ResourceId) {
        self.kept.lock().remove(id);
    }

    /// Decides what the result of an exchange means. A token counts until its end, and the next one
    /// is fetched when most of its life is over. After failures the pauses grow. Random jitter
    /// separates connections that began together.
    pub(super) fn judge(
        &self,
        world: &World,
        fetched: Result<AccessToken, (String, bool)>,
        (grants, old, failures): ([Grant; 2], Option<Token>, u32),
    ) -> Kept {
        let now_ms = world.uptime_ms();
        let [jitter] = world.random_bytes();
        let parted = |ms: u64| ms - ms / 5 * u64::from(jitter) / 255;
        let after = |ms: u64| now_ms.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX / 4));
        match fetched {
            Ok(token) => {
                let life_ms = token.expires_in_s.clamp(1, 30 * 86_400) * 1000;
                // A service whose tokens last only a moment must not be asked all the time.
                let next_ms = after(parted(life_ms / 10 * 9).max(pause_ms(self.retry)));
                let token = Token { value: token.value, ends_ms: after(life_ms) };
                Kept { grants, token: Some(token), failed: None, next_ms }
            }
            Err((why, helps)) => {
                let doubled = self.retry.saturating_mul(1 << failures.min(16));
                let pause = if helps { doubled.min(self.retry_max) } else { self.retry_max };
                let failed = Some((why, failures.saturating_add(1)));
                Kept { grants, token: old, failed, next_ms: after(parted(pause_ms(pause))) }
            }
        }
    }
}

fn pause_ms(pause: Duration) -> u64 {
    u64::try_from(pause.as_millis()).unwrap_or(u64::MAX / 4)
}

/// Returns the digests for a connection with this row and these opened secrets.
pub(super) fn grant(row: &Stored, spec: &IntegrationConnectionSpec) -> Grant {
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

pub(super) fn secrets(spec: &IntegrationConnectionSpec) -> Option<&TextMap> {
    spec.secret.as_ref().map(|Sensitive(secrets)| secrets)
}

/// Returns the wish with the new refresh token, if it differs from the old one.
pub(super) fn rotated(
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
