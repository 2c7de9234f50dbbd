//! From wishes to instances: sandboxes that run because their rows say so.
//!
//! ```text
//! rows ──feed──▶ Watch ──▶ routes to the edge
//!                   └────▶ Fleet::settle: what runs becomes what is wished
//! machine ──facts──▶ Chronicle ──▶ rows: asleep, awake, ended
//! clock ──▶ Clock ──▶ rows: expired; schedules fire
//! ```
//!
//! A create does the work of [`Fleet::settle`] at once, because somebody waits ([`create`]). All
//! work on one sandbox takes turns ([`Turns`]), so the two never start it twice. Whatever is
//! interrupted by a kill is found again by the rows and the machine's own list of instances at the
//! next start.

pub(crate) mod adopt;
mod chronicle;
mod clock;
pub(crate) mod create;
mod crew;
mod cron;
pub(crate) mod images;
pub(crate) mod jobs;
mod launch;
mod machine;
mod routes;
mod rows;
mod runners;
mod schedules;
mod settle;
mod turns;
mod watch;

pub use machine::{
    Edge, ImageAt, Launch, LaunchFault, Machine, MachineFault, Seen, UnknownImage, Wait, Work,
};
pub use runners::runners;

use crate::app::App;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use turns::{Births, Turns};

/// A request that changed what is routed waits this long at most for the edge to know.
const TELLING_MAX: Duration = Duration::from_secs(5);
/// What was begun gets so long to end when the program does. The next start does the rest.
const ENDING_MAX: Duration = Duration::from_secs(10);
/// Sandboxes that are started, stopped or removed at once beside the requests of callers.
const AT_ONCE: usize = 16;

/// What the API works with beyond its rows. A server without a machine leaves sandboxes to others.
#[derive(Clone)]
pub struct Fleet(Arc<Inner>);

struct Inner {
    machine: Option<Arc<dyn Machine>>,
    edge: Option<Arc<dyn Edge>>,
    turns: Turns,
    births: Births,
    /// The newest revision of the feed that the edge knows all about.
    told: tokio::sync::watch::Sender<i64>,
    places: Arc<tokio::sync::Semaphore>,
    tasks: TaskTracker,
    clock: clock::Alarm,
}

impl Fleet {
    pub fn new(machine: Option<Arc<dyn Machine>>, edge: Option<Arc<dyn Edge>>) -> Self {
        Self(Arc::new(Inner {
            machine,
            edge,
            turns: Turns::default(),
            births: Births::default(),
            told: tokio::sync::watch::Sender::new(-1),
            places: Arc::new(tokio::sync::Semaphore::new(AT_ONCE)),
            tasks: TaskTracker::new(),
            clock: clock::Alarm::default(),
        }))
    }

    pub(crate) fn machine(&self) -> Option<&Arc<dyn Machine>> {
        self.0.machine.as_ref()
    }

    fn tell(&self, change: types::edge::RouteChange) {
        if let Some(edge) = &self.0.edge {
            edge.tell(change);
        }
    }
}

/// Keeps instances, routes and rows in step until the end begins.
pub async fn run(app: App, ending: CancellationToken) {
    let tasks = async {
        tokio::join!(watch::run(app.clone()), chronicle::run(app.clone()), clock::run(app.clone()));
    };
    tokio::join!(ending.run_until_cancelled(Box::pin(tasks)), run_tasks(&app, &ending));
    let begun = &app.fleet.0.tasks;
    begun.close();
    if tokio::time::timeout(ENDING_MAX, begun.wait()).await.is_err() {
        tracing::warn!(left = begun.len(), "work on sandboxes is left to the next start");
    }
}

/// Runs tasks of jobs, if there is a machine for it.
async fn run_tasks(app: &App, ending: &CancellationToken) {
    let Some(machine) = app.fleet.machine().cloned() else { return };
    let crew =
        crew::Instances::new(machine, app.store.clone(), app.logs.clone(), app.world.clone());
    let run = ::jobs::run(app.store.clone(), app.queue.clone(), Arc::new(crew), ending.clone());
    let late = async {
        ending.cancelled().await;
        tokio::time::sleep(ENDING_MAX).await;
    };
    tokio::select! {
        () = run => {}
        () = late => tracing::warn!("what came of some tasks is left to the next start"),
    }
}

/// Waits until the edge knows every route that there is. Before that it would take each for one
/// that is not.
pub async fn ready(app: &App) {
    let mut told = app.fleet.0.told.subscribe();
    if app.fleet.0.edge.is_some() {
        // Fails only when the program ends.
        let _ = told.wait_for(|known| *known >= 0).await;
    }
}

/// Waits until the edge knows what was committed before. To be called before a change is answered
/// that a caller may try out at once: a new preview, a revoked token.
pub(crate) async fn told(app: &App) {
    let fleet = &app.fleet;
    if fleet.0.edge.is_none() {
        return;
    }
    let Ok(revision) = app.store.read(store::feed::latest).await else { return };
    let mut told = fleet.0.told.subscribe();
    if tokio::time::timeout(TELLING_MAX, told.wait_for(|known| *known >= revision)).await.is_err() {
        tracing::warn!("the edge is late in learning of changes");
    }
}
