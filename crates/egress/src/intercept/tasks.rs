//! What a connection has running beside itself, ended with it.

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
    /// They end when the guard goes.
    pub(crate) fn stopped_with_guard() -> (Self, DropGuard) {
        let tasks = Self { stop: CancellationToken::new(), awaited: TaskTracker::new() };
        let guard = tasks.stop.clone().drop_guard();
        (tasks, guard)
    }

    /// Runs something that a connection waits for at its end.
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
