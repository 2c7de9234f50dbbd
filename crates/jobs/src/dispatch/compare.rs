//! What this machine has, compared with what its rows say.

use super::{Dispatcher, Event, Mine, Stage};
use crate::plan::Assignment;
use crate::task_runner::TaskRunner;
use std::collections::HashSet;
use store::executions::tasks;
use store::{Error, Tx};
use types::instance::AttemptId;

impl<C: TaskRunner<Assignment>> Dispatcher<C> {
    /// Compares, and does so again with the next heartbeat if it fails.
    pub(super) async fn compare_or_warn(&mut self) {
        if let Err(error) = self.compare().await {
            tracing::warn!(%error, "the tasks of this machine cannot be read");
        }
    }

    /// Ends tasks that no longer belong to this machine because their workspace is gone or its
    /// lease was taken, and what is left of those that could not be removed. Gives back tasks that
    /// it holds only in the rows, after a commit whose answer was lost.
    async fn compare(&mut self) -> Result<(), Error> {
        let mut held = self.held().await?;
        let taken = |(id, mine): (&AttemptId, &Mine)| {
            (matches!(mine.stage, Stage::Running(_)) && !held.contains_key(id)).then(|| id.clone())
        };
        let taken: Vec<AttemptId> = self.mine.iter().filter_map(taken).collect();
        let gone = self.without_rows(&taken).await?;
        for id in taken {
            self.send_away(id, &gone);
        }
        held.retain(|id, _| !self.mine.contains_key(id));
        let is_leaving = |id: &AttemptId| self.of_running.values().any(|of| of == id);
        let is_stray = |id: &AttemptId| {
            !self.mine.contains_key(id) && !held.contains_key(id) && !is_leaving(id)
        };
        let strays = self.runner.present().into_iter().filter(is_stray).collect();
        self.end_strays(strays).await;
        for (id, task) in held {
            self.lose(id, task, "the machine does not have it");
        }
        Ok(())
    }

    /// Ends what is on this machine and is not its any more: an earlier run of this program has
    /// left it, or it could not be removed.
    pub(super) async fn end_strays(&mut self, strays: Vec<AttemptId>) {
        let gone = self.without_rows(&strays).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "tasks that were left running cannot be read; they end at once");
            HashSet::new()
        });
        for id in strays {
            match gone.contains(&id) {
                true => self.dismiss(id),
                false => self.remove(id),
            }
        }
    }

    /// Returns those of which no row is left: rows of tasks only go with their workspace, as long
    /// as the tasks run.
    async fn without_rows(&mut self, ids: &[AttemptId]) -> Result<HashSet<AttemptId>, Error> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let (store, ids) = (self.store.clone(), ids.to_vec());
        let find = move |tx: &mut Tx<'_>| {
            let mut gone = HashSet::new();
            for id in &ids {
                let index = i64::from(id.task);
                let next = tasks::page(tx, &id.execution, index, 1)?;
                if next.first().is_none_or(|task| task.index != index) {
                    gone.insert(id.clone());
                }
            }
            Ok(gone)
        };
        self.guarded(async move { store.read(find).await }).await
    }

    /// Ends a task that is not this machine's any more. Another machine may be at work on it, so it
    /// ends at once; if it is gone with its workspace, it has its grace period.
    fn send_away(&mut self, id: AttemptId, gone: &HashSet<AttemptId>) {
        let Some(mine) = self.mine.get_mut(&id) else { return };
        // It may have been ended while the rows were read.
        let Stage::Running(run) = &mine.stage else { return };
        run.abort();
        mine.stage = Stage::Leaving;
        if gone.contains(&id) {
            tracing::info!(attempt = %id, "a task is gone with its workspace; it is asked to end");
            self.dismiss(id);
        } else {
            tracing::warn!(attempt = %id, "a task is not this machine's any more; it is ended");
            self.remove(id);
        }
    }

    /// Starts to end an attempt within its grace period, and to remove its leftovers.
    fn dismiss(&mut self, id: AttemptId) {
        let (runner, attempt) = (self.runner.clone(), id.clone());
        let removal = self.running.spawn(async move {
            runner.dismiss(&attempt).await;
            Event::Removed(attempt)
        });
        self.of_running.insert(removal.id(), id);
    }
}
