//! The only thread that writes: it takes all waiting jobs, commits once, and then answers them.

use super::checkpoint::Checkpoints;
use super::connection::run;
use crate::Error;
use crate::db::threads::Shared;
use crate::db::tx::{Conn, Recorded, Tx};
use crate::db::work::Job;
use rusqlite::Connection;
use std::sync::Arc;

/// Why a commit failed, for each of the jobs in it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the commit failed")]
struct CommitFailed(#[source] Arc<Error>);

/// Where jobs wait for a thread that takes them.
pub(super) type Inbox = crossbeam_channel::Receiver<Job>;

pub(super) struct Writer {
    pub(super) conn: Connection,
    pub(super) shared: Shared,
    pub(super) checkpoints: Checkpoints,
    pub(super) batch_max: usize,
    /// The newest committed revision, if known.
    newest: Option<i64>,
}

impl Writer {
    pub(super) fn new(
        conn: Connection,
        shared: Shared,
        checkpoints: Checkpoints,
        batch_max: usize,
    ) -> Self {
        Self { conn, shared, checkpoints, batch_max, newest: None }
    }

    pub(super) fn serve(&mut self, inbox: &Inbox) {
        self.begin_feed();
        while let Ok(first) = inbox.recv() {
            let mut batch = vec![first];
            batch.extend(inbox.try_iter().take(self.batch_max.saturating_sub(1)));
            match self.write(&mut batch) {
                Ok(recorded) => {
                    self.publish(recorded);
                    batch.into_iter().for_each(Job::answer);
                    self.shared.note_commit(self.newest);
                    self.checkpoints.after_commit(&self.conn);
                }
                Err(error) => self.undo(batch, error),
            }
        }
    }

    /// Runs all jobs in one transaction.
    fn write(&self, batch: &mut [Job]) -> Result<Recorded, Error> {
        run(&self.conn, "BEGIN IMMEDIATE")?;
        let recorded = match batch {
            [job] => match self.act(job, self.newest) {
                Some(recorded) => recorded,
                // The job is alone in the transaction, so undo all of it.
                None => {
                    run(&self.conn, "ROLLBACK")?;
                    return Ok(Recorded { newest: self.newest, ..Recorded::default() });
                }
            },
            several => self.act_in_turn(several)?,
        };
        run(&self.conn, "COMMIT")?;
        Ok(recorded)
    }

    /// Runs each job in a savepoint, so that a failing job does not undo any other.
    fn act_in_turn(&self, batch: &mut [Job]) -> Result<Recorded, Error> {
        let mut all = Recorded { newest: self.newest, ..Recorded::default() };
        for job in batch {
            run(&self.conn, "SAVEPOINT job")?;
            match self.act(job, all.newest) {
                Some(recorded) => {
                    all.newest = recorded.newest;
                    all.changes.extend(recorded.changes);
                    all.leapt |= recorded.leapt;
                    all.trimmed_to = all.trimmed_to.max(recorded.trimmed_to);
                    all.undo.join(recorded.undo);
                }
                None => run(&self.conn, "ROLLBACK TO job")?,
            }
            run(&self.conn, "RELEASE job")?;
        }
        Ok(all)
    }

    /// Runs a job and returns what it recorded, or `None` if it must be undone.
    fn act(&self, job: &mut Job, newest: Option<i64>) -> Option<Recorded> {
        let mut tx = Tx::after(Conn::Sqlite(&self.conn), &self.shared, newest);
        job.run(&mut tx).then(|| tx.into_recorded())
    }

    fn undo(&mut self, batch: Vec<Job>, error: Error) {
        // Ignored: if no transaction is open, there is nothing to undo.
        let _ = self.conn.execute_batch("ROLLBACK");
        let cause = &error as &dyn std::error::Error;
        tracing::error!(error = cause, writes = batch.len(), "a commit failed");
        fail_all(batch, error);
    }

    /// Starts to serve the feed's followers from memory.
    fn begin_feed(&mut self) {
        let mut tx = Tx::new(Conn::Sqlite(&self.conn), &self.shared);
        match tx.highest_revision() {
            Ok(newest) => {
                self.newest = Some(newest);
                self.shared.recent.begin(newest);
            }
            Err(error) => tracing::error!(%error, "the newest change cannot be read"),
        }
    }

    fn publish(&mut self, mut recorded: Recorded) {
        recorded.undo.keep();
        self.newest = recorded.newest;
        if recorded.leapt {
            self.shared.recent.forget();
        } else {
            self.shared.recent.publish(recorded.changes);
            if let Some(upto) = recorded.trimmed_to {
                self.shared.recent.trim(upto);
            }
        }
    }
}

/// Tells all jobs that nothing of them was written, although each of them may be as it should be.
fn fail_all(batch: Vec<Job>, error: Error) {
    let is_full = matches!(error, Error::Full(_));
    let failed = CommitFailed(Arc::new(error));
    for job in batch {
        let failed = Box::new(failed.clone());
        job.fail(if is_full { Error::Full(failed) } else { Error::Database(failed) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::work;

    /// Returns what each of two jobs is told when their commit fails.
    fn told(error: Error) -> [Error; 2] {
        let job = || Job::new(work::of(|_: &mut Tx<'_>| Ok::<_, Error>(())));
        let ((one, first), (two, second)) = (job(), job());
        fail_all(vec![one, two], error);
        [first, second].map(|done| {
            let mut work = done.blocking_recv().unwrap();
            work::result::<(), Error>(&mut *work).unwrap_err()
        })
    }

    #[test]
    fn whoever_was_in_a_commit_that_failed_may_try_again() {
        let broken = || Box::new(std::io::Error::other("broken"));
        for error in told(Error::Full(broken())) {
            assert!(matches!(error, Error::Full(_)) && error.may_pass(), "{error:?}");
        }
        for error in told(Error::Database(broken())) {
            assert!(matches!(error, Error::Database(_)) && error.may_pass(), "{error:?}");
            assert!(
                types::chain(&error).ends_with("the commit failed: the database failed: broken")
            );
        }
    }
}
