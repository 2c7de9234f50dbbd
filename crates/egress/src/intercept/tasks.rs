//! Background tasks of a connection, which end with it.

use hyper::rt::Executor;
use std::future::Future;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

#[derive(Debug, Clone)]
pub(crate) struct Tasks {
    stop: CancellationToken,
    awaited: TaskTracker,
}

impl Tasks {
    /// Creates a set of tasks that are stopped when the guard is dropped.
    pub(crate) fn stopped_with_guard() -> (Self, DropGuard) {
        let tasks = Self { stop: CancellationToken::new(), awaited: TaskTracker::new() };
        let guard = tasks.stop.clone().drop_guard();
        (tasks, guard)
    }

    /// Spawns a task that the connection waits for before it ends.
    pub(super) fn spawn_awaited(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.awaited.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }

    pub(crate) async fn ended(&self) {
        self.awaited.close();
        self.awaited.wait().await;
    }
}

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        let stop = self.stop.clone();
        tokio::spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }
}
