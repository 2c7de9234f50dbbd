//! Waiting until the edge knows the routes that rows ask for.

use crate::control::Control;
use std::time::Duration;

/// How long a request that changed a route waits for the edge to learn of it.
const PUBLISHING_MAX: Duration = Duration::from_secs(5);

/// Waits until the edge knows every route. Before that it would answer that there is none.
pub async fn ready(control: &Control) {
    let mut published = control.workloads.published.subscribe();
    if control.edge.is_some() {
        // Fails only when the program ends.
        let _ = published.wait_for(|known| *known >= 0).await;
    }
}

/// Waits until the edge knows everything committed so far. Call it before answering a change that
/// the caller may try out at once, such as a new preview or a revoked token.
pub async fn published(control: &Control) {
    if control.edge.is_none() {
        return;
    }
    let Ok(revision) = control.store.read(store::feed::latest).await else { return };
    let mut published = control.workloads.published.subscribe();
    let known = published.wait_for(|known| *known >= revision);
    if tokio::time::timeout(PUBLISHING_MAX, known).await.is_err() {
        tracing::warn!("the edge is late in learning of changes");
    }
}
