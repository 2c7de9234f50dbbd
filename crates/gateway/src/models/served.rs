//! A model as it is served: its route, and everything that is derived from it once.

use super::breaker::{Breaker, Budget};
use super::hooks::Hooks;
use super::redact::Redaction;
use ::models::provider::{BadProvider, Provider};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::models::{ModelLimit, ModelRoute};

pub(crate) struct Served {
    pub(crate) route: ModelRoute,
    /// `None` means it only leads to other models.
    pub(crate) provider: Option<Result<Provider, BadProvider>>,
    /// The limits of the route.
    pub(crate) limits: Vec<Arc<ModelLimit>>,
    pub(crate) hooks: Hooks,
    pub(crate) redaction: Redaction,
    /// Changes with each change of the route.
    pub(crate) version: u64,
    pub(crate) state: Arc<State>,
}

/// What outlasts changes of a route.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) breaker: Breaker,
    pub(crate) budget: Budget,
    turns: AtomicU64,
    versions: AtomicU64,
}

impl State {
    pub(crate) fn next_turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }
}

impl Served {
    pub(crate) fn new(route: ModelRoute, state: Arc<State>) -> Self {
        let provider = route.provider.as_ref().map(Provider::new);
        let limits = route.limits.iter().cloned().map(Arc::new).collect();
        let (hooks, redaction) = (Hooks::new(&route), Redaction::new(&route));
        let version = state.versions.fetch_add(1, Ordering::Relaxed);
        Self { route, provider, limits, hooks, redaction, version, state }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use types::ids::{ResourceId, WorkspaceId};
    use types::kinds::model::{ModelRouting, ModelType};
    use types::models::ModelProvider;
    use types::parts::{Sensitive, TextMap};

    pub(crate) fn route(name: &str, endpoint: Option<&str>) -> ModelRoute {
        let provider = |endpoint: &str| ModelProvider {
            kind: ModelType::Openai,
            model: None,
            endpoint_name: None,
            organization: None,
            connection: None,
            config: TextMap::from_iter([("endpoint".to_owned(), endpoint.to_owned())]),
            secrets: Sensitive(TextMap::from_iter([("apiKey".to_owned(), "sk".to_owned())])),
            sandbox: false,
        };
        ModelRoute {
            id: ResourceId::known(format!("res_{name}")),
            workspace: WorkspaceId::known("ws_acme"),
            workspace_name: "acme".into(),
            name: name.into(),
            revision: "1".into(),
            off: None,
            provider: endpoint.map(provider),
            routing: ModelRouting::default(),
            limits: Vec::new(),
            cache: None,
            request_log: None,
            hooks: Vec::new(),
        }
    }
}
