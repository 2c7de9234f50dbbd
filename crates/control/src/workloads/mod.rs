//! From wishes to instances: workloads that run because their rows say so.
//!
//! ```text
//! rows ──feed──▶ watch ──▶ routes to the edge ──demands──▶ deployments
//!                   └────▶ soon, reconcile: what runs becomes what is wished
//! machine ──facts──▶ fact_intake ──▶ rows: asleep, awake, ended
//! time ──▶ expiry ──▶ rows: expired; schedules and cron triggers fire
//! ```
//!
//! Deployments (agents, MCP servers, applications) are in [`deployments`]; the rest of this text is
//! about sandboxes. Creating a sandbox does the work of [`reconcile`] at once, because a caller
//! waits ([`create`]). All work on one sandbox holds its lock ([`locks`]), so the two never start
//! it twice. Whatever a kill interrupts is found again at the next start, by the rows and the
//! machine's own list of instances.

pub(crate) mod adopt;
mod alarm;
mod calls;
pub mod create;
mod cron;
mod deployments;
mod drive;
mod expiry;
mod fact_intake;
mod followed;
pub(crate) mod images;
mod instances;
pub(crate) mod jobs;
pub(crate) mod launch;
mod locks;
mod model;
pub(crate) mod output;
mod preview;
mod reconcile;
mod routes;
pub(crate) mod rows;
mod runners;
mod sandbox;
mod schedules;
pub(crate) mod shared;
mod slots;
pub(crate) mod snapshot;
mod soon;
mod task_runner;
mod volume;
mod volume_template;
mod watch;
pub(crate) mod workload;

pub(crate) use model::tell_connection;
pub use runners::runners;
pub use watch::{changed, removed};

use crate::control::Control;
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use types::KindName;
use types::ids::ResourceId;
use types::instance::InstanceName;
use types::kinds::sandbox::State;

/// How long a request that changed a route waits for the edge to learn of it.
const PUBLISHING_MAX: Duration = Duration::from_secs(5);
/// Grace period for work in progress when the program ends. The next start does the rest.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// Keeps instances, routes and rows in step, until `ending`.
pub(crate) async fn run(control: Control, ending: CancellationToken) {
    let tasks = async {
        tokio::join!(
            watch::run(control.clone()),
            fact_intake::run(control.clone()),
            crate::egress::run(control.clone()),
            crate::models::run_log(control.clone()),
            expiry::run(control.clone()),
            snapshot::run(control.clone()),
            deployments::run(control.clone())
        );
    };
    tokio::join!(ending.run_until_cancelled(Box::pin(tasks)), run_tasks(&control, &ending));
    control.workloads.deployments.ending.cancel();
    let begun = &control.workloads.tasks;
    begun.close();
    if tokio::time::timeout(ENDING_MAX, begun.wait()).await.is_err() {
        tracing::warn!(left = begun.len(), "work on workloads is left to the next start");
    }
}

/// Runs tasks of jobs, if this server has a machine.
async fn run_tasks(control: &Control, ending: &CancellationToken) {
    let Some(machine) = control.machine().cloned() else { return };
    let (store, logs) = (control.store.clone(), control.logs.clone());
    let (edge, world) = (control.edge.clone(), control.world.clone());
    let runner = task_runner::Instances::new(machine, edge, store.clone(), logs, world);
    let run = ::jobs::run(store, control.queue.clone(), Arc::new(runner), ending.clone());
    let late = async {
        ending.cancelled().await;
        tokio::time::sleep(ENDING_MAX).await;
    };
    tokio::select! {
        () = run => {}
        () = late => tracing::warn!("what came of some tasks is left to the next start"),
    }
}

/// Brings a workload into its wished state in the background.
pub(crate) fn reconcile_soon(control: &Control, kind: KindName, id: ResourceId) {
    soon::reconcile(control, kind, id);
}

/// Brings a sandbox into its wished state while its caller waits. The work continues if the caller
/// goes away; failures are retried by the task that follows the rows.
pub(crate) async fn reconcile_now(control: &Control, id: &ResourceId) {
    let (of, id) = (control.clone(), id.clone());
    let whole = async move { reconcile::reconcile(&of, &id).await };
    match tokio::spawn(whole).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "a sandbox is brought into its state later"),
        Err(error) => tracing::error!(%error, "bringing a sandbox into its state was interrupted"),
    }
}

/// Makes the instance of a sandbox follow its row while the caller who changed it waits. After a
/// failure it is retried in the background.
pub(crate) async fn obey(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let (of, row) = (control.clone(), id.clone());
    let whole = tokio::spawn(async move { reconcile::reconcile(&of, &row).await });
    let done = whole.await.unwrap_or_else(|_| Err(Error::Egress("it was interrupted".to_owned())));
    if done.is_err() {
        soon::reconcile(control, KindName::Sandbox, id.clone());
    }
    done
}

/// Returns the instance of the launch that a sandbox's row asks for.
pub(crate) fn instance_of(id: &ResourceId, state: &State) -> InstanceName {
    launch::instance(id, state)
}

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
