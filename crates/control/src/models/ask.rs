//! The models that a connection reaches, as its provider lists them. Lists are kept for a while.

use super::{access, route};
use crate::context::Context;
use crate::engine::Held;
use crate::error::{Absent, Error, ProviderFault};
use crate::settings::Models;
use ::models::listing::{ListedModel, read_models};
use ::models::provider::list_models;
use admission::{Limits, Pool};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use store::Tx;
use types::Timestamp;
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::IntegrationConnection;
use types::models::ModelProvider;

/// Longer lists are returned, but not kept.
const KEPT_MODELS_MAX: usize = 5000;

/// A connection at one version of its row.
type Key = (ResourceId, i64);

pub(super) struct Asked {
    lists: Mutex<HashMap<Key, List>>,
    asking: Pool<WorkspaceId>,
    settings: Models,
}

struct List {
    until: Timestamp,
    models: Arc<Vec<ListedModel>>,
}

impl Asked {
    pub(super) fn new(settings: &Models) -> Self {
        let limits = Limits { total: settings.asks_max, share: settings.asks_workspace_max };
        Self {
            lists: Mutex::default(),
            asking: Pool::new("lists of models that are being asked for", limits),
            settings: *settings,
        }
    }

    fn kept(&self, key: &Key, now: Timestamp) -> Option<Arc<Vec<ListedModel>>> {
        let lists = self.lists.lock();
        lists.get(key).filter(|list| list.until > now).map(|list| Arc::clone(&list.models))
    }

    fn keep(&self, key: Key, models: &Arc<Vec<ListedModel>>, now: Timestamp) {
        if models.len() > KEPT_MODELS_MAX {
            return;
        }
        let mut lists = self.lists.lock();
        // Lists of earlier versions of the same connection are of no use.
        lists.retain(|(id, _), list| list.until > now && *id != key.0);
        if lists.len() >= self.settings.lists_max {
            let oldest =
                lists.iter().min_by_key(|(_, list)| list.until).map(|(key, _)| key.clone());
            oldest.and_then(|key| lists.remove(&key));
        }
        let life_ms = i64::try_from(self.settings.listed_for.as_millis()).unwrap_or(i64::MAX / 4);
        lists.insert(key, List { until: now.plus_ms(life_ms), models: Arc::clone(models) });
    }
}

/// Returns the models that a connection reaches.
pub async fn list(context: &Context, connection: &str) -> Result<Arc<Vec<ListedModel>>, Error> {
    let control = &context.control;
    let workspace = &context.member.workspace;
    access::first(control, workspace, connection).await?;
    let (of, name) = (context.clone(), connection.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let held = Held::<IntegrationConnection>::get(&of, tx, &[], &name)?;
        let provider = route::bare_provider(&of, &held)?;
        Ok::<_, Error>(((held.row.id, held.row.version), provider))
    };
    let (key, provider) = control.store.read(work).await?;
    let asked = &control.models.asked;
    if let Some(kept) = asked.kept(&key, control.world.now()) {
        return Ok(kept);
    }
    let unfit = |why| ProviderFault::Connection { name: connection.to_owned(), why };
    let provider = provider.map_err(unfit)?;
    let _turn = asked.asking.take(workspace, 1)?;
    let models = Arc::new(ask(context, connection, &provider).await?);
    asked.keep(key, &models, control.world.now());
    Ok(models)
}

/// Returns one of the models, by the provider's name for it.
pub async fn one(context: &Context, connection: &str, id: &str) -> Result<ListedModel, Error> {
    let models = list(context, connection).await?;
    let found = models.iter().find(|model| model.id == id);
    found.cloned().ok_or_else(|| Absent::ProviderModel.into())
}

async fn ask(
    context: &Context,
    connection: &str,
    provider: &ModelProvider,
) -> Result<Vec<ListedModel>, ProviderFault> {
    let name = connection.to_owned();
    let request = match list_models(provider) {
        Ok(request) => request,
        Err(bad) => return Err(ProviderFault::Connection { name, why: format!(": {bad}") }),
    };
    let Some(edge) = &context.control.edge else {
        let why = "this server asks no providers".to_owned();
        return Err(ProviderFault::Unreachable { name, why });
    };
    let answer = edge.ask_outside(&context.member.workspace, &request).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(fault) => return Err(ProviderFault::Unreachable { name, why: fault.to_string() }),
    };
    match answer.status {
        200..=299 => read_models(provider.kind, &answer.body.0)
            .map_err(|unreadable| ProviderFault::Unreadable { name, why: unreadable.to_string() }),
        status @ (401 | 403) => Err(ProviderFault::Credentials { name, status }),
        status => Err(ProviderFault::Failed { name, status }),
    }
}
