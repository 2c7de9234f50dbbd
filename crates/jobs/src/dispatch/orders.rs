//! A cache of executions' orders, so that the arguments of very many tasks are read once and not
//! for each task.

use crate::plan::{self, Order};
use std::collections::VecDeque;
use std::sync::Arc;
use store::{Error, Store};
use types::ids::ExecutionId;

/// Executions whose orders stay in memory.
const KEPT: usize = 16;

#[derive(Default)]
pub(super) struct Orders {
    /// The last used one first.
    kept: VecDeque<Arc<Order>>,
}

impl Orders {
    /// Returns the order of an execution that is in memory.
    pub(super) fn known(&mut self, id: &ExecutionId) -> Option<Arc<Order>> {
        let place = self.kept.iter().position(|order| order.execution.id == *id)?;
        let order = self.kept.remove(place)?;
        self.kept.push_front(order.clone());
        Some(order)
    }

    pub(super) fn keep(&mut self, order: Order) -> Arc<Order> {
        let order = Arc::new(order);
        self.kept.push_front(order.clone());
        self.kept.truncate(KEPT);
        order
    }
}

/// Returns the order of an execution from the database, or `None` if the execution is gone.
pub(super) async fn read(store: &Store, id: ExecutionId) -> Result<Option<Order>, Error> {
    let keyring = store.keyring();
    store.read(move |tx| plan::order(tx, &keyring.read(), &id)).await
}
