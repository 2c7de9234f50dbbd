//! A cache of executions' orders, so that the arguments of very many tasks are read once and not
//! for each task.

use crate::plan::{self, Order};
use std::collections::VecDeque;
use std::sync::Arc;
use store::{Error, Store};
use types::ids::ExecutionId;

/// Executions whose orders stay in memory.
const KEPT: usize = 16;

pub(super) struct Orders {
    store: Store,
    /// The last used one first.
    kept: VecDeque<Arc<Order>>,
}

impl Orders {
    pub(super) const fn new(store: Store) -> Self {
        Self { store, kept: VecDeque::new() }
    }

    /// Returns the order of an execution, or `None` if the execution is gone.
    pub(super) async fn get(&mut self, id: &ExecutionId) -> Result<Option<Arc<Order>>, Error> {
        let place = self.kept.iter().position(|order| order.execution.id == *id);
        let known = place.and_then(|place| self.kept.remove(place));
        let order = match known {
            Some(order) => order,
            None => match self.read(id.clone()).await? {
                Some(order) => Arc::new(order),
                None => return Ok(None),
            },
        };
        self.kept.push_front(order.clone());
        self.kept.truncate(KEPT);
        Ok(Some(order))
    }

    async fn read(&self, id: ExecutionId) -> Result<Option<Order>, Error> {
        let keyring = self.store.keyring();
        self.store.read(move |tx| plan::order(tx, &keyring.read(), &id)).await
    }
}
