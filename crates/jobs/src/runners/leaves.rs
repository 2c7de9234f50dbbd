//! Removes runners that are no longer needed: first from the code host, then by ending their
//! executions.

use super::connections;
use super::host::{Fault, Removal};
use super::rules::Progress;
use super::{BATCH, Runners};
use store::runners::{self, Leaving};
use store::{Error, Tx};
use types::Timestamp;

/// How often a removal may fail with an error before the runner is left to the code host.
const TRIES_MAX: i64 = 60;
/// Wait before removing a runner again that was busy.
const BUSY_S: i64 = 60;

impl Runners {
    pub(super) async fn leave_due(&self) -> Result<usize, Error> {
        let now = self.now();
        let due = self.0.store.read(move |tx| runners::due_leaving(tx, now, BATCH)).await?;
        Ok(self
            .each(due, |runners, leaving| async move { Box::pin(runners.let_go(leaving)).await })
            .await)
    }

    async fn let_go(self, leaving: Leaving) -> Result<bool, Error> {
        if !self.claim_leaving(&leaving).await? {
            return Ok(false);
        }
        let (keyring, workspace) = (self.0.store.keyring(), leaving.workspace.clone());
        let all = self.0.store.read(move |tx| connections::all(tx, &keyring, &workspace)).await?;
        let removal = match connections::choose(&all, &leaving.repository) {
            Some(connection) => {
                self.0.host.remove(connection, &leaving.repository, leaving.runner.id).await
            }
            // No connection is left to ask the code host with. It forgets a runner that it has not
            // seen for a day.
            None => Ok(Removal::Gone),
        };
        match removal {
            Ok(Removal::Gone) => self.forget(leaving).await?,
            // It is running a workflow job that we have not seen yet.
            Ok(Removal::Busy) => {
                self.postpone(&leaving, leaving.tries, self.now().plus_s(BUSY_S)).await?
            }
            Err(fault) => self.try_later(leaving, &fault).await?,
        }
        Ok(true)
    }

    async fn try_later(&self, leaving: Leaving, fault: &Fault) -> Result<(), Error> {
        tracing::warn!(%fault, runner = %leaving.runner.name, "a runner could not be removed yet");
        let tries = leaving.tries + i64::from(fault.is_refusal());
        if tries >= TRIES_MAX {
            return self.forget(leaving).await;
        }
        self.postpone(&leaving, tries, self.again(fault)).await
    }

    /// Moves the due time of a runner that is due forward, so that other servers leave it alone
    /// meanwhile. Returns whether it was due.
    async fn claim_leaving(&self, leaving: &Leaving) -> Result<bool, Error> {
        let (of, now) = (leaving.clone(), self.now());
        let due_at = now.plus_s(self.0.settings.lease_s);
        let work = move |tx: &mut Tx<'_>| {
            let known = runners::find_leaving(tx, &of.workspace, &of.runner.name)?;
            let Some(known) = known.filter(|known| known.due_at <= now) else { return Ok(false) };
            runners::leave(tx, &Leaving { due_at, ..known }).map(|()| true)
        };
        self.0.store.write(work).await
    }

    /// Tries again later, unless the runner has become needed again.
    async fn postpone(
        &self,
        leaving: &Leaving,
        tries: i64,
        due_at: Timestamp,
    ) -> Result<(), Error> {
        let of = leaving.clone();
        let work = move |tx: &mut Tx<'_>| {
            let Some(known) = runners::find_leaving(tx, &of.workspace, &of.runner.name)? else {
                return Ok(());
            };
            runners::leave(tx, &Leaving { tries, due_at, ..known })
        };
        self.0.store.write(work).await
    }

    /// Ends the execution of a runner that the code host no longer knows, and forgets the runner.
    async fn forget(&self, leaving: Leaving) -> Result<(), Error> {
        let of = self.clone();
        let work = move |tx: &mut Tx<'_>| {
            let execution = &leaving.runner.execution;
            if runners::forget_leaving(tx, &leaving.workspace, &leaving.runner.name)?
                && of.0.starter.progress(tx, execution)? != Progress::Ended
            {
                of.0.starter.cancel(tx, execution)?;
            }
            Ok(())
        };
        self.0.store.write(work).await
    }
}
