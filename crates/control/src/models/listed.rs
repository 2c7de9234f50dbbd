//! Lists of models that providers were asked for, which are kept for a while.

use crate::settings::Models;
use ::models::listing::ListedModel;
use admission::{Limits, Pool};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use types::Timestamp;
use types::ids::{ResourceId, WorkspaceId};

/// Longer lists are returned, but not kept.
const KEPT_MODELS_MAX: usize = 5000;

/// A connection at one version of its row.
pub(super) type Key = (ResourceId, i64);

/// Lists that are kept, and the questions to providers that are under way.
pub(super) struct Listed {
    lists: Mutex<HashMap<Key, List>>,
    pub(super) asking: Pool<WorkspaceId>,
    settings: Models,
}

struct List {
    until: Timestamp,
    models: Arc<Vec<ListedModel>>,
}

impl Listed {
    pub(super) fn new(settings: &Models) -> Self {
        let limits = Limits { total: settings.asks_max, share: settings.asks_workspace_max };
        Self {
            lists: Mutex::default(),
            asking: Pool::new("lists of models that are being asked for", limits),
            settings: *settings,
        }
    }

    pub(super) fn kept(&self, key: &Key, now: Timestamp) -> Option<Arc<Vec<ListedModel>>> {
        let lists = self.lists.lock();
        lists.get(key).filter(|list| list.until > now).map(|list| Arc::clone(&list.models))
    }

    pub(super) fn keep(&self, key: Key, models: &Arc<Vec<ListedModel>>, now: Timestamp) {
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
