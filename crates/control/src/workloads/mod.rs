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
pub(crate) mod archive;
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
pub(crate) mod locks;
mod looks;
mod lost_facts;
mod model;
pub(crate) mod now;
pub(crate) mod output;
mod preview;
mod published;
mod reconcile;
mod routes;
pub(crate) mod rows;
mod runners;
mod sandbox;
mod schedules;
pub(crate) mod shared;
pub(crate) mod snapshot;
pub(crate) mod soon;
mod taken;
mod task_runner;
mod template_copies;
mod volume;
mod volume_template;
pub(crate) mod watch;
pub(crate) mod workload;

pub use published::{published, ready};
pub use runners::runners;
pub use taken::taken;
pub use watch::{changed, removed};

use crate::control::Control;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

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
            template_copies::run(control.clone()),
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
