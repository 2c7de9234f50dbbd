//! Parts of a transaction that can be undone alone.

use super::{Conn, Recorded, Tx};
use crate::Error;
use std::mem;

impl Tx<'_> {
    /// Runs `work`, and returns its result. If that is an error, what it did is undone, and the rest
    /// of the transaction is as it was. Fails with the error of `work` if it was the database that
    /// failed, whatever `work` made of that: the transaction cannot go on.
    pub fn attempt<T, E: From<Error>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<Result<T, E>, E> {
        self.command("SAVEPOINT attempt")?;
        let (next_revision, kept) = (self.next_revision, self.kept_workspace.clone());
        let fresh = Recorded { newest: self.recorded.newest, ..Recorded::default() };
        let mut before = mem::replace(&mut self.recorded, fresh);
        let result = work(self);
        if result.is_ok() {
            let made = mem::take(&mut self.recorded);
            before.changes.extend(made.changes);
            before.trimmed_to = before.trimmed_to.max(made.trimmed_to);
            before.leapt |= made.leapt;
            before.undo.join(made.undo);
        } else {
            self.next_revision = next_revision;
            self.references = None;
            // Locks that were taken meanwhile are undone as well.
            self.kept_workspace = kept;
        }
        self.recorded = before;
        if self.broken {
            return result.map(Ok);
        }
        if result.is_err() {
            self.command("ROLLBACK TO SAVEPOINT attempt")?;
        }
        self.command("RELEASE SAVEPOINT attempt")?;
        Ok(result)
    }

    fn command(&mut self, sql: &str) -> Result<(), Error> {
        let result = match &mut self.conn {
            Conn::Sqlite(conn) => conn.execute_batch(sql).map_err(Error::from),
            Conn::Postgres(link) => link.batch(sql),
        };
        self.note(result)
    }
}
